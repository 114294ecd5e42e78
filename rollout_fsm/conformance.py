"""Does a trace tell one consistent story, and one that the declared machine could have lived (L83)?

`check_trace` compares a finished trace with the declaration and with itself: path, outcome, stop condition, spans,
times, signals, graph. It reads records only, so it holds for a trace from a file as for one from memory. What a
rollout *should* have done is not asked here: that is for scenarios.
"""

import math
from collections.abc import Iterator, Sequence

from rollout_fsm.machine import Declaration
from rollout_fsm.machine.conformance import Step, may_set, replay
from rollout_fsm.machine.endings import is_graded
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.machine.vocabulary import GIVEN, SPANS
from rollout_fsm.trace import Span, Trace

__all__ = ["check_trace"]

CLOSE = 1e-6
"""Seconds within which two times are the same."""


def check_trace(trace: Trace, declaration: Declaration | None = None) -> list[str]:
    """What is wrong with a finished trace; nothing, if it conforms.

    The transitions are a legal path to a final state; `is_completed`, `ok`, `errors`, the stop condition and the ending
    are what that path may end with; every span that began is closed, in order, and covers the states that belong to it;
    nothing happened after the end; no signal that did not run has a number; the message graph and its calls belong
    together. Every fault is found.
    """
    machine = declaration or lifecycle().declaration
    path = [(taken.trigger, taken.source, taken.target) for taken in trace.transitions]
    return [
        *replay(machine, path),
        *_outcome(trace, machine, path),
        *_ending(trace, machine, path),
        *_times(trace),
        *_spans(trace, machine),
        *_exchange(trace, _segments(trace, machine)),
        *_signals(trace, path),
        *_graph(trace),
    ]


def _outcome(trace: Trace, machine: Declaration, path: Sequence[Step]) -> Iterator[str]:
    """Flags, errors and stop condition against the state that the path ends in (L52, L56, L83)."""
    name = path[-1][2] if path else machine.initial.name
    state = machine.states.get(name)
    if state is None:
        return
    final, good = state.kind == "final", state.kind == "final" and state.group == "closing"
    if trace.is_completed != final:
        yield f"is_completed is {_said(trace.is_completed)}, and the path ends in {name!r}, which is {state.kind}"
    if trace.ok != good:
        yield f"ok is {_said(trace.ok)}, and the path ends in {name!r}"
    if good and trace.errors:
        yield f"the path ends in {name!r}, and there are {len(trace.errors)} errors, first a {trace.errors[0].type}"
    if final and state.group == "failure" and not trace.errors:
        yield f"the path ends in {name!r}, and no error says why"
    if trace.stop_condition in ("", GIVEN):
        yield f"stop_condition is {trace.stop_condition!r}, which is no name"
    elif not may_set(machine, path, trace.stop_condition):
        yield f"stop_condition is {trace.stop_condition!r}, which no row of the path sets"


def _ending(trace: Trace, machine: Declaration, path: Sequence[Step]) -> Iterator[str]:
    """What holds of an ending whatever table it came from; a trace need not have one."""
    ending, state = trace.ending, machine.states.get(path[-1][2] if path else machine.initial.name)
    if ending is None or state is None:
        return
    if state.kind != "final":
        yield f"ending is {ending.name!r}, and the path ends in {state.name!r}, which is {state.kind}"
    if ending.graded != (state.kind == "final" and is_graded(machine, state.name)):
        yield f"ending.graded is {_said(ending.graded)}, and the path ends in {state.name!r}"
    if ending.counts and not ending.graded:
        yield "ending.counts is true, and the rollout was not graded"
    if ending.counts and trace.reward is None:
        yield "ending.counts is true, and there is no reward"
    if ending.retryable and state.group == "cancellation":
        yield f"ending.retryable is true, and the path ends in {state.name!r}"


def _times(trace: Trace) -> Iterator[str]:
    """Transitions in the order of time, from the minting on."""
    before, what = trace.timing.start, "the rollout was minted"
    for number, taken in enumerate(trace.transitions, 1):
        if taken.time < before - CLOSE:
            yield f"transition {number} ({taken.trigger}) is {before - taken.time:g} s before {what}"
        before, what = taken.time, "the one before"


