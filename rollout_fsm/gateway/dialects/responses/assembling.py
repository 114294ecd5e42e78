"""Reading a stream of OpenAI's Responses. Its last event has the whole response, which is what counts."""

from collections.abc import Mapping

from attrs import define, evolve, field

from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.dialects.fields import MISSING, as_object, as_string, detail, require_whole, shown, wrong
from rollout_fsm.gateway.dialects.responses.answers import parse_response
from rollout_fsm.gateway.dialects.responses.items import BREAK, call_fields, is_call
from rollout_fsm.messages import JSON, Delta, NativeEvent, Response, ToolCallDelta


@define
class ResponsesAssembler:
    """Folds events into the answer that they say."""

    _whole: dict[str, JSON] | None = None
    """What the last event has."""
    _items: dict[int, JSON] = field(factory=dict)
    """Items that are done, for servers whose last event leaves them out."""
    _calls: dict[int, ToolCallDelta] = field(factory=dict)
    """The piece that began each call, by the index of its item."""
    _stretch: tuple[JSON, ...] | None = None
    """The part that reasoning came from last."""

    @property
    def finished(self) -> bool:
        """Whether the stream has said that it is complete, by its last event."""
        return self._whole is not None

    def add(self, event: NativeEvent) -> Delta:
        """Take the next event."""
        data = event.data
        require_whole(data, "the event")
        kind = as_string(data.get("type", MISSING), "type", "the kind of the event")
        if kind == "error":
            said = data.get("error") or {name: data.get(name) for name in ("code", "message") if data.get(name)}
            raise DialectError(f"the stream reports an error: {shown(said)}", param="error")
        if kind == "response.failed":
            raise DialectError(f"the response failed: {shown(detail(data, 'response', 'error'))}", param="error")
        if kind in ("response.completed", "response.incomplete"):
            self._whole = as_object(data.get("response", MISSING), "response", "the whole response")
        return evolve(self._piece(kind, data), native=event)

    def response(self) -> Response:
        """The answer. Raises `DialectError` when the stream broke off before it said that it was complete."""
        if self._whole is None:
            raise DialectError("the stream ended early, without a response.completed: the answer is cut off")
        if self._whole.get("output") or not self._items:
            return parse_response(self._whole)
        return parse_response({**self._whole, "output": [item for _, item in sorted(self._items.items())]})

    def _piece(self, kind: str, data: Mapping[str, JSON]) -> Delta:
        match kind:
            case "response.output_item.added":
                return self._added(_index(data), data)
            case "response.output_item.done":
                self._items[_index(data)] = data.get("item")
            case "response.output_text.delta" | "response.refusal.delta":
                return Delta(content=_delta(data))
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                return self._reasoning(data)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                if (begun := self._calls.get(_index(data))) is not None:
                    piece = ToolCallDelta(index=begun.index, arguments=_delta(data), type=begun.type)
                    return Delta(tool_calls=(piece,))
        return Delta()

    def _added(self, index: int, data: Mapping[str, JSON]) -> Delta:
        item = as_object(data.get("item", MISSING), "item", "the item that begins")
        if not is_call(item):
            return Delta()
        name, type_, text = call_fields(item)
        piece = ToolCallDelta(index=len(self._calls), id=str(item["call_id"]), name=name, type=type_)
        self._calls[index] = piece
        if text is None:  # its arguments are fields, which are there when it is done
            return Delta()
        given = item.get(text)
        return Delta(tool_calls=(evolve(piece, arguments=given if isinstance(given, str) else ""),))

    def _reasoning(self, data: Mapping[str, JSON]) -> Delta:
        stretch = tuple(data.get(name) for name in ("output_index", "summary_index", "content_index"))
        new = self._stretch is not None and stretch != self._stretch
        text = _delta(data)
        if text:
            self._stretch = stretch
        return Delta(reasoning=BREAK + text if new and text else text)


def _index(data: Mapping[str, JSON]) -> int:
    index = data.get("output_index", MISSING)
    if type(index) is not int:
        raise wrong("output_index", index, "the number of an item")
    return index


def _delta(data: Mapping[str, JSON]) -> str:
    return as_string(data.get("delta", MISSING), "delta", "a piece of text")
