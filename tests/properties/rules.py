"""The rules for the driver, written out a second time: what each verb may give in each state, which row each firing
takes, where and how long a rollout may rest, and what must be true at the end. Nothing of it is read off the package.
"""

from collections.abc import Iterator
from math import inf

import trio

from rollout_fsm import IllegalTransition, RolloutBusyError, RuntimeLifetimeError, check_trace
from tests.machine import oracle
from tests.properties.seen import Called, Fired
from tests.properties.stage import Stage

TABLE = oracle.table()
KINDS = {name: kind for name, kind, *_ in map(oracle.cells, oracle.STATES.strip().splitlines())}
IN_PROGRESS = {name for name, kind in KINDS.items() if kind in ("active", "shielded")}
FINAL = {name for name, kind in KINDS.items() if kind == "final"}
BUSY = IN_PROGRESS - {"aborting"}
AGENT = ("stepping", "stopping")
NOT_OVER = ("created", "booting", "setup", "waiting", *AGENT)
"""Where a stop condition can still be set from outside (L22)."""

AT_ONCE: dict[tuple[str, str], object] = {
    **{(verb, state): RolloutBusyError for verb in ("open", "step", "fail") for state in BUSY},
    **{("open", state): IllegalTransition for state in ("waiting", "stopped", "failing", "completed", "failed")},
    **{("step", state): IllegalTransition for state in ("created", "completed", "failed")},
    **{("step", state): False for state in ("stopped", "failing", "aborted")},
    ("open", "aborted"): False,
    **{("close", state): "the trace" for state in FINAL},
    **{("cancel", state): None for state in FINAL},
    **{("fail", state): None for state in (*FINAL, "aborting")},
    **{("stop", state): None for state in KINDS.keys() - NOT_OVER},
}
"""What a verb gives at once, changing nothing (L11, L22, L23, L43, L50, L72)."""

CANCELLED = dict.fromkeys(KINDS, "aborted") | {"releasing": "completed", "completed": "completed"}
CANCELLED |= dict.fromkeys(("discarding", "failed"), "failed")
"""Where `cancel` brings a rollout (L71, L72)."""

BOUND = {"booting": 10, "setup": 10, "stepping": 20, "stopping": 5, "finalizing": 10, "scoring": 10}
LONGEST = BOUND | {"closing": 5, "releasing": 10, "discarding": 15, "aborting": 15}
"""Seconds that a state may last, with the bounds of `stage.BOUNDS` (L2, L12, L18, L55)."""
OUTCOMES = {"booting": "booted", "setup": "ready", "finalizing": "finalized", "scoring": "scored"}


def broken(stage: Stage) -> list[str]:
    """What was not as the rules say; empty when all is well."""
    assert set(LONGEST) == IN_PROGRESS
    return [
        *(fault for fired in stage.fired for fault in _row(fired)),
        *(fault for called in stage.calls for fault in _call(stage, called)),
        *_conditions(stage),
        *_outcomes(stage),
        *_rests(stage),
        *_end(stage),
    ]


def _row(fired: Fired) -> Iterator[str]:
    """Each firing takes the first row whose guard holds."""
    rows = TABLE.get((fired.source, fired.trigger), [])
    expected = next((row for row in rows if row[0] is None or row[0] in fired.holds), None)
    got = None if fired.row is None else (fired.row.guard, fired.row.to, fired.row.sets)
    if got != expected:
        holds = ", ".join(sorted(fired.holds)) or "nothing"
        yield f"{fired.source} -{fired.trigger}-> took the row {got} instead of {expected}, while there held {holds}"