def _spans(trace: Trace, machine: Declaration) -> Iterator[str]:
    """Each span is closed and covers exactly the time in the states that belong to it (L80)."""
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    for taken in trace.transitions:
        left, entered = (_span_of(machine, name) for name in (taken.source, taken.target))
        if left == entered:
            continue
        if left is not None:
            ended[left] = taken.time
        if entered is not None:
            began.setdefault(entered, taken.time)
    for name in SPANS:
        span: Span | None = getattr(trace.timing, name)
        if span is None:
            if name in began:
                yield f"timing.{name} is missing, and the path went through states of it"
        elif name not in began:
            yield f"timing.{name} is there, and the path never went through a state of it"
        elif span.end is None:
            yield f"timing.{name} is open"
        else:
            if span.end < span.start - CLOSE:
                yield f"timing.{name} ends {span.start - span.end:g} s before it starts"
            for edge, at, expected in (("starts", span.start, began[name]), ("ends", span.end, ended.get(name))):
                if expected is not None and abs(at - expected) > CLOSE:
                    yield f"timing.{name} {edge} at {at:f}, and the transition that {edge} it was at {expected:f}"
    yield from _split(trace)


def _split(trace: Trace) -> Iterator[str]:
    agent = trace.timing.agent
    if agent is None or agent.end is None:
        return
    model, harness = agent.model.duration, agent.harness.duration
    if min(model, harness) < -CLOSE or abs(model + harness - agent.duration) > CLOSE * max(1.0, agent.duration):
        yield (
            f"timing.agent lasted {agent.duration:g} s, and its shares are {model:g} s (model) and {harness:g} s "
            f"(harness); together they are the span"
        )


def _segments(trace: Trace, machine: Declaration) -> list[tuple[float, float]]:
    """When a segment ran: from where it began to where it ended, in epoch seconds."""
    found: list[tuple[float, float]] = []
    began: float | None = None
    for taken in trace.transitions:
        state = machine.states.get(taken.target)
        runs = state is not None and state.activity == "segment"
        if runs and began is None:
            began = taken.time
        elif not runs and began is not None:
            found.append((began, taken.time))
            began = None
    return found


def _exchange(trace: Trace, segments: Sequence[tuple[float, float]]) -> Iterator[str]:
    """Messages and model calls belong to a segment, so none can come between two or after the end (L24, L58)."""
    agent = trace.timing.agent
    events = [(f"nodes[{index}]", node.timestamp, node.timestamp) for index, node in enumerate(trace.nodes)]
    for index, call in enumerate(trace.calls):
        if call.time.end is None:
            yield f"calls[{index}] is open"
        elif call.time.end < call.time.start - CLOSE:
            yield f"calls[{index}] ends {call.time.start - call.time.end:g} s before it starts"
        events.append((f"calls[{index}]", call.time.start, call.time.start if call.time.end is None else call.time.end))
    for what, start, end in events:
        if agent is None:
            yield f"{what} is there, and there was no exchange"
        elif start < agent.start - CLOSE:
            yield f"{what} is {agent.start - start:g} s before the exchange began"
        elif agent.end is not None and end > agent.end + CLOSE:
            yield f"{what} is {end - agent.end:g} s after the exchange ended"
        elif not any(began - CLOSE <= start and end <= ended + CLOSE for began, ended in segments):
            yield f"{what} is in no segment: no call is admitted while none runs"


def _signals(trace: Trace, path: Sequence[Step]) -> Iterator[str]:
    """A signal that did not run has no number; a number that is there is finite (L52, L60, L61)."""
    scored = any(target == "scoring" for _, _, target in path)
    values: dict[str, list[float]] = {
        f"rewards.{name}": [r.score, r.weight] for name, r in trace.rewards.items() if r is not None
    }
    values |= {f"metrics.{name}": [number] for name, number in trace.metrics.items() if number is not None}
    for name, numbers in values.items():
        if not scored:
            yield f"{name} is {numbers[0]:g}, and the rollout was never scored"
        elif not all(math.isfinite(number) for number in numbers):
            yield f"{name} is {numbers[0]!r}; a measured number is finite"


def _graph(trace: Trace) -> Iterator[str]:
    """Parents come before their children, and replies and the calls that committed them belong together (L81, L82)."""
    replies = [index for index, node in enumerate(trace.nodes) if node.sampled]
    for index, node in enumerate(trace.nodes):
        if node.parent is not None and not 0 <= node.parent < index:
            yield f"nodes[{index}].parent is {node.parent}, which is no node before it"
    if trace.num_turns != len(replies):
        yield f"num_turns is {trace.num_turns}, and {len(replies)} replies are in the graph"
    committed: list[int] = []
    for index, call in enumerate(trace.calls):
        if call.node is not None:
            committed.append(call.node)
            if call.node not in replies:
                yield f"calls[{index}].node is {call.node}, which is no reply"
    for reply in replies:
        if (calls := committed.count(reply)) != 1:
            yield f"nodes[{reply}] is a reply, and {calls} calls committed it"


def _span_of(machine: Declaration, name: str) -> str | None:
    state = machine.states.get(name)
    return None if state is None else state.span


def _said(flag: bool) -> str:
    return "true" if flag else "false"
