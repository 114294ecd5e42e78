"""What the rules say of a play, and where it is not so.

Which end is right follows from the states in which the rollout met its interruptions (L70-L72): in `releasing` and
`discarding`, and after the end, they change nothing; anywhere else the rollout is aborted.
"""

from collections.abc import Iterator

import trio

from rollout_fsm import Trace, check_trace
from rollout_fsm.machine.conformance import rows_of
from rollout_fsm.machine.lifecycle import lifecycle
from tests.cancellation.cases import Case
from tests.cancellation.faults import FAULTS
from tests.cancellation.life import Call, Effect, Life, all_of
from tests.cancellation.parties import CLOSED, OPENED
from tests.cancellation.stage import OTHERS, Stage, bound_of

FINAL = ("completed", "failed", "aborted")
TOO_LATE = ("releasing", "discarding", *FINAL)
"""Where an interruption changes no outcome any more."""
SEGMENT = ("stepping", "stopping")

RELEASES = {
    "runtime.start": "runtime.stop",
    "harness.setup": "harness.cleanup",
    OPENED: CLOSED,
    "tools.start:a": "tools.stop:a",
    "tools.start:b": "tools.stop:b",
    "session.open": "session.close",
}
"""What begins, and what releases it: the first two whenever they began, the others once they were had (L8)."""
STARTED_WITH = {
    **dict.fromkeys(SEGMENT, ("model",)),
    "scoring": ("score.good", "score.steps"),
}
"""What was started before an interruption and may call foreign code in its first step, by state."""
WARNED = {
    "session.close": ("close", "harness session did not close"),
    "tools.stop:a": ("close", "tool server 'a' did not close"),
    "tools.stop:b": ("close", "tool server 'b' did not close"),
    CLOSED: ("close", "interception slot did not close"),
    "harness.cleanup": ("cleanup", "harness 'HarnessByRuntime' was not cleaned up"),
    "runtime.stop": ("leaked", "runtime {name!r} could not be stopped and may be leaked"),
}
"""The warning of a step that failed: its kind, and how it begins (L51, L55)."""


def faults_of(stage: Stage) -> list[str]:
    """Everything that is not as it must be; empty when all is well."""
    found: list[str] = []
    for place, life in enumerate(stage.lives):
        of = f"rollout {place}: " if len(stage.lives) > 1 else ""
        for rule in (_released, _nothing_new, _warned, _ended, _sealed, _measured, _freed):
            found += [f"{of}{fault}" for fault in rule(stage, life)]
        for call in life.calls:
            found += [f"{of}{fault}" for fault in _told(life, call)]
    return [*found, *_raised(stage), *_left(stage)]


# ---- one rollout


def _released(stage: Stage, life: Life) -> Iterator[str]:
    """Acquired is released, in reverse order, each step once, none cut short (L70)."""
    world, broken = life.world, stage.plan.broken
    held = []
    for acquire in [event for event in world.began if event in RELEASES]:
        release = RELEASES[acquire]
        whenever = acquire in ("runtime.start", "harness.setup")
        had = whenever or acquire in world.ended
        if had:
            held.append(release)
        if (times := world.began.count(release)) != int(had):
            yield f"{acquire} {'was' if had else 'was not'} had, {release} began {times} times"
    began = [event for event in world.began if event in RELEASES.values()]
    if sorted(began) == sorted(held) and began != held[::-1]:
        yield f"released in the order {began}, acquired in the order {held}"
    if orphans := sorted(set(began) - set(held)):
        yield f"{orphans} began without anything to release"
    for event in began:
        cut = event not in world.ended and (broken is None or event != broken.step)
        if event not in world.left or cut:
            yield f"{event} was cut short"
    kills = world.began.count("runtime.kill")
    if kills != (expected := int(_left_early(stage, life))):
        yield f"the agent was killed {kills} times instead of {expected}"
    if kills and (lingering := kills - world.left.count("runtime.kill")):
        yield f"{lingering} kills did not end"


def _left_early(stage: Stage, life: Life) -> bool:
    """Whether a segment did not end by itself: it failed, or was interrupted (L13)."""
    failed = "ProviderError" in stage.case.errors and "model" in life.world.left
    return failed or any(effect.state in SEGMENT for effect in life.effects)


