"""Reading a stream of Anthropic's. Linear in what came."""

from collections.abc import Mapping
from typing import Any

from attrs import define, evolve, field

from rollout_fsm.arguments import as_object as arguments_object
from rollout_fsm.arguments import as_text
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.dialects.fields import MISSING, as_object, as_string, require_whole, shown, wrong
from rollout_fsm.gateway.dialects.growth import grow, grown
from rollout_fsm.gateway.dialects.messages.answers import parse_response
from rollout_fsm.gateway.dialects.messages.blocks import BREAK
from rollout_fsm.messages import JSON, Delta, NativeEvent, Response, ToolCallDelta


@define
class _Block:
    fields: dict[str, Any]
    json: list[str] = field(factory=list)
    """Pieces of a call's input."""
    call: int | None = None
    """Which of the calls it is."""


@define
class MessagesAssembler:
    """Folds events into the answer that they say."""

    _message: dict[str, Any] = field(factory=dict)
    _usage: dict[str, JSON] = field(factory=dict)
    _blocks: dict[int, _Block] = field(factory=dict)
    _calls: list[str] = field(factory=list)
    """The arguments of each call, once it is complete."""
    _reasoned: bool = False
    """Whether there was reasoning …"""
    _broken: bool = False
    """… in a block before this one."""
    _finished: bool = False

    @property
    def finished(self) -> bool:
        """Whether the stream has said that it is complete, by `message_stop`."""
        return self._finished

    def add(self, event: NativeEvent) -> Delta:
        """Take the next event."""
        data = event.data
        require_whole(data, "the event")
        match as_string(data.get("type", MISSING), "type", "the kind of the event"):
            case "error":
                raise DialectError(f"the stream reports an error: {shown(data.get('error'))}", param="error")
            case "message_start":
                message = as_object(data.get("message", MISSING), "message", "the message that begins")
                self._message.update(message)
                self._add_usage(message.get("usage"))
            case "content_block_start":
                return evolve(self._open(data), native=event)
            case "content_block_delta":
                return evolve(self._grow(data), native=event)
            case "content_block_stop":
                return evolve(self._close(data), native=event)
            case "message_delta":
                delta = as_object(data.get("delta", MISSING), "delta", "what the message ends with")
                beside = {name: value for name, value in data.items() if name not in ("type", "delta", "usage")}
                self._message.update({name: value for name, value in {**beside, **delta}.items() if value is not None})
                self._add_usage(data.get("usage"))
            case "message_stop":
                self._finished = True
        return Delta(native=event)

    def response(self) -> Response:
        """The answer. Raises `DialectError` when the stream broke off before it said that it was complete."""
        if not self._finished:
            raise DialectError("the stream ended early, without a message_stop: the answer is cut off")
        blocks = [grown(block.fields) for _, block in sorted(self._blocks.items())]
        response = parse_response({**self._message, "content": blocks, "usage": self._usage or None})
        calls = response.message.tool_calls
        if len(calls) != len(self._calls):
            raise DialectError("the stream ended in the midst of a block: the answer is cut off")
        said = tuple(evolve(call, arguments=text) for call, text in zip(calls, self._calls, strict=True))
        return evolve(response, message=evolve(response.message, tool_calls=said))

    def _add_usage(self, usage: JSON) -> None:
        """Counts are totals, so the later ones count; those that a later event leaves out stand."""
        if isinstance(usage, dict):
            self._usage.update({name: value for name, value in usage.items() if value is not None})

    def _open(self, data: Mapping[str, JSON]) -> Delta:
        start = as_object(data.get("content_block", MISSING), "content_block", "the block that begins")
        block = self._blocks[_index(data)] = _Block({})
        grow(block.fields, start)
        match start.get("type"):
            case "text":
                return Delta(content=_text(start, "text", "content_block"))
            case "thinking":
                self._broken = self._reasoned
                return self._reasoning(_text(start, "thinking", "content_block"))
            case "tool_use":
                block.call = sum(1 for other in self._blocks.values() if other.call is not None)
                identity = as_string(start.get("id", MISSING), "content_block.id", "the id of the call")
                name = as_string(start.get("name", MISSING), "content_block.name", "the name of the tool")
                return Delta(tool_calls=(ToolCallDelta(index=block.call, id=identity, name=name),))
        return Delta()

    def _grow(self, data: Mapping[str, JSON]) -> Delta:
        block = self._blocks.get(_index(data))
        if block is None:
            raise wrong("index", data["index"], "a block that has begun")
        delta = as_object(data.get("delta", MISSING), "delta", "a piece of the block")
        match delta.get("type"):
            case "input_json_delta":
                piece = _text(delta, "partial_json", "delta")
                block.json.append(piece)
                return Delta() if block.call is None else _arguments(block.call, piece)
            case "citations_delta":
                grow(block.fields, {"citations": [delta.get("citation")]})
                return Delta()
        grow(block.fields, {name: value for name, value in delta.items() if name != "type"})
        match delta.get("type"):
            case "text_delta":
                return Delta(content=_text(delta, "text", "delta"))
            case "thinking_delta":
                return self._reasoning(_text(delta, "thinking", "delta"))
        return Delta()

    def _close(self, data: Mapping[str, JSON]) -> Delta:
        block = self._blocks.get(_index(data))
        if block is None:
            raise wrong("index", data["index"], "a block that has begun")
        text = "".join(block.json)
        if text.strip():
            block.fields["input"] = arguments_object(text)
        if block.call is None:
            return Delta()
        if text.strip():
            self._calls.append(text)
            return Delta()
        given = grown(block.fields.get("input"))
        whole = as_text(given if isinstance(given, dict) else {})
        self._calls.append(text + whole)
        return _arguments(block.call, whole)

    def _reasoning(self, text: str) -> Delta:
        if text and self._broken:
            text, self._broken = BREAK + text, False
        self._reasoned = self._reasoned or bool(text)
        return Delta(reasoning=text)


def _arguments(call: int, piece: str) -> Delta:
    return Delta(tool_calls=(ToolCallDelta(index=call, arguments=piece),))


def _index(data: Mapping[str, JSON]) -> int:
    index = data.get("index", MISSING)
    if type(index) is not int:
        raise wrong("index", index, "the number of a block")
    return index


def _text(data: Mapping[str, JSON], name: str, where: str) -> str:
    return as_string(data.get(name, MISSING), f"{where}.{name}")
