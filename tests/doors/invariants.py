"""How what came is compared with what the rules say, and what holds whatever happens at whichever door."""

from collections.abc import Iterator, Sequence

from rollout_fsm import Trace, check_trace
from rollout_fsm.trace_json import trace_from_json, trace_to_json
from tests.doors.doors import DOORS, NO_DOORS
from tests.doors.played import Played
from tests.doors.rules import SIGNALS, Expected, Said, are

PLACES = {"metric.harness": "its_own", "metric.task": "measured", "reward": "good", "judge.score": "judge"}
"""The name under which each signal's number stands."""
UNCALLED = tuple(part.replace("Runtime.", "runtime.") for part in NO_DOORS if part.startswith("Runtime."))


def differences(played: Played, want: Expected) -> list[str]:
    """Everything in which it is not what the rules say."""
    return [*_outcome(played, want), *(_trace(played.house.trace, want) if played.house.trace else ())]


def _outcome(played: Played, want: Expected) -> Iterator[str]:
    house = played.house
    if (house.trace is not None) is not want.minted:
        yield f"a trace was {'not ' if want.minted else ''}minted"
    for name in ("raised", "left_by", "seconds"):
        if (came := getattr(played, name)) != (right := getattr(want, name)):
            yield f"{name}: {right!r} is right, {came!r} came"
    steps = [step for step in house.began if not step.endswith(".leave")]
    if by_kind(steps) not in [by_kind(way) for way in want.calls]:
        yield f"steps: {' | '.join(' '.join(way) for way in want.calls)} is right, {' '.join(steps)} came"
    yield from _said("log", played.log, want.log)


def _trace(trace: Trace, want: Expected) -> Iterator[str]:
    state = trace.transitions[-1].target if trace.transitions else "created"
    if state != want.state:
        yield f"state: {want.state} is right, {state} came"
    if trace.stop_condition != want.stop:
        yield f"stop condition: {want.stop!r} is right, {trace.stop_condition!r} came"
    yield from _said("errors", [(error.type, error.message) for error in trace.errors], want.errors)
    yield from _said("warnings", [(warning.kind, warning.message) for warning in trace.warnings], want.warnings)
    values = {**trace.rewards, **trace.metrics}
    yield from (f"{name} was not measured" for name in want.measured if values.get(PLACES[name]) is None)
    yield from (f"{name} was measured" for name in want.unmeasured if values.get(PLACES[name], 0.0) is not None)
    if values and all(taken.target != "scoring" for taken in trace.transitions):
        yield f"{values} in a run that never came to scoring"


def _said(where: str, came: Sequence[tuple[str, str]], right: Sequence[Said]) -> Iterator[str]:
    if not are(came, right):
        yield f"{where}: {[(said.type, *said.parts) for said in right]} is right, {list(came)} came"


def by_kind(steps: Sequence[str]) -> list[str]:
    """The steps, with signals that run side by side in one order."""
    together = set(SIGNALS[0])
    beside = iter(sorted(step for step in steps if step in together))
    return [next(beside) if step in together else step for step in steps]


# ---- always


def broken_invariants(played: Played) -> list[str]:
    """What may be in no outcome, whatever the rules say of this one."""
    found = [*_released(played), *_nothing_left(played), *_disturbed(played), *_kept(played)]
    if played.house.trace is not None:
        found += _sealed(played.house.trace, played)
    if played.door.of and played.door.name not in played.house.looked:
        found.append("the door was never gone through")
    return found


def _released(played: Played) -> Iterator[str]:
    """Acquired is released, once, in reverse order; and nothing that was not acquired (L8, L70)."""
    house, began = played.house, played.house.began
    yield from (f"{step} was taken {began.count(step)} times" for step in {*began} if began.count(step) > 1)
    yield from (f"the engine called {step}" for step in UNCALLED if step in began)
    held = [door for door in DOORS if door.due and door.name in began]
    order = [step for step in began if step in [door.due for door in held]]
    if order != [door.due for door in reversed(held) if door.due in order]:
        yield f"released in the order {order}"
    for door in DOORS:
        acquired = door.name in (house.had if door.once_had else began)
        unfit = door is played.door and door.in_hand and bool(played.fault.returned)  # nothing that could be released
        if door.due and not unfit and acquired is not (door.due in began):
            yield f"{door.name} was {'had' if acquired else 'not had'}, {door.due} was {'not ' * acquired}called"