def _nothing_new(stage: Stage, life: Life) -> Iterator[str]:
    """Nothing but the release begins once the rollout is to be aborted (L14a, L71)."""
    binding = _binding(life)
    if binding is None:
        return
    allowed = {"runtime.kill", *RELEASES.values(), *STARTED_WITH.get(binding.state, ())}
    for event in life.world.began[binding.begun :]:
        if event not in allowed:
            yield f"{event} began after the interruption in {binding.state}"


def _warned(stage: Stage, life: Life) -> Iterator[str]:
    """A step that failed is on the trace once, under its kind and name; nothing else is (L51, L55, L14a)."""
    broken, trace = stage.plan.broken, life.trace
    expected: list[tuple[str, str, tuple[str, ...]]] = []
    if broken is not None and broken.step in WARNED and broken.step in life.world.began:
        kind, begins = WARNED[broken.step]
        if said := FAULTS[broken.fault].said:
            expected.append((kind, begins.format(name=trace.id), said))
    found = [warning for warning in trace.warnings if warning.kind != "after_cancel"]
    if [warning.kind for warning in found] != [kind for kind, _, _ in expected]:
        yield f"the warnings are {found}, expected {expected}"
        return
    for warning, (_, begins, said) in zip(found, expected, strict=True):
        if not warning.message.startswith(begins) or not all(part in warning.message for part in said):
            yield f"the warning {warning.message!r} does not say {begins!r} and {said}"
    lost = [warning.message for warning in trace.warnings if warning.kind == "after_cancel"]
    if lost and not (len(lost) == 1 and lost[0].startswith(stage.case.errors)):
        yield f"after_cancel warnings {lost}"


def _ended(stage: Stage, life: Life) -> Iterator[str]:
    """State, stop condition and errors are those that the interruptions leave (L17, L70-L72)."""
    trace, binding = life.trace, _binding(life)
    expected = stage.case.ends if binding is None else "aborted"
    if life.state != expected:
        yield f"ended {life.state} instead of {expected}"
    if trace.ok is not (life.state == "completed"):
        yield f"ok is {trace.ok} in {life.state}"
    condition = _condition(stage.case, trace)
    if trace.stop_condition != condition:
        yield f"the stop condition is {trace.stop_condition!r} instead of {condition!r}"
    errors = list(stage.case.errors) if not life.effects else list(life.effects[0].errors)
    if _survives(stage, life) and (not life.effects or life.effects[0].state in SEGMENT):
        errors.append("SandboxError")
    if [error.type for error in trace.errors] != errors:
        yield f"the errors are {[error.type for error in trace.errors]} instead of {errors}"


def _binding(life: Life) -> Effect | None:
    """The first interruption that the rollout met while it could still be aborted."""
    return next((effect for effect in life.effects if effect.state not in TOO_LATE), None)


def _condition(case: Case, trace: Trace) -> str | None:
    """The first stop condition that the path sets: the first wins (L17)."""
    if case.stop is not None:
        return case.stop
    for taken in trace.transitions:
        rows = rows_of(lifecycle().declaration, (taken.trigger, taken.source, taken.target))
        row = next(row for row in rows if row.guard != "has_user" or case.has_user or case.name == "talk")
        if row.sets is not None:
            return "max_turns" if row.sets == "(given)" else row.sets
    return None


def _survives(stage: Stage, life: Life) -> bool:
    broken = stage.plan.broken
    tried = broken is not None and broken.step == "runtime.kill" and "runtime.kill" in life.world.began
    return tried and broken is not None and not FAULTS[broken.fault].kills


def _sealed(stage: Stage, life: Life) -> Iterator[str]:
    """The trace is one story, finished once, and nothing touched it afterwards (L83)."""
    trace = life.trace
    if not (trace.is_completed and trace.sealed):
        yield f"not sealed: {trace}"
    yield from check_trace(trace)
    if len(life.finished) != 1:
        yield f"finished {len(life.finished)} times"
    elif life.finished[0] != (now := all_of(trace)):
        yield f"changed after its end, from {life.finished[0]} to {now}"


def _measured(stage: Stage, life: Life) -> Iterator[str]:
    """A number is there only for a signal that returned; each is expected from the begin of scoring on (L60, L63)."""
    trace, world = life.trace, life.world
    scored = any(taken.target == "scoring" for taken in trace.transitions)
    for name, event, values in (("good", "score.good", trace.rewards), ("steps", "score.steps", trace.metrics)):
        if set(values) != ({name} if scored else set()):
            yield f"{sorted(values)} are expected signals of {name!r}, {'after' if scored else 'without'} scoring"
        measured = values.get(name) is not None
        if measured and event not in world.ended:
            yield f"{name} is {values[name]}, and {event} did not end"
        if life.state == "completed" and not measured:
            yield f"{name} was not measured"


