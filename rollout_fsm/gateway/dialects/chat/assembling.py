"""Reading a stream of chunks. Only the first choice is read. Linear in what came."""

from collections.abc import Mapping
from typing import Any

from attrs import define, evolve, field

from rollout_fsm.gateway.dialects.chat.answers import parse_response
from rollout_fsm.gateway.dialects.chat.messages import ARGUMENTS, arguments_of, fresh_call_id, kind_of, reasoning_of
from rollout_fsm.gateway.dialects.dialect import DONE, DialectError
from rollout_fsm.gateway.dialects.fields import as_list, as_object, get_list, get_string, require_whole, shown
from rollout_fsm.gateway.dialects.growth import grow, grown
from rollout_fsm.messages import JSON, Delta, NativeEvent, Response, ToolCallDelta


@define
class ChatAssembler:
    """Folds chunks into the answer that they say."""

    _top: dict[str, JSON] = field(factory=dict)
    """What the chunks say beside their choices."""
    _choice: dict[str, Any] = field(factory=dict)
    """What the choice says beside its message …"""
    _message: dict[str, Any] = field(factory=dict)
    """… and in it, but for the tool calls."""
    _calls: list[dict[str, Any]] = field(factory=list)
    _by_index: dict[int, int] = field(factory=dict)
    """Where in the calls the one with an index of the server's is."""
    _invented: set[int] = field(factory=set)
    """The calls that came without an id."""
    _finished: bool = False

    @property
    def finished(self) -> bool:
        """Whether the stream has said that it is complete, by a finish reason or by `[DONE]`."""
        return self._finished

    def add(self, event: NativeEvent) -> Delta:
        """Take the next chunk, or `DONE`."""
        if event == DONE:
            self._finished = True
            return Delta(native=event)
        chunk = event.data
        require_whole(chunk, "the chunk")
        if chunk.get("error"):
            raise DialectError(f"the stream reports an error: {shown(chunk['error'])}", param="error")
        self._top.update({name: value for name, value in chunk.items() if value is not None and name != "choices"})
        choices = as_list(chunk.get("choices") or [], "choices", "a list of choices")
        for place, raw in enumerate(choices):
            where = f"choices[{place}]"
            choice = as_object(raw, where, "an object with a `delta`")
            if choice.get("index", 0) == 0:
                return self._take(event, choice, where)
        return Delta(native=event)

    def response(self) -> Response:
        """The answer. Raises `DialectError` when the stream broke off before it said that it was complete."""
        if not self._finished:
            raise DialectError("the stream ended early, without a finish_reason or [DONE]: the answer is cut off")
        message: dict[str, JSON] = {"role": "assistant", "content": None}
        message |= {name: grown(value) for name, value in self._message.items()}
        if self._calls:
            message["tool_calls"] = [grown(call) for call in self._calls]
        choice: dict[str, JSON] = {"index": 0, "message": message, "finish_reason": None}
        choice |= {name: grown(value) for name, value in self._choice.items()}
        return parse_response({**self._top, "object": "chat.completion", "choices": [choice]})

    def _take(self, event: NativeEvent, choice: Mapping[str, JSON], where: str) -> Delta:
        inner = f"{where}.delta"
        said = as_object(choice.get("delta") or {}, inner, "an object")
        content = get_string(said, "content", inner)
        reasoning = reasoning_of(said, inner)
        get_string(said, "refusal", inner)
        grow(self._message, {name: value for name, value in said.items() if name != "tool_calls"})
        grow(self._choice, {name: value for name, value in choice.items() if name not in ("delta", "index")})
        self._finished = self._finished or choice.get("finish_reason") is not None
        named: dict[int, str] = {}
        pieces = tuple(
            self._call(raw, f"{inner}.tool_calls[{place}]", place, named)
            for place, raw in enumerate(get_list(said, "tool_calls", inner, "a list"))
        )
        return Delta(
            content=content or "",
            reasoning=reasoning or "",
            tool_calls=pieces,
            native=_with_ids(event, named) if named else event,
        )

    def _call(self, raw: JSON, where: str, place: int, named: dict[int, str]) -> ToolCallDelta:
        """Take a piece of a call; `named` notes the id that it is given if it has to be."""
        piece = as_object(raw, where, "an object")
        identity = get_string(piece, "id", where) or ""
        at = self._place(piece.get("index"), identity)
        first = at == len(self._calls)
        if first:
            self._calls.append({})
            if not identity:
                identity = named[place] = fresh_call_id()
                self._invented.add(at)
        call = self._calls[at]
        kind = kind_of(piece.get("type") or call.get("type"), f"{where}.type")
        payload = piece.get(kind)
        fields = as_object(payload, f"{where}.{kind}", "an object") if payload is not None else {}
        name = get_string(fields, "name", f"{where}.{kind}") or ""
        told = bool(call.get(kind, {}).get("name"))
        text = arguments_of(fields.get(ARGUMENTS[kind]), f"{where}.{kind}.{ARGUMENTS[kind]}")
        more: dict[str, JSON] = {key: value for key, value in piece.items() if key != "index"}
        if payload is not None:
            more[kind] = {**fields, ARGUMENTS[kind]: text}
        grow(call, {**more, "type": kind, "id": call.get("id") or identity})
        return ToolCallDelta(
            index=at,
            id=identity if first else "",
            name="" if told else name,
            arguments=text,
            type=kind,
        )

    def _place(self, index: JSON, identity: str) -> int:
        """Which call a piece belongs to. Some servers give no index, or 0 to every call: then a new id tells."""
        new = len(self._calls)
        at = self._by_index.get(index, new) if isinstance(index, int) else new - 1 if new else new
        had = self._calls[at].get("id") if at < new else ""
        if had and identity and identity != had and at not in self._invented:
            at = new
        if isinstance(index, int):
            self._by_index[index] = at
        return at


def _with_ids(event: NativeEvent, named: Mapping[int, str]) -> NativeEvent:
    """The event with the ids that its calls were given: who answers a call must name it as the trace does."""
    choices = as_list(event.data["choices"], "choices", "a list")
    written: list[JSON] = []
    for choice in choices:
        if not isinstance(choice, dict) or choice.get("index", 0) != 0:
            written.append(choice)
            continue
        said = as_object(choice["delta"], "delta", "an object")
        calls = as_list(said["tool_calls"], "tool_calls", "a list")
        given = [
            {**call, "id": named[place]} if place in named and isinstance(call, dict) else call
            for place, call in enumerate(calls)
        ]
        written.append({**choice, "delta": {**said, "tool_calls": given}})
    return evolve(event, data={**event.data, "choices": written})
