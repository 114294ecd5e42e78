"""What of an answer a stream has said, and what is left to say of it."""

from collections.abc import Iterator, Sequence

from attrs import define, field

from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.messages import Delta, Response, ToolCall, ToolCallDelta

PIECES = 4
"""In how many deltas a stream carries a text that is known whole."""


@define
class _Call:
    id: str
    name: str
    arguments: list[str] = field(factory=list)


@define
class Said:
    """Adds up the pieces of a stream. Linear in what was said."""

    _content: list[str] = field(factory=list)
    _reasoning: list[str] = field(factory=list)
    _calls: dict[int, _Call] = field(factory=dict)

    def add(self, delta: Delta) -> None:
        """Take a piece that is being said."""
        if delta.content:
            self._content.append(delta.content)
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
        for piece in delta.tool_calls:
            call = self._calls.get(piece.index)
            if call is None:
                call = self._calls[piece.index] = _Call(piece.id, piece.name)
            call.name = call.name or piece.name
            call.arguments.append(piece.arguments)

    def rest(self, response: Response) -> list[Delta]:
        """The pieces that are left. Raises `DialectError` where the stream has said what the response does not."""
        message = response.message
        whole = message.reasoning_content or ""
        start = "".join(self._reasoning)
        reasoning = whole[len(start) :] if whole.startswith(start) else ""  # what was said of it may stand as it is
        content = _left(self._content, message.content or "", "text")
        left = [Delta(reasoning=piece) for piece in pieces(reasoning)]
        left += [Delta(content=piece) for piece in pieces(content)]
        if len(self._calls) > len(message.tool_calls):
            raise _otherwise("tool calls")
        for index, call in enumerate(message.tool_calls):
            left += [Delta(tool_calls=(piece,)) for piece in self._rest_of(index, call)]
        return left

    def _rest_of(self, index: int, call: ToolCall) -> Iterator[ToolCallDelta]:
        said = self._calls.get(index)
        if said is None:
            yield ToolCallDelta(index=index, id=call.id, name=call.name, type=call.type)
        elif (said.id, said.name) != (call.id, call.name):
            raise _otherwise("tool calls")
        arguments = _left([] if said is None else said.arguments, call.arguments, "arguments of a tool call")
        for piece in pieces(arguments):
            yield ToolCallDelta(index=index, arguments=piece, type=call.type)


def pieces(text: str) -> Sequence[str]:
    """A text in a few pieces; none of no text."""
    size = max(-(-len(text) // PIECES), 1)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _left(said: list[str], whole: str, what: str) -> str:
    start = "".join(said)
    if not whole.startswith(start):
        raise _otherwise(what)
    return whole[len(start) :]


def _otherwise(what: str) -> DialectError:
    return DialectError(f"the stream has said other {what} than the answer has: it cannot be taken back")