def _call(stage: Stage, called: Called) -> Iterator[str]:
    """What a verb gave, and what it changed."""
    at_once = _at_once(stage, called)
    if not called.done:
        yield f"{called}"
    elif at_once is not ...:
        if called.came != at_once or called.changed or called.left_in != called.state:
            yield f"{called}{' with another trace' * called.changed}; it gives {_said(at_once)} and changes nothing"
    elif called.verb in ("stop", "fail"):
        ends = "failing" if called.verb == "fail" else "stopped" if called.state == "waiting" else called.state
        if called.came is not None or called.left_in != ends:
            yield f"{called}; it raises nothing and leads to {ends}"
        if called.verb == "fail" and not called.changed:
            yield f"{called}, and the trace is as it was"
    else:
        yield from _acted(stage, called)


def _at_once(stage: Stage, called: Called) -> object:
    """What the verb gives without changing anything; `...` if it acts."""
    if called.verb == "step" and called.state == "waiting":
        taken = any(fired.trigger == "step" and fired.moved for fired in stage.fired[: called.fired])
        return ... if called.said is not None or (stage.plan.prompt and not taken) else TypeError
    if called.verb == "fail" and called.state == "failing":
        return ...
    return AT_ONCE.get((called.verb, called.state), ...)


def _acted(stage: Stage, called: Called) -> Iterator[str]:
    """What a verb gives that acts, or waits for the one that does (L3, L10, L50, L70-L72)."""
    own = [fired for fired in stage.fired if fired.by is called]
    due: list[object] = []
    if called.interrupted:
        due.append(KeyboardInterrupt)
    held_back = called.cancelled_driving and called.cancelled_in in ("releasing", "discarding")
    if called.cancelled_in is not None and not held_back:
        due.append(trio.Cancelled)
        if called.cancelled_driving and called.left_in != "aborted":
            yield f"{called}; a cancellation ends in aborted"
    if any(fired.row is not None and fired.row.guard == "runtime_lost" for fired in own):
        due.append(RuntimeLifetimeError)
    usual: dict[str, object] = {"close": "the trace", "cancel": None}
    allowed = due or [usual.get(called.verb, called.left_in == "waiting")]
    if called.came not in allowed:
        yield f"{called}; it gives {' or '.join(map(_said, allowed))}"
    if called.came is trio.Cancelled and not called.cancelled_driving:
        return  # one that waited: it was only its own
    ends = FINAL if called.verb in ("close", "cancel") else {"waiting", "stopped", "failing", "aborted"}
    if called.verb == "cancel":
        ends = {CANCELLED[called.state]}
    if called.left_in not in ends:
        yield f"{called}; it leads to {' or '.join(sorted(ends))}"


def _said(came: object) -> str:
    return came.__name__ if isinstance(came, type) else repr(came)


def _conditions(stage: Stage) -> Iterator[str]:
    """The first stop condition stays; rows and `stop` set it if none is set (L17, L22)."""
    plan = stage.plan
    given = {"max_turns"} if plan.max_turns is not None else set()
    given |= {"context_length"} if "overlong" in plan.says.get("model", ()) else set()
    allowed: set[str | None] = {None}
    for place in range(len(stage.fired) + 1):
        stops = [called for called in stage.calls if called.verb == "stop" and called.fired == place]
        if allowed == {None} and (first := [called.said for called in stops if called.state in NOT_OVER][:1]):
            allowed = {*first}
        fired = stage.fired[place] if place < len(stage.fired) else None
        condition = stage.rollout.trace.stop_condition if fired is None else fired.condition
        if condition not in allowed:
            said = " or ".join(map(repr, allowed))
            yield f"before {fired or 'the end'} the stop condition is {condition!r} instead of {said}"
        allowed = {condition}
        sets = None if fired is None or fired.row is None else fired.row.sets
        if sets is not None and condition is None:
            allowed = {*given} if sets == "(given)" else {sets}