def _nothing_left(played: Played) -> Iterator[str]:
    """No task lives on but those that hold what was entered, until the engine ends (L75); nothing is kept."""
    began, fault = played.house.began, played.fault
    unentered = bool(fault.comes_as) and not fault.late
    hosts = [
        name
        for name in ("harness.enter", "model.enter")
        if name in began and (name != played.door.name or not unentered)
    ]
    if played.tasks_left != len(hosts):
        yield f"{played.tasks_left} tasks live on, of which {len(hosts)} hold what was entered"
    had = [name for name in hosts if name in played.house.had]
    if unleft := [name for name in had if began.count(name.replace("enter", "leave")) != 1]:
        yield f"what was entered was not left once: {unleft}"
    yield from (f"the {name} is kept by a cycle" for name in played.kept)


def _disturbed(played: Played) -> Iterator[str]:
    """The healthy rollout beside it knows nothing of all this (L42); only what strikes the engine strikes all."""
    sibling = played.sibling
    if not played.beside:
        return
    if played.left_by and played.door.means == "enter":
        if sibling is None or not sibling.is_completed or sibling.stop_condition != "cancelled":
            yield f"an interrupt that struck the engine left the rollout beside it: {sibling}"
    elif sibling is None or not sibling.ok or sibling.warnings or sibling.reward != 2.0 or sibling.num_turns != 1:
        yield f"the rollout beside it was disturbed: {sibling}"


def _kept(played: Played) -> Iterator[str]:
    """What is on disk is enough for the next process: every trace, and the box that was not stopped (L73)."""
    on_disk, house = played.on_disk, played.house
    if on_disk is None:
        return
    traces = [trace for trace in (house.trace, played.sibling) if trace is not None]
    written = {trace.id: trace for trace in on_disk.written}
    yield from (f"the file has {trace!r} otherwise" for trace in traces if written.pop(trace.id, None) != trace)
    yield from (f"the file has {trace!r} beside" for trace in written.values())
    attempts = {attempt.trace: attempt for attempt in on_disk.journal.attempts}
    for trace in traces:
        attempt = attempts.pop(trace.id)
        if attempt.state != trace.transitions[-1].target or attempt.end is None or not attempt.end.written:
            yield f"the journal has {attempt}"
        standing = trace is house.trace and "runtime.start" in house.began and "runtime.stop" not in house.had
        if [lease.data for lease in attempt.leases] != [{"box": trace.id}] * standing:
            yield f"the box {'was not' if standing else 'was'} stopped, and is in the journal: {attempt.leases}"
    yield from (f"the journal has {attempt} beside" for attempt in attempts.values())


def _sealed(trace: Trace, played: Played) -> Iterator[str]:
    """The trace conforms, is sealed, is said in one line, keeps each error's traceback (L40, L57, L83), and loads back
    equal (L84); the last is asked where there was a wrong value, and of a sample."""
    yield from check_trace(trace)
    if not (trace.is_completed and trace.sealed):
        yield f"not sealed: {trace}"
    stop = trace.errors[0].type if trace.errors else trace.stop_condition
    lines = [line for line in played.last_lines if trace.id in line]
    if len(lines) != 1 or f"stop={stop}" not in lines[0]:
        yield f"logged at the end: {lines}"
    for error in trace.errors:
        if (error.traceback is None) is not (error.type == "ProviderError"):
            yield f"{error.type} has the traceback {error.traceback!r}"
    if not (played.beside or played.fault.returned):
        return
    try:
        same = trace_from_json(trace_to_json(trace)) == trace
    except ValueError as fault:
        yield f"the trace cannot be written and read: {fault}"
    else:
        if not same:
            yield "the trace does not load back equal"