def _freed(stage: Stage, life: Life) -> Iterator[str]:
    if not life.freed:
        yield "the rollout is kept by a cycle"


def _told(life: Life, call: Call) -> Iterator[str]:
    """A verb raises what struck whoever called it, bare, or returns what it must (L70-L72, L23)."""
    came = call.raised.__name__ if call.raised else repr(call.returned)
    if call.pending:
        yield f"{call.verb}() did not return"
    elif interrupts := {effect.interrupt for effect in call.effects if effect.interrupt}:
        if call.raised not in interrupts:
            yield f"{call.verb}() came to {came}, and {interrupts} had struck"
    elif any(_cancels(life, call, effect) for effect in call.effects):
        if call.raised is not trio.Cancelled:
            yield f"{call.verb}() came to {came}, and its scope was cancelled"
    elif call.raised is not None:
        yield f"{call.verb}() raised {came}, struck by {[(e.means, e.state) for e in call.effects]}"
    elif call.returned != call.right or (call.verb == "close" and call.returned is not life.trace):
        yield f"{call.verb}() returned {came} instead of {call.right!r}"


def _cancels(life: Life, call: Call, effect: Effect) -> bool:
    """Whether the call raises the cancellation of its scope: who only waits does at once, who drives if it aborts."""
    return effect.state not in FINAL and (effect.driver != call.by or life.state == "aborted")


# ---- the whole play


def _raised(stage: Stage) -> Iterator[str]:
    """What came out is one bare interruption, and the one that struck (L70)."""
    came = stage.raised.__name__ if stage.raised else "nothing"
    faults = {"strikes", "exits"}
    met = [effect for life in stage.lives for effect in life.effects]
    outside = [effect for effect in met if effect.means not in faults or effect.driver not in OTHERS]
    interrupts = {effect.interrupt for effect in outside if effect.interrupt}
    if "interrupt" in stage.means:
        interrupts.add(KeyboardInterrupt)
    if interrupts:
        if stage.raised not in interrupts:
            yield f"{came} came out, and {interrupts} had struck"
    elif "scope" in stage.means:
        if stage.raised is not trio.Cancelled:
            yield f"{came} came out, and the caller's scope was cancelled"
    elif stage.raised is not None:
        yield f"{came} came out, and nothing had struck the caller"
    for kind in stage.left:
        if kind not in (trio.Cancelled, KeyboardInterrupt, SystemExit):
            yield f"{kind.__name__} came out of the rollout's block"


def _left(stage: Stage) -> Iterator[str]:
    """No task is left, no time was lost, and nobody speaks of a bug."""
    for state in stage.left_in:
        if state not in FINAL:
            yield f"the block was left in {state}"
    if stage.leftover:
        yield f"{stage.leftover} tasks left"
    for state in stage.unended:
        yield f"cancel() returned in {state}"
    broken, expected = stage.plan.broken, 0.0
    if broken is not None:
        times = [life.world.began.count(broken.step) for life in stage.lives]
        expected = FAULTS[broken.fault].bounds * bound_of(broken.step) * max(times, default=0)
    if stage.seconds != expected:
        yield f"it took {stage.seconds:g} s instead of {expected:g}"
    yield from (f"logged: {said}" for said in stage.logged)


def explained(stage: Stage, faults: list[str]) -> str:
    """The failure, for whoever has to find its cause."""
    lines = [f"{stage.plan}, play it again: python -m tests.cancellation '{stage.plan}'"]
    lines += [f"  struck {where}" for where in stage.schedule.where]
    for life in stage.lives:
        lines += [
            f"  met: {met.means} in {met.state}, driven by {met.driver}, after {met.doing or 'nothing'}"
            for met in life.effects
        ]
        path = " ".join(f"{taken.trigger}:{taken.target}" for taken in life.trace.transitions)
        lines += [f"  path: {path}", f"  events: {' '.join(life.world.began)}"]
        lines += [
            f"  {call.by} called {call.verb}(): {call.raised.__name__ if call.raised else call.returned}"
            for call in life.calls
        ]
    return "\n".join([*lines, *(f"  - {fault}" for fault in faults)])
