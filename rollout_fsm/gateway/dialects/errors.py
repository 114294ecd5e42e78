"""Errors in the shapes of the APIs."""

from collections.abc import Mapping

from rollout_fsm.messages import JSON

ANTHROPIC_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""Anthropic's words, by status."""


def openai_error(message: str, *, type: str, param: str | None, code: str | None) -> dict[str, JSON]:
    """An error in OpenAI's shape."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def anthropic_error(
    message: str, *, status: int = 500, type: str, param: str | None = None, code: str | None = None
) -> dict[str, JSON]:
    """An error in Anthropic's shape: its word for the status, and beside it what it has no words for."""
    word = ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    beside: dict[str, JSON] = {"reason": type, "param": param, "code": code}
    said: dict[str, JSON] = {name: value for name, value in beside.items() if value not in (None, word)}
    return {"type": "error", "error": {"type": word, "message": message, **said}}
