"""An answer that comes as a stream of events, folded into a response while it comes, each piece passed on to whoever
wants them. What is wrong with it is a `ProviderError` that says what the stream did."""

from collections.abc import Mapping

from rollout_fsm.errors import ProviderError
from rollout_fsm.gateway.dialects.dialect import DONE, Dialect, DialectError
from rollout_fsm.messages import JSON, Deliver, NativeEvent, Response
from rollout_fsm.models.answers import LARGEST, NOUNS
from rollout_fsm.models.event_stream import Event, EventStream
from rollout_fsm.models.faults import complained, complaint_in, odd_answer
from rollout_fsm.strict_json import parse_json

__all__ = ["Fold"]


class Fold:
    """A stream, folded. What it raises says what the stream did."""

    def __init__(self, dialect: Dialect, url: str, deliver: Deliver | None) -> None:
        self._dialect = dialect
        self._url = url
        self._deliver = deliver
        self._events = EventStream()
        self._assembler = dialect.assembler()
        self._size = 0
        self._chunks = 0
        self._chose = False
        self._said_done = False

    async def feed(self, piece: bytes) -> bool:
        """Take what came, and pass it on; whether the stream has said that this was all."""
        self._size += len(piece)
        if self._size > LARGEST:
            raise odd_answer(f"the stream is larger than {LARGEST} bytes", url=self._url)
        for event in self._events.feed(piece):
            await self._take(event)
        return self._said_done

    async def response(self) -> Response:
        """The response, once the stream has ended."""
        for event in self._events.end():
            await self._take(event, last=True)
        if not self._assembler.finished:
            what = f"the stream was closed after {self._chunks} chunks, before its end: the answer is cut off"
            raise odd_answer(what, url=self._url)
        if not self._chose:
            raise odd_answer("the stream ended without a choice in it", url=self._url)
        try:
            return self._assembler.response()
        except DialectError as error:
            raise self._no_answer(error) from None

    async def _take(self, event: Event, *, last: bool = False) -> None:
        """Take an event. `last`: the stream ended before the event did, so half of one is no fault of its own."""
        data = event.data.strip()
        if self._said_done or not (data or event.name == "error"):
            return
        if data == DONE.name:
            self._said_done = True
            self._assembler.add(DONE)
            return
        try:
            chunk = parse_json(data)
        except ValueError:
            chunk = None
        if event.name == "error":
            said = complained(data if chunk is None else chunk)
            raise odd_answer("the stream reports an error", url=self._url, complaint=said)
        if not isinstance(chunk, dict):
            if last:
                return
            raise odd_answer("the stream holds a chunk that is no JSON object", url=self._url, body=data.encode())
        if complaint := complaint_in(chunk):
            raise odd_answer("the stream reports an error", url=self._url, complaint=complaint)
        native = self._native(event.name, chunk)
        self._chunks += 1
        self._chose = self._chose or bool(native.name or chunk.get("choices"))
        try:
            delta = self._assembler.add(native)
        except DialectError as error:
            raise self._no_answer(error, data.encode()) from None
        if self._deliver is not None:
            await self._deliver(delta)
        if native.name and self._assembler.finished:  # of chat, the usage may still follow
            self._said_done = True

    def _native(self, name: str, data: Mapping[str, JSON]) -> NativeEvent:
        """The event as its dialect knows it: chat's have no name, and the others say theirs in their data, too."""
        if self._dialect.name == "chat":
            name = ""
        elif not name:
            name = str(data.get("type", ""))
        return NativeEvent(dialect=self._dialect.name, data=data, name=name)

    def _no_answer(self, error: DialectError, body: bytes | None = None) -> ProviderError:
        return odd_answer(f"the stream holds no {NOUNS[self._dialect.name]}: {error}", url=self._url, body=body)