def _outcomes(stage: Stage) -> Iterator[str]:
    """A bound that ran out is what counts, and one that did not is none; a failure is an outcome (L14, L14a)."""
    spare = _spare(stage)
    for place, fired in enumerate(stage.fired):
        lasted, spent = _time(stage.fired[:place], fired.time)
        ran_out = lasted >= BOUND.get(fired.source, inf) or (fired.source in AGENT and spent >= BOUND["stepping"])
        if fired.trigger == "timed_out" and not ran_out:
            yield f"{fired} after {lasted:g} s, of {BOUND[fired.source]}"
        if ran_out and not spare and fired.trigger not in ("timed_out", "cancel", "stop", "refused"):
            yield f"{fired} after {lasted:g} s, when the bound had run out"
        if lasted > LONGEST.get(fired.source, inf) + (spare if fired.source in AGENT else 0):
            yield f"{fired} after {lasted:g} s; it may last {LONGEST[fired.source]:g}"
        if fired.trigger == OUTCOMES.get(fired.source) and fired.failed:
            yield f"{fired} although a party had failed"
        lost = "runtime_lost" in fired.holds
        if fired.trigger == "errored" and fired.source in BUSY and not fired.failed and not lost:
            yield f"{fired} although nothing had failed"


def _spare(stage: Stage) -> float:
    """Seconds that a segment may last beyond its bound: two parties may take `timeouts.close` each."""
    return 10 if {"runtime.kill", "runtime.alive"} & stage.plan.says.keys() else 0


def _time(fired: list[Fired], now: float) -> tuple[float, float]:
    """Seconds in the state that the last of these firings led to, and seconds of the agent's in all."""
    moves = [one for one in fired if one.moved]
    times = [*(one.time for one in moves), now]
    spans = [(one.row.to, end - one.time) for one, end in zip(moves, times[1:], strict=True) if one.row is not None]
    return spans[-1][1] if spans else 0.0, sum(lasted for state, lasted in spans if state in AGENT)


def _rests(stage: Stage) -> Iterator[str]:
    """A call is in progress exactly when the state is active or shielded (L23), and no state outlasts its bounds."""
    for rest in stage.at_rest:
        if rest.pending is not (rest.state in IN_PROGRESS):
            yield f"at rest in {rest.state} with {'a' if rest.pending else 'no'} call in progress"
        lasted, spent = _time(stage.fired[: rest.fired], rest.time)
        spare = _spare(stage) if rest.state in AGENT else 0
        longest = LONGEST.get(rest.state, inf) + spare
        if lasted >= longest or (rest.state in AGENT and spent >= BOUND["stepping"] + spare):
            yield f"in {rest.state} for {lasted:g} s, {spent:g} s of the agent's in all; it may last {longest:g}"


def _end(stage: Stage) -> Iterator[str]:
    """The rollout is final, its trace sealed and true, and everything released (L70, L83)."""
    trace = stage.rollout.trace
    if not (stage.rollout.is_final and trace.sealed and trace.is_completed):
        yield f"this is no end: {stage.rollout}"
    yield from check_trace(trace)
    moves = [(one.trigger, one.source, one.row.to) for one in stage.fired if one.moved and one.row is not None]
    if moves != (recorded := [(taken.trigger, taken.source, taken.target) for taken in trace.transitions]):
        yield f"the trace has the transitions {recorded}, and those that were taken are {moves}"
    yield from (f"{event} began on a runtime that its owner had stopped" for event in stage.on_lost_runtime)
    held_back = [
        called
        for called in stage.calls
        if (called.cancelled_driving and called.cancelled_in == "closing")
        or (called.verb == "cancel" and called.state == "closing")
    ]
    if held_back and "finalize" in stage.began:
        yield f"{held_back[0]}, and finalize began"
    lost = any(fired.row is not None and fired.row.guard == "runtime_lost" for fired in stage.fired)
    for failure in [] if lost else stage.score_failures:
        if not any(failure in error.message for error in trace.errors):
            yield f"{failure}, and no error on the trace says so"
    for fault in stage.unreleased():
        if not (stage.plan.borrowed and "runtime" in fault):
            yield fault
