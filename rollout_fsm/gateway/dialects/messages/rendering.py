"""Writing the stream of events that answers a request in Anthropic's way: one block at a time, in order.

A call of a tool has to be an object, which shows only at its end: calls are written when the answer is whole.
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from attrs import define, evolve, field

from rollout_fsm.gateway.dialects.errors import anthropic_error
from rollout_fsm.gateway.dialects.messages.answers import WORDS, fresh_id, render_response, render_usage
from rollout_fsm.gateway.dialects.messages.blocks import NAME, render_call
from rollout_fsm.gateway.dialects.said import Said, pieces
from rollout_fsm.messages import JSON, Delta, NativeEvent, Response

_LAST = ("stop_reason", "stop_sequence", "stop_details", "container")
"""What of an answer its last events say."""


@define
class MessagesRenderer:
    """Events of an endpoint that speaks the same pass as they are, up to the one with the stop reason."""

    _model: str
    _said: Said = field(factory=Said)
    _held: list[NativeEvent] = field(factory=list)
    _begun: bool = False
    _index: int = -1
    """Of the block that was written last."""
    _open: str | None = None
    """Its type, while it is open."""

    def delta(self, delta: Delta) -> Iterable[NativeEvent]:
        """The events that say this piece."""
        event = delta.native
        if event is None or event.dialect != NAME:
            return list(self._write(evolve(delta, tool_calls=()) if delta.tool_calls else delta))
        if self._held or _ends(event):
            self._held.append(event)
            return []
        self._said.add(delta)
        self._begun = True
        self._follow(event)
        return [event]

    def end(self, response: Response) -> Iterable[NativeEvent]:
        """The rest."""
        if self._held and response.native is not None:
            yield from self._held
        elif not self._begun:
            yield from self._whole(render_response(response, model=self._model))
        else:
            yield from self._remaining(response)

    def failure(self, message: str, *, type: str, code: str | None) -> Iterable[NativeEvent]:
        """The error that ends the stream."""
        return [NativeEvent(dialect=NAME, name="error", data=anthropic_error(message, type=type, code=code))]

    def _follow(self, event: NativeEvent) -> None:
        match event.data:
            case {"type": "content_block_start", "index": int(index), "content_block": {"type": str(kind)}}:
                self._index, self._open = index, kind
            case {"type": "content_block_stop"}:
                self._open = None

    def _write(self, delta: Delta) -> Iterator[NativeEvent]:
        self._said.add(delta)
        if not self._begun:
            yield from self._start({"id": fresh_id(), "usage": render_usage(None)})
        if delta.reasoning:
            yield from self._into({"type": "thinking", "thinking": "", "signature": ""})
            yield self._piece({"type": "thinking_delta", "thinking": delta.reasoning})
        if delta.content:
            yield from self._into({"type": "text", "text": ""})
            yield self._piece({"type": "text_delta", "text": delta.content})

    def _remaining(self, response: Response) -> Iterator[NativeEvent]:
        calls = response.message.tool_calls
        for delta in self._said.rest(response):
            if not delta.tool_calls:
                yield from self._write(delta)
            for piece in delta.tool_calls:
                if piece.id:
                    yield from self._block(render_call(calls[piece.index]))
                elif self._open == "tool_use":  # the rest of one that the endpoint began
                    yield self._piece({"type": "input_json_delta", "partial_json": piece.arguments})
        yield from self._close()
        yield from self._finish(
            {"stop_reason": WORDS[response.finish_reason], "stop_sequence": None}, render_usage(response.usage)
        )

    def _whole(self, body: Mapping[str, JSON]) -> Iterator[NativeEvent]:
        """An answer that came in one piece."""
        yield from self._start(body)
        content = body["content"]
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                yield from self._block(block)
        yield from self._finish({name: body[name] for name in _LAST if name in body}, body.get("usage"))

    def _start(self, body: Mapping[str, JSON]) -> Iterator[NativeEvent]:
        self._begun = True
        empty: dict[str, JSON] = {"type": "message", "role": "assistant", "model": self._model, "content": []}
        ending: dict[str, JSON] = {"stop_reason": None, "stop_sequence": None}
        message: JSON = {**empty, **body, "content": [], **ending}
        yield self._event("message_start", message=message)

    def _finish(self, delta: JSON, usage: JSON) -> Iterator[NativeEvent]:
        yield self._event("message_delta", delta=delta, usage=usage)
        yield self._event("message_stop")

    def _block(self, block: Mapping[str, JSON]) -> Iterator[NativeEvent]:
        """A block from its start to its end."""
        match block:
            case {"type": "text", "text": str(text)}:
                empty: dict[str, JSON] = {"text": ""}
                said: list[JSON] = [{"type": "text_delta", "text": piece} for piece in pieces(text)]
            case {"type": "thinking", "thinking": str(text)}:
                empty = {"thinking": "", "signature": ""}
                said = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(text)]
                if signature := block.get("signature"):
                    said.append({"type": "signature_delta", "signature": signature})
            case {"type": "tool_use" | "server_tool_use" | "mcp_tool_use", "input": dict(given)}:
                empty = {"input": {}}
                said = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(_spelt(given))]
            case _:
                empty, said = {}, []
        yield from self._into({**block, **empty}, new=True)
        for delta in said:
            yield self._piece(delta)
        yield from self._close()

    def _into(self, block: Mapping[str, JSON], *, new: bool = False) -> Iterator[NativeEvent]:
        """Be in a block of that type: in the open one, or in one that is opened."""
        if self._open == block["type"] and not new:
            return
        yield from self._close()
        self._index += 1
        self._open = str(block["type"])
        yield self._event("content_block_start", index=self._index, content_block=dict(block))

    def _close(self) -> Iterator[NativeEvent]:
        if self._open is not None:
            self._open = None
            yield self._event("content_block_stop", index=self._index)

    def _piece(self, delta: JSON) -> NativeEvent:
        return self._event("content_block_delta", index=self._index, delta=delta)

    def _event(self, kind: str, **fields: JSON) -> NativeEvent:
        return NativeEvent(dialect=NAME, name=kind, data={"type": kind, **fields})


def _spelt(given: Mapping[str, JSON]) -> str:
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def _ends(event: NativeEvent) -> bool:
    match event.data:
        case {"type": "message_stop"}:
            return True
        case {"type": "message_delta", "delta": {"stop_reason": str()}}:
            return True
    return False
