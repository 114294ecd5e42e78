"""What the gateway answers: a status, headers and a body, whole or in pieces; and the shape that its errors have.

No I/O. Every JSON body is compact ASCII, so that no text of a model can be unencodable.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from attrs import field, frozen

from rollout_fsm.errors import TurnRefused, record
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.status import primary, status_of
from rollout_fsm.messages import JSON

INVALID = "invalid_request_error"
"""OpenAI's word for a request that is the client's mistake."""

Headers = tuple[tuple[str, str], ...]


@frozen(kw_only=True)
class Reply:
    """An answer. A `body` that is no bytes is sent piece by piece, without a length."""

    status: int
    body: bytes | Iterable[bytes] = field(default=b"", repr=False)
    headers: Headers = ()


def json_reply(value: Mapping[str, JSON], *, status: int = 200, headers: Headers = ()) -> Reply:
    """A JSON document."""
    return Reply(status=status, body=_compact(value), headers=(("content-type", "application/json"), *headers))


def event_reply(chunks: Iterable[Mapping[str, JSON]]) -> Reply:
    """Server-sent events, one for each chunk, and `[DONE]`."""
    headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))
    return Reply(status=200, body=_events(chunks), headers=headers)


def error_reply(
    status: int,
    message: str,
    *,
    type: str = INVALID,
    param: str | None = None,
    code: str | None = None,
    headers: Headers = (),
) -> Reply:
    """An error in OpenAI's shape."""
    error: dict[str, JSON] = {"message": message, "type": type, "param": param, "code": code}
    return json_reply({"error": error}, status=status, headers=headers)


def failure_reply(error: BaseException) -> Reply:
    """The answer to what a call raised. A refusal keeps its words, and has the stop condition as its code (L16)."""
    cause = primary(error)
    status = status_of(cause)
    match cause:
        case TurnRefused():
            return error_reply(status, str(cause), type="turn_refused", code=cause.condition or "refused")
        case DialectError():
            return error_reply(status, str(cause), param=cause.param, code="malformed_request")
    known = record(cause)  # foreign exceptions need not be printable
    return error_reply(status, f"{known.type}: {known.message}".removesuffix(": "), type=_snake(known.type))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _compact(value: Mapping[str, JSON]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _events(chunks: Iterable[Mapping[str, JSON]]) -> Iterator[bytes]:
    for chunk in chunks:
        yield b"data: %b\n\n" % _compact(chunk)
    yield b"data: [DONE]\n\n"
