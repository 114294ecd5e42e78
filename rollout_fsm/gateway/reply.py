"""What the gateway answers: a status, headers and a body.

No I/O. Every JSON body is compact ASCII, so that no text of a model can be unencodable. An error has the shape of the
dialect that its client speaks, a stream the framing of server-sent events.
"""

import re
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from rollout_fsm.errors import TurnRefused, record
from rollout_fsm.gateway.dialects.dialect import DONE, Dialect, DialectError
from rollout_fsm.gateway.status import primary, status_of
from rollout_fsm.messages import JSON, NativeEvent
from rollout_fsm.strict_json import ascii_json_bytes

INVALID = "invalid_request_error"
"""OpenAI's word for a request that is the client's mistake."""

Headers = tuple[tuple[str, str], ...]

STREAM: Headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))
"""The headers of an answer that comes as server-sent events."""


@frozen(kw_only=True)
class Reply:
    """An answer, whole."""

    status: int
    body: bytes = field(default=b"", repr=False)
    headers: Headers = ()


@frozen(kw_only=True)
class Failure:
    """What a client is told of a call that failed: the status it would have, OpenAI's word for its kind, and a code."""

    status: int
    message: str
    type: str = INVALID
    param: str | None = None
    code: str | None = None


def json_reply(value: Mapping[str, JSON], *, status: int = 200, headers: Headers = ()) -> Reply:
    """A JSON document."""
    return Reply(status=status, body=ascii_json_bytes(value), headers=(("content-type", "application/json"), *headers))


def error_reply(failure: Failure, dialect: Dialect, *, headers: Headers = ()) -> Reply:
    """An error in the dialect's shape."""
    body = dialect.error_body(
        failure.status, failure.message, type=failure.type, param=failure.param, code=failure.code
    )
    return json_reply(body, status=failure.status, headers=headers)


def failure_of(error: BaseException) -> Failure:
    """What is told of what a call raised. A refusal keeps its words, and has the stop condition as its code (L16)."""
    cause = primary(error)
    status = status_of(cause)
    match cause:
        case TurnRefused():
            return Failure(status=status, message=str(cause), type="turn_refused", code=cause.condition or "refused")
        case DialectError():
            return Failure(status=status, message=str(cause), param=cause.param, code="malformed_request")
    known = record(cause)  # foreign exceptions need not be printable
    message = f"{known.type}: {known.message}".removesuffix(": ")
    return Failure(status=status, message=message, type=_snake(known.type))


def events(given: Iterable[NativeEvent]) -> bytes:
    """Events of a stream as they are sent."""
    return b"".join(map(_event, given))


def _event(event: NativeEvent) -> bytes:
    if event == DONE:
        return b"data: %b\n\n" % DONE.name.encode()
    name = b"event: %b\n" % event.name.encode() if event.name else b""
    return b"%bdata: %b\n\n" % (name, ascii_json_bytes(event.data))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
