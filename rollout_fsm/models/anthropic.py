"""A model behind an endpoint that speaks Anthropic's messages."""

from typing import ClassVar

from attrs import define, evolve, field

from rollout_fsm.errors import ProviderError
from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.dialect import Dialect
from rollout_fsm.gateway.dialects.messages.requests import MAX_TOKENS
from rollout_fsm.messages import Deliver, Request, Response, Sampling
from rollout_fsm.models.endpoint import EndpointModel

__all__ = ["AnthropicModel"]

VERSION = "2023-06-01"
"""Of the API, where the harness does not say which one it was written for."""

PROMPT = ("model", "messages", "system", "tools", "tool_choice", "thinking", "mcp_servers")
"""The fields of a request that are counted."""


@define(eq=False, slots=False)
class AnthropicModel(EndpointModel):
    """The endpoint at `base_url`, else at ANTHROPIC_BASE_URL, else Anthropic's own. The URL ends in `/v1` or before it.

    `api_key_var` names the environment variable of the key (None: no key), which is sent as `x-api-key`. `max_tokens`
    is how many tokens an answer may have where neither the run nor the harness says so. `timeout`, `stream` and
    `headers` are those of `OpenAIModel`. A request of a harness that speaks messages is passed through, its
    `anthropic-version` and `anthropic-beta` headers with it; every other request is translated.

    One object serves any number of calls at once. Entered as an async context manager, it keeps its connections; used
    without, it opens one for each call.
    """

    DEFAULT_BASE_URL: ClassVar[str] = "https://api.anthropic.com/v1"
    BASE_URL_VAR: ClassVar[str] = "ANTHROPIC_BASE_URL"
    KEY_VAR: ClassVar[str] = "ANTHROPIC_API_KEY"
    PATHS: ClassVar[tuple[str, ...]] = ("/messages", "/v1")

    max_tokens: int = field(default=MAX_TOKENS, kw_only=True)

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        """Ask once. Raises as `OpenAIModel` does."""
        return await super().respond(request, self._limited(sampling))

    async def stream_response(self, request: Request, sampling: Sampling, deliver: Deliver) -> Response:
        """As `respond`, with the answer asked for as a stream and its pieces told as they come."""
        return await super().stream_response(request, self._limited(sampling), deliver)

    async def count_tokens(self, request: Request) -> int:
        """How many tokens a prompt has, by the endpoint's own count. Raises `ProviderError`."""
        dialect = self._dialect(request)
        body = self._body(dialect, request, self._limited(request.sampling), stream=False)
        path = f"{dialect.path}/count_tokens"
        counted = await self._beside(path, dialect, request, {name: body[name] for name in PROMPT if name in body})
        tokens = counted.get("input_tokens")
        if type(tokens) is not int:
            raise ProviderError(f"the count at {path} of the model {self.name!r} has no whole number `input_tokens`")
        return tokens

    def _limited(self, sampling: Sampling) -> Sampling:
        return sampling if sampling.max_tokens is not None else evolve(sampling, max_tokens=self.max_tokens)

    def _endpoint(self) -> str:
        return f"{super()._endpoint()}/v1"

    def _dialect(self, request: Request) -> Dialect:
        return DIALECTS["messages"]

    def _authorization(self, key: str) -> dict[str, str]:
        return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}
