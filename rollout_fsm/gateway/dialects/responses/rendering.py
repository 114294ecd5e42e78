"""Writing the stream of events that answers a request in the way of OpenAI's Responses.

An item is announced, grows, and is done; each event has a number. What is said here is also what the last event's
response has, item for item.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

from attrs import define, field

from rollout_fsm.gateway.dialects.errors import openai_error
from rollout_fsm.gateway.dialects.responses.answers import (
    call_item,
    finished,
    fresh_id,
    new_item,
    opening,
    render_response,
    text_part,
)
from rollout_fsm.gateway.dialects.responses.content import NAME
from rollout_fsm.gateway.dialects.said import Said, pieces
from rollout_fsm.messages import JSON, Delta, NativeEvent, Request, Response, ToolCall, ToolCallDelta

LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""The events that end a stream."""


@define
class _Growth:
    """Where the text of an item grows: in a part of it, or in a field."""

    name: str
    """What events call it: `response.{name}.delta`."""
    field: str
    """What the text is called when it is done."""
    part: dict[str, JSON] | None
    """The part, empty; None where the item has none."""

    @property
    def deltas(self) -> set[str]:
        """The events that have it grow; those of an endpoint may have a summary of reasoning grow in its place."""
        summary = {"response.reasoning_summary_text.delta"} if self.name == "reasoning_text" else set()
        return {f"response.{self.name}.delta"} | summary


_GROWTHS: Mapping[str, _Growth] = {
    "message": _Growth("output_text", "text", text_part("")),
    "reasoning": _Growth("reasoning_text", "text", {"type": "reasoning_text", "text": ""}),
    "function_call": _Growth("function_call_arguments", "arguments", None),
    "custom_tool_call": _Growth("custom_tool_call_input", "input", None),
}


@define
class _Item:
    """An item that is being written."""

    index: int
    fields: dict[str, Any]
    call: int | None = None
    """Which of the answer's calls it is."""
    text: list[str] = field(factory=list)

    @property
    def growth(self) -> _Growth:
        return _GROWTHS[str(self.fields["type"])]

    def whole(self) -> dict[str, Any]:
        """The item as it is when it is done."""
        text = "".join(self.text)
        if self.growth.part is None:
            return {**self.fields, self.growth.field: text, "status": "completed"}
        return {**self.fields, "content": [{**self.growth.part, "text": text}], "status": "completed"}


