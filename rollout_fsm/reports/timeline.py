"""One rollout from beginning to end: transitions, messages and model calls, in the order in which they happened.

Records of text, times in seconds since the rollout was minted; no screen. The text is what the trace says, unaltered:
whoever shows it makes it harmless and short.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from attrs import frozen

from rollout_fsm.graph import MessageNode
from rollout_fsm.machine import Declaration
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.messages import AssistantMessage, ToolMessage
from rollout_fsm.trace import ModelCall, Trace

__all__ = ["Moment", "timeline"]

Kind = Literal["transition", "message", "reply", "tool", "failed call"]


@frozen(kw_only=True)
class Moment:
    """Something that happened, `at` seconds after the rollout was minted."""

    at: float
    kind: Kind
    who: str
    """A transition's trigger, a message's role, a failed call's error type."""
    text: str
    note: str = ""
    """What else is known: a transition's reason, what a reply took and used, where a branch begins."""


def timeline(trace: Trace, declaration: Declaration | None = None) -> list[Moment]:
    """Everything that happened, in order.

    Messages bear the time of their commit. Where that is the time of a transition too, the message was there before
    the segment was left, and after it was entered.
    """
    machine = declaration or lifecycle().declaration
    segments = {state.name for state in machine.states.values() if state.activity == "segment"}
    said = sorted(_said(trace), key=lambda moment: moment.at)
    moments: list[Moment] = []
    for taken in trace.transitions:
        at = taken.time - trace.timing.start
        while said and (said[0].at < at or (said[0].at == at and taken.source in segments)):
            moments.append(said.pop(0))
        text = f"{taken.source} → {taken.target}"
        moments.append(Moment(at=at, kind="transition", who=taken.trigger, text=text, note=taken.reason or ""))
    return moments + said


def _said(trace: Trace) -> Iterator[Moment]:
    start = trace.timing.start
    calls = {call.node: call for call in trace.calls if call.node is not None}
    for index, node in enumerate(trace.nodes):
        yield _message(index, node, calls.get(index), trace.nodes, start)
    for call in trace.calls:
        if call.error is not None:
            at = call.time.start if call.time.end is None else call.time.end
            yield Moment(
                at=at - start, kind="failed call", who=call.error.type, text=call.error.message, note=_took(call)
            )


def _message(
    index: int, node: MessageNode, call: ModelCall | None, nodes: Sequence[MessageNode], start: float
) -> Moment:
    message = node.message
    notes = [] if call is None else [_took(call)]
    if node.parent != (index - 1 if index else None):
        notes.append("a new conversation" if node.parent is None else f"goes on from message {node.parent}")
    text = message.text
    kind: Kind = "reply" if node.sampled else "message"
    if isinstance(message, AssistantMessage):
        asked = [f"{call.name}({call.arguments})" for call in message.tool_calls]
        text = "  ".join(part for part in (text, *asked) if part)
        if message.reasoning_content and not text:
            notes.append("hidden reasoning only")
    elif isinstance(message, ToolMessage):
        kind = "tool"
        if name := message.name or _called(message, node, nodes):
            notes.append(name)
    who = (
        message.role
        if node.sampled or not isinstance(message, AssistantMessage)
        else "assistant (not from this rollout)"
    )
    return Moment(
        at=node.timestamp - start, kind=kind, who=who, text=text, note=", ".join(note for note in notes if note)
    )


def _called(message: ToolMessage, node: MessageNode, nodes: Sequence[MessageNode]) -> str | None:
    """The name of the tool that a result answers, found on the way back to the call."""
    parent = node.parent
    while parent is not None:
        earlier = nodes[parent]
        if isinstance(earlier.message, AssistantMessage):
            for call in earlier.message.tool_calls:
                if call.id == message.tool_call_id:
                    return call.name
        parent = earlier.parent
    return None


def _took(call: ModelCall) -> str:
    took = call.time.duration
    parts = [] if call.time.end is None else [f"{took * 1000:.0f} ms" if took < 1 else f"{took:.1f} s"]
    if call.usage is not None:
        parts.append(f"{call.usage.input_tokens}+{call.usage.completion_tokens} tokens")
    if call.finish_reason == "length":
        parts.append("cut off at its length")
    return ", ".join(parts)
