"""What a dialect is: how requests, answers and streams of one API are read and written.

Sans-IO: nothing here opens a socket, reads a clock or logs. The gateway reads requests and writes answers with a
dialect, the model clients write requests and read answers. What was read in a dialect is written back in it as it was,
but for what was rewritten between; in another dialect it is written from what `messages` has of it.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from rollout_fsm.gateway.dialects.recall import Recall, afresh
from rollout_fsm.messages import JSON, Delta, NativeEvent, Request, Response, Sampling


class DialectError(ValueError):
    """A body is not what the format asks for. `param` is the path of the field, None for the body itself."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


DONE = NativeEvent(dialect="chat", data={}, name="[DONE]")
"""What ends a chat stream, where it is read and where it is written. It has no JSON: on the wire it is
`data: [DONE]`, without an `event:` field."""


class Renderer(Protocol):
    """Writes the stream that answers one request. Events have the dialect's own names and shapes."""

    def delta(self, delta: Delta) -> Iterable[NativeEvent]:
        """The events that say this piece; the last events of a stream are kept back until `end`."""
        ...

    def end(self, response: Response) -> Iterable[NativeEvent]:
        """The rest: what of the response was not said by pieces, and the events that end the stream. Raises
        `DialectError` where the pieces said what the response does not."""
        ...

    def failure(self, message: str, *, type: str, code: str | None) -> Iterable[NativeEvent]:
        """The events that say that the answer broke off."""
        ...


class Assembler(Protocol):
    """Reads a stream. `add` each event in order, then ask for the `response`."""

    @property
    def finished(self) -> bool:
        """Whether the stream has said that it is complete."""
        ...

    def add(self, event: NativeEvent) -> Delta:
        """Take the next event, and say what piece it is. Raises `DialectError`, also for an error that it reports."""
        ...

    def response(self) -> Response:
        """The whole answer. Raises `DialectError` where the stream broke off before it was complete."""
        ...


class Dialect(Protocol):
    """One API."""

    @property
    def name(self) -> str:
        """What it is called in `Native.dialect`."""
        ...

    @property
    def path(self) -> str:
        """Where requests are posted to, below the base URL's `/v1`: `/chat/completions`."""
        ...

    def parse_request(self, body: Mapping[str, JSON], recall: Recall = afresh) -> Request:
        """A request, with the body as its `native`, its messages read where they are not recalled. Raises
        `DialectError`."""
        ...

    def wants_stream(self, body: Mapping[str, JSON]) -> bool:
        """Whether the answer is to come as a stream. Raises `DialectError`."""
        ...

    def render_request(self, request: Request, *, model: str, sampling: Sampling, stream: bool) -> dict[str, JSON]:
        """A body for an endpoint that speaks this dialect: the native one, where it is of this dialect, with `model`,
        `sampling` and `stream` in the place of its own and every rewritten message written into it; else one made of
        the request. Raises `DialectError` for what the dialect cannot say and must not leave out (`translation`)."""
        ...

    def parse_response(self, body: Mapping[str, JSON]) -> Response:
        """An answer, with the body as its `native`. Raises `DialectError`, also for an error with a good status."""
        ...

    def render_response(self, response: Response, *, request: Request, model: str, created: int) -> dict[str, JSON]:
        """The answer to a request: the native one, where it is of this dialect; else one made of the response.

        `model` is the name that the client asked for, `created` is in epoch seconds.
        """
        ...

    def renderer(self, request: Request, *, model: str, created: int) -> Renderer:
        """Writes the stream that answers a request."""
        ...

    def assembler(self) -> Assembler:
        """Reads one stream of an endpoint."""
        ...

    def error_body(
        self, status: int, message: str, *, type: str, param: str | None, code: str | None
    ) -> dict[str, JSON]:
        """An error in the dialect's shape. `type` is OpenAI's word for it."""
        ...