@define
class ResponsesRenderer:
    """Events of an endpoint that speaks the same pass as they are, up to the one that has the whole response."""

    _request: Request
    _model: str
    _created: int
    _said: Said = field(factory=Said)
    _held: list[NativeEvent] = field(factory=list)
    _body: dict[str, JSON] | None = None
    """The answer as it was opened; None before."""
    _number: int = 0
    """Of the next event."""
    _items: dict[int, dict[str, Any]] = field(factory=dict)
    """What is done."""
    _open: list[_Item] = field(factory=list)
    """What is being written."""

    def delta(self, delta: Delta) -> Iterable[NativeEvent]:
        """The events that say this piece."""
        event = delta.native
        if event is None or event.dialect != NAME:
            return list(self._write(delta))
        if self._held or event.data.get("type") in LAST:
            self._held.append(event)
            return []
        self._said.add(delta)
        self._follow(event, delta)
        return [event]

    def end(self, response: Response) -> Iterable[NativeEvent]:
        """The rest."""
        if self._held and response.native is not None:
            yield from self._held
        elif self._body is None:
            body = render_response(response, request=self._request, model=self._model, created=self._created)
            yield from self._whole(body)
        else:
            for delta in self._said.rest(response):
                yield from self._write(delta)
            for item in list(self._open):
                yield from self._done(item)
            items: list[JSON] = [item for _, item in sorted(self._items.items())]
            yield from self._last(finished(self._body, response, items))

    def failure(self, message: str, *, type: str, code: str | None) -> Iterable[NativeEvent]:
        """The error that ends the stream: fields as the API has them, and an object that clients raise."""
        said: dict[str, JSON] = {"code": code or type, "message": message, "param": None}
        return [self._event("error", **said, **openai_error(message, type=type, param=None, code=code))]

    # Typed pieces

    def _write(self, delta: Delta) -> Iterator[NativeEvent]:
        self._said.add(delta)
        if self._body is None:
            body = opening(self._request, id=fresh_id("resp"), model=self._model, created=self._created)
            yield from self._begin(body)
        if delta.reasoning:
            yield from self._grow("reasoning", delta.reasoning)
        if delta.content:
            yield from self._grow("message", delta.content)
        for piece in delta.tool_calls:
            yield from self._call(piece)

    def _grow(self, kind: str, text: str) -> Iterator[NativeEvent]:
        item = self._open[-1] if self._open else None
        if item is None or item.fields["type"] != kind:
            for before in [item for item in self._open if item.call is None]:
                yield from self._done(before)
            item = yield from self._announce({**new_item(kind, content=[]), "status": "in_progress"})
        yield self._piece(item, text)

    def _call(self, piece: ToolCallDelta) -> Iterator[NativeEvent]:
        """Calls stay open to the end: their pieces may come in turns."""
        item = next((item for item in self._open if item.call == piece.index), None)
        if item is None:
            for before in [item for item in self._open if item.call is None]:
                yield from self._done(before)
            call = ToolCall(id=piece.id, name=piece.name, arguments="", type=piece.type)
            item = yield from self._announce({**call_item(call), "status": "in_progress"}, call=piece.index)
        if piece.arguments:
            yield self._piece(item, piece.arguments)

    def _announce(self, fields: dict[str, Any], *, call: int | None = None) -> Generator[NativeEvent, None, _Item]:
        item = _Item(self._next(), fields, call)
        self._open.append(item)
        yield self._event("response.output_item.added", output_index=item.index, item=fields)
        if (part := item.growth.part) is not None:
            yield self._event("response.content_part.added", **_at(item), content_index=0, part=part)
        return item

    def _piece(self, item: _Item, text: str) -> NativeEvent:
        item.text.append(text)
        return self._event(f"response.{item.growth.name}.delta", **_at(item), **_place(item), delta=text, **_more(item))

    def _done(self, item: _Item) -> Iterator[NativeEvent]:
        self._open.remove(item)
        whole = self._items[item.index] = item.whole()
        text, growth = "".join(item.text), item.growth
        named = {"name": whole["name"]} if growth.name == "function_call_arguments" else {}
        said = {growth.field: text}
        yield self._event(f"response.{growth.name}.done", **_at(item), **_place(item), **said, **named, **_more(item))
        if growth.part is not None:
            part = whole["content"][0]
            yield self._event("response.content_part.done", **_at(item), content_index=0, part=part)
        yield self._event("response.output_item.done", output_index=item.index, item=whole)

    def _next(self) -> int:
        return max([*self._items, *(item.index for item in self._open)], default=-1) + 1

    # Events of the endpoint

    def _follow(self, event: NativeEvent, delta: Delta) -> None:
        """Keep up with what the endpoint writes, should it fall to this renderer to write the rest."""
        data: Mapping[str, Any] = event.data
        number = data.get("sequence_number")
        self._number = number + 1 if isinstance(number, int) else self._number + 1
        match data:
            case {"type": "response.created", "response": dict(body)}:
                self._body = dict(body)
            case {"type": "response.output_item.added", "output_index": int(index), "item": dict(item)}:
                if str(item.get("type")) in _GROWTHS:
                    call = delta.tool_calls[0].index if delta.tool_calls else None
                    self._open.append(_Item(index, dict(item), call))
            case {"type": "response.output_item.done", "output_index": int(index), "item": dict(item)}:
                self._items[index] = item
                self._open = [other for other in self._open if other.index != index]
            case {"type": str(kind), "output_index": int(index), "delta": str(text)}:
                for growing in self._open:
                    if growing.index == index and kind in growing.growth.deltas:
                        growing.text.append(text)
        if self._body is None:
            self._body = opening(self._request, id=fresh_id("resp"), model=self._model, created=self._created)

    # An answer that came in one piece

    def _whole(self, body: Mapping[str, JSON]) -> Iterator[NativeEvent]:
        output = body["output"]
        begun: dict[str, JSON] = {"output": [], "usage": None, "status": "in_progress", "incomplete_details": None}
        yield from self._begin({**body, **begun})
        for index, item in enumerate(output if isinstance(output, list) else ()):
            if isinstance(item, dict):
                yield from self._item(index, item)
        yield from self._last(body)

    def _item(self, index: int, item: dict[str, Any]) -> Iterator[NativeEvent]:
        at = {"item_id": item.get("id"), "output_index": index}
        kind = str(item.get("type"))
        growth = _GROWTHS.get(kind)
        growing = {"content", "summary"} if kind in ("message", "reasoning") else {growth.field} if growth else set()
        empty = {
            name: [] if isinstance(value, list) else "" for name, value in item.items() if name in growing and value
        }
        yield self._event("response.output_item.added", output_index=index, item={**item, **empty})
        if growth is not None and growth.part is None:
            text = str(item.get(growth.field) or "")
            for piece in pieces(text):
                yield self._event(f"response.{growth.name}.delta", **at, delta=piece)
            named = {"name": item.get("name")} if kind == "function_call" else {}
            yield self._event(f"response.{growth.name}.done", **at, **{growth.field: text}, **named)
        elif growth is not None:
            for place, part in enumerate(item.get("summary") or ()):
                yield from self._part(part, {**at, "summary_index": place}, "reasoning_summary_part")
            for place, part in enumerate(item.get("content") or ()):
                yield from self._part(part, {**at, "content_index": place}, "content_part")
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _part(self, part: dict[str, Any], at: dict[str, Any], kind: str) -> Iterator[NativeEvent]:
        names = {
            "output_text": "output_text",
            "refusal": "refusal",
            "summary_text": "reasoning_summary_text",
            "reasoning_text": "reasoning_text",
        }
        name = names.get(str(part.get("type")))
        field = "refusal" if name == "refusal" else "text"
        yield self._event(f"response.{kind}.added", **at, part={**part, field: ""} if name else part)
        if name is not None:
            text = str(part.get(field) or "")
            logprobs: dict[str, JSON] = {"logprobs": []} if name == "output_text" else {}
            for piece in pieces(text):
                yield self._event(f"response.{name}.delta", **at, delta=piece, **logprobs)
            yield self._event(f"response.{name}.done", **at, **{field: text}, **logprobs)
        yield self._event(f"response.{kind}.done", **at, part=part)

    def _begin(self, body: dict[str, JSON]) -> Iterator[NativeEvent]:
        self._body = body
        yield self._event("response.created", response=body)
        yield self._event("response.in_progress", response=body)

    def _last(self, body: Mapping[str, JSON]) -> Iterator[NativeEvent]:
        kind = "response.incomplete" if body.get("status") == "incomplete" else "response.completed"
        yield self._event(kind, response=dict(body))

    def _event(self, kind: str, **fields: Any) -> NativeEvent:
        number, self._number = self._number, self._number + 1
        return NativeEvent(dialect=NAME, name=kind, data={"type": kind, "sequence_number": number, **fields})


def _at(item: _Item) -> dict[str, Any]:
    return {"item_id": item.fields.get("id"), "output_index": item.index}


def _place(item: _Item) -> dict[str, Any]:
    return {} if item.growth.part is None else {"content_index": 0}


def _more(item: _Item) -> dict[str, Any]:
    return {"logprobs": []} if item.growth.name == "output_text" else {}
