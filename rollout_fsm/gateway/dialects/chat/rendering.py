"""Writing the stream of chunks that answers a request."""

from collections.abc import Iterable, Iterator, Mapping

from attrs import define, field

from rollout_fsm.gateway.dialects.chat.answers import fresh_id
from rollout_fsm.gateway.dialects.chat.messages import ARGUMENTS
from rollout_fsm.gateway.dialects.chat.requests import NAME
from rollout_fsm.gateway.dialects.chat.usage import render_usage
from rollout_fsm.gateway.dialects.dialect import DONE
from rollout_fsm.gateway.dialects.errors import openai_error
from rollout_fsm.gateway.dialects.said import Said
from rollout_fsm.gateway.dialects.state import state_for
from rollout_fsm.messages import JSON, Delta, Native, NativeEvent, Response, ToolCallDelta


@define
class ChatRenderer:
    """Chunks of an endpoint that speaks chat pass as they are, up to the one with the finish reason."""

    _model: str
    _created: int
    _usage: bool
    """Whether the client wants to be told the usage."""
    _said: Said = field(factory=Said)
    _held: list[NativeEvent] = field(factory=list)
    _id: str = ""
    """Empty until the stream is open."""

    def delta(self, delta: Delta) -> Iterable[NativeEvent]:
        """The chunks that say this piece."""
        event = delta.native
        if event is None or event.dialect != NAME:
            return list(self._chunks(delta))
        if self._held or _ends(event):
            self._held.append(event)
            return []
        self._said.add(delta)
        self._id = self._id or _id(event) or fresh_id()
        return [event]

    def end(self, response: Response) -> Iterable[NativeEvent]:
        """The rest, and `DONE`."""
        native = response.native
        if self._held and native is not None:
            yield from (event for event in self._held if event != DONE and (self._usage or not _is_usage(event)))
        elif not self._id and native is not None and native.dialect == NAME:
            yield from self._whole(native)
        else:
            yield from self._remaining(response)
        yield DONE

    def failure(self, message: str, *, type: str, code: str | None) -> Iterable[NativeEvent]:
        """The error that ends the stream."""
        return [NativeEvent(dialect=NAME, data=openai_error(message, type=type, param=None, code=code))]

    def _chunks(self, delta: Delta) -> Iterator[NativeEvent]:
        self._said.add(delta)
        yield from self._opening("")
        if delta.reasoning:
            yield self._chunk({"reasoning_content": delta.reasoning})
        if delta.content:
            yield self._chunk({"content": delta.content})
        for piece in delta.tool_calls:
            yield self._chunk({"tool_calls": [_call(piece)]})

    def _opening(self, id: str, content: str | None = "") -> Iterator[NativeEvent]:
        if not self._id:
            self._id = id or fresh_id()
            yield self._chunk({"role": "assistant", "content": content})

    def _remaining(self, response: Response) -> Iterator[NativeEvent]:
        message, left = response.message, self._said.rest(response)
        yield from self._opening(response.id, None if message.content is None else "")
        for delta in left:
            yield from self._chunks(delta)
        if message.reasoning_content == "":
            yield self._chunk({"reasoning_content": ""})
        if (state := list(state_for(NAME, message))) or message.provider_state == ():
            yield self._chunk({"reasoning_details": list(state)})
        yield self._chunk({}, response.finish_reason)
        if self._usage and response.usage is not None:
            yield self._event({**self._envelope([]), "usage": render_usage(response.usage)})

    def _whole(self, native: Native) -> Iterator[NativeEvent]:
        """An answer that came in one piece: a chunk with all that it says, and one that ends it."""
        beside = {name: value for name, value in native.body.items() if name not in ("choices", "usage", "object")}
        around: dict[str, JSON] = {**beside, "object": "chat.completion.chunk"}
        choices = native.body["choices"]
        said = [choice for choice in (choices if isinstance(choices, list) else ()) if isinstance(choice, dict)]
        whole: list[JSON] = [
            {**_less(choice, "message"), "delta": _as_delta(choice.get("message")), "finish_reason": None}
            for choice in said
        ]
        last: list[JSON] = [
            {"index": choice.get("index", 0), "delta": {}, "finish_reason": choice.get("finish_reason")}
            for choice in said
        ]
        yield self._event({**around, "choices": whole})
        yield self._event({**_less(around, "prompt_token_ids"), "choices": last})
        if self._usage and native.body.get("usage") is not None:
            yield self._event({**_less(around, "prompt_token_ids"), "choices": [], "usage": native.body["usage"]})

    def _chunk(self, delta: dict[str, JSON], finish: str | None = None) -> NativeEvent:
        return self._event(self._envelope([{"index": 0, "delta": delta, "finish_reason": finish}]))

    def _envelope(self, choices: list[JSON]) -> dict[str, JSON]:
        body: dict[str, JSON] = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }
        return {**body, "usage": None} if self._usage else body

    def _event(self, data: Mapping[str, JSON]) -> NativeEvent:
        return NativeEvent(dialect=NAME, data=data)


def _call(piece: ToolCallDelta) -> dict[str, JSON]:
    payload: dict[str, JSON] = {ARGUMENTS[piece.type]: piece.arguments}
    if not piece.id:
        return {"index": piece.index, piece.type: payload}
    return {"index": piece.index, "id": piece.id, "type": piece.type, piece.type: {"name": piece.name, **payload}}


def _ends(event: NativeEvent) -> bool:
    if event == DONE:
        return True
    choices = event.data.get("choices")
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") is not None for choice in choices
    )


def _is_usage(event: NativeEvent) -> bool:
    return not event.data.get("choices") and event.data.get("usage") is not None


def _id(event: NativeEvent) -> str:
    given = event.data.get("id")
    return given if isinstance(given, str) else ""


def _as_delta(message: JSON) -> JSON:
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return message
    calls = message["tool_calls"]
    assert isinstance(calls, list)
    return {
        **message,
        "tool_calls": [
            {"index": place, **call} if isinstance(call, dict) else call for place, call in enumerate(calls)
        ],
    }


def _less(body: Mapping[str, JSON], name: str) -> dict[str, JSON]:
    return {field: value for field, value in body.items() if field != name}
