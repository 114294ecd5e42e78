"""What must come of a case: what it expects, and what holds in every outcome whether it is expected or not.

The path is judged by the declared machine, as that of a trace is; everything else only by what the outcome says of
itself. Numbers are equal within a millionth, and true is no number.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rollout_fsm import load_machine
from rollout_fsm.limits import LIMIT_NAMES
from rollout_fsm.machine.conformance import may_set, replay
from rollout_fsm.simulation.outcome import SPANS

TOLERANCE = 1e-6
ONCE = (
    "runtime.start",
    "runtime.stop",
    "harness.setup",
    "harness.cleanup",
    "session.open",
    "session.close",
    "finalize",
)
FOLLOWS = {"runtime.start": "runtime.stop", "harness.setup": "harness.cleanup"}
"""What began, and what must follow it once (L8)."""

MACHINE = load_machine()
DECLARED = {row.sets for state in MACHINE.states.values() for row in state.rows if row.sets not in (None, "(given)")}


def differences(case: Mapping[str, Any], out: Mapping[str, Any]) -> list[str]:
    """Everything in which an outcome is not what the case expects, or what no outcome may be."""
    found = [*broken_rules(out, case["scenario"])]
    for field, expected in case["expect"].items():
        if field not in out:
            found.append(f"{field}: there is no such field")
        elif not same(expected, out[field]):
            found.append(f"{field}: expected {expected}, got {out[field]}")
    events = out["events"]
    remaining = iter(events)
    for event in case.get("expect_order", ()):
        if event not in remaining:
            found.append(f"events: {event} is missing, or too early, in {events}")
            break
    counts = Counter(events)
    found += [f"events: {event} occurred" for event in case.get("expect_absent", ()) if counts[event]]
    for event, expected in case.get("expect_count", {}).items():
        if counts[event] != expected:
            found.append(f"events: expected {expected} of {event}, got {counts[event]}")
    return found


def same(expected: Any, got: Any) -> bool:
    """Whether two values of JSON are equal."""
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, int | float) and isinstance(got, int | float):
        return abs(expected - got) <= TOLERANCE
    if isinstance(expected, dict) and isinstance(got, dict):
        return expected.keys() == got.keys() and all(same(expected[key], got[key]) for key in expected)
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(map(same, expected, got))
    return bool(type(expected) is type(got) and expected == got)


def broken_rules(out: Mapping[str, Any], scenario: Mapping[str, Any]) -> Iterator[str]:
    """What holds in every outcome of a play, and does not in that of this scenario."""
    state, path = out["state"], [tuple(step) for step in out["transitions"]]
    yield from (f"transitions: {fault}" for fault in replay(MACHINE, path))
    if path and path[-1][2] != state:
        yield f"transitions: they end in {path[-1][2]}, the rollout in {state}"
    condition, said = out["stop_condition"], {stop["name"] for stop in scenario.get("stops", ())}
    said |= {
        "context_length",
        *LIMIT_NAMES,
        *([scenario["caller_stop"]["condition"]] if "caller_stop" in scenario else []),
    }
    if condition not in said and not (condition in (None, *DECLARED) and may_set(MACHINE, path, condition)):
        yield f"stop_condition: {condition!r} does not come of this path"
    if out["ok"] is not (state == "completed"):
        yield f"ok: {out['ok']} in {state}"
    if out["is_completed"] is not (MACHINE.states[state].kind == "final"):
        yield f"is_completed: {out['is_completed']} in {state}"
    measured = [value for value in out["rewards"].values() if value is not None]
    if not same(sum(measured) if measured else None, out["reward"]):
        yield f"reward: {out['reward']} of {out['rewards']}"
    if state == "completed" and (out["errors"] or None in out["rewards"].values()):
        yield f"errors: a completed rollout has {out['errors']} and {out['rewards']}"
    if state == "failed" and not out["errors"]:
        yield "errors: a failed rollout has none"
    yield from _spans(out["spans"])
    yield from _events(out["events"], attempts=1 + len(out["attempts"]))
    yield from _ending(out)
    for field, innocent in (("orphans", []), ("mutated_after_return", False)):
        if out[field] != innocent:
            yield f"{field}: {out[field]}"


def _ending(out: Mapping[str, Any]) -> Iterator[str]:
    ending, state = out["ending"], out["state"]
    if (ending is None) is (MACHINE.states[state].kind == "final"):
        yield f"ending: {ending} in {state}"
    if ending is None:
        return
    if ending["graded"] is not out["ok"]:
        yield f"ending: {ending} of a rollout that is {state}"
    if ending["counts"] and (not ending["graded"] or out["reward"] is None):
        yield f"ending: it counts, graded {ending['graded']}, with the reward {out['reward']}"
    if ending["retryable"] and state == "aborted":
        yield "ending: an aborted rollout is retryable"


def _spans(spans: Mapping[str, Sequence[float]]) -> Iterator[str]:
    before = 0.0
    for name in SPANS:
        if name in spans:
            start, end = spans[name]
            if end is None or not before - TOLERANCE <= start <= end + TOLERANCE:
                yield f"spans: {name} is {start} to {end}, after {before}"
            before = start if end is None else end


def _events(events: Sequence[str], *, attempts: int) -> Iterator[str]:
    counts = Counter(events)
    yield from (f"events: {event} occurred {counts[event]} times" for event in ONCE if counts[event] > attempts)
    for begun, undone in FOLLOWS.items():
        if counts[begun] > counts[undone] or (begun in events and events.index(begun) > events.index(undone)):
            yield f"events: {begun} is not followed by {undone}"
    for event in counts:
        if event.startswith("tools.stop:") and counts[event] > counts[event.replace("stop", "start", 1)]:
            yield f"events: {event} without a start"
