"""The rules as far as they are the same at every door: the five questions, what must be released, what is said, which
stop condition stays. What an answer means at one kind of door is in `expected`.

A small model of its own, which knows the doors, the faults and LIFECYCLE, and nothing of the engine.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from tests.doors.doors import BY_NAME, DOORS, PATH, Door, late
from tests.doors.faults import Fault, Leaf

TURN = ("stop.trace", "intercept.request", "stop.request", "model.respond", "intercept.response", "stop.response")
"""What one turn asks, in the order of L32."""
AMID_A_TURN = (*TURN, "observer.on_activity@stepping")
SIGNALS = (("metric.harness", "metric.task"), ("reward",), ("judge.score",))
"""The signals, kind after kind; those of a kind run side by side (L62)."""
CAME = {"None": "None", "object": "object", "an awaitable": "Awaitable"}
"""How an error says what was returned, whether by its type or by what it shows of itself."""
EVERY_SIGNAL = tuple(name for kind in SIGNALS for name in kind)


@frozen
class Said:
    """An error, a warning or a line of the log: its type, kind or level, and parts of its words."""

    type: str
    parts: tuple[str, ...] = ()


def are(came: Sequence[tuple[str, str]], right: Sequence[Said]) -> bool:
    """Whether these are what was said, with their types, kinds or levels, in this order."""
    return len(came) == len(right) and all(
        kind == said.type and all(part in text for part in said.parts)
        for (kind, text), said in zip(came, right, strict=True)
    )


@frozen(kw_only=True)
class Expected:
    """What must come of it."""

    state: str = "completed"
    stop: str | None = "agent_completed"
    errors: tuple[Said, ...] = ()
    warnings: tuple[Said, ...] = ()
    raised: str = ""
    """What the verb in progress raises to the caller."""
    left_by: str = ""
    """What leaving the engine raises."""
    calls: tuple[tuple[str, ...], ...] = (PATH,)
    """Every step that is taken, in order; the ways that are equally right."""
    measured: tuple[str, ...] = EVERY_SIGNAL
    """Signals that must have a number."""
    unmeasured: tuple[str, ...] = ()
    """Signals that must have none, but a place (L60)."""
    seconds: float = 0.0
    log: tuple[Said, ...] = ()
    """The warnings and errors in the log."""
    minted: bool = True


# ---- L14a: the questions


def answer(door: Door, fault: Fault) -> str:
    """`cancel`, `timed_out`, `errored`; nothing where it returned what it should."""
    if fault.interrupt or fault.asks in ("cancel", "caller"):
        return "cancel"
    if fault.late:
        return "timed_out"
    if fault.raised or fault.stray or fault.returned in door.refuses:
        return "errored"
    return ""


# ---- the steps that are taken, and what is released: L8, L13, L50, L55, L70


def until(name: str) -> tuple[str, ...]:
    """Every step up to this door, it included."""
    return tuple(door.name for door in DOORS[: DOORS.index(BY_NAME[name]) + 1] if door.noted)


def releases(done: Sequence[str], not_had: str = "") -> tuple[str, ...]:
    """What was started and is not released yet, newest first. What falls due as soon as it begins is released whatever
    became of it; what must have been had, only if it was: a start that failed has undone itself."""
    due = [step.due for name in done if (step := BY_NAME[name]).due and not (step.once_had and name == not_had)]
    return tuple(step for step in reversed(due) if step not in done)


def the_end(done: Sequence[str], *, segment: bool, not_had: str = "") -> tuple[str, ...]:
    """A run that ends here: the agent of a segment is stopped (L13), everything is released, and no further step of the
    way is taken (P2, L52)."""
    return (*done, *(("runtime.kill",) if segment else ()), *releases(done, not_had))


def ends_at(door: Door, fault: Fault) -> tuple[tuple[str, ...], ...]:
    """A run that ends at this door. A cancellation is met at the next checkpoint (L70): after a door that is only
    called, the step that comes next may have begun."""
    segment = door.state == "stepping"
    unfit = door.in_hand and fault.returned in door.refuses
    had = fault.returns and not unfit and fault.asks not in ("cancel", "caller")
    ways = [the_end(until(door.name), segment=segment, not_had="" if had else door.name)]
    if (fault.asks == "caller" or (fault.interrupt and door.means == "log")) and not door.bound:
        begun = next(step for step in DOORS[DOORS.index(door) :] if step.noted and step.bound)
        beside = next((kind for kind in SIGNALS if begun.name in kind), (begun.name,))
        ways.append(the_end(until(beside[-1]), segment=segment, not_had=begun.name))
    return tuple(ways)


# ---- what is said: L14, L40


def told(door: Door, leaves: Sequence[Leaf]) -> tuple[Said, ...]:
    """Each leaf under the type of its boundary, with its own type and text; a typed one as it is (L40)."""
    return tuple(
        Said(leaf.type, (leaf.text,)) if leaf.typed else Said(door.error, (door.says, leaf.type, leaf.text))
        for leaf in leaves
    )


def failures(door: Door, fault: Fault) -> tuple[Said, ...]:
    """What is wrong with a call that came back in time."""
    if fault.stray:  # nothing was cancelled, so it is a failure like any other (L14a)
        return (Said(door.error, (door.says, "Cancelled")),)
    if (door.name, fault.returned) == ("task.toolsets", "text"):
        return (Said("ToolsetError", ("tool server",)),)  # a list it is: what is in it can be no tool server
    return told(door, fault.raised) or (Said(door.error, (door.wrong or door.says, CAME.get(fault.returned, ""))),)


def timeout(door: Door, fault: Fault) -> Said:
    """What was running, the setting, the time that passed (L14); the agent's budget is the agent's failure (L13)."""
    setting = f"timeouts.{door.bound} = {door.seconds:g} s"
    if door.bound == "agent":  # a call's own lateness is not the harness's, which was interrupted in time
        ran = late(door, fault.late == "beyond" and door.means == "error")
        return Said("HarnessError", ("agent timeout: ", setting, f"after {ran:g} s"))
    return Said(door.error, (door.says, "timed out", setting, f"{late(door, fault.late == 'beyond'):g} s"))


def lost(fault: Fault, kind: str) -> tuple[Said, ...]:
    """An exception that loses to an interruption is a warning, not an error (L14a)."""
    return tuple(Said(kind, (leaf.type, leaf.text)) for leaf in fault.raised)


def words(fault: Fault) -> tuple[str, ...]:
    """Everything that came out, as words of one message."""
    return tuple(part for leaf in fault.raised for part in (leaf.type, leaf.text))


def slow(door: Door, fault: Fault) -> dict[str, Any]:
    """What late code costs; what ignores its bound is named in the log (L74)."""
    if not fault.late:
        return {}
    ignores = fault.late == "beyond"
    named = (Said("WARNING", ("ignores that its bound passed",)),)
    return {"seconds": late(door, ignores), "log": named if ignores else ()}


# ---- how a rollout ends


def condition(door: Door, fault: Fault, otherwise: str | None) -> str | None:
    """The first stop condition stays (L17): `close()` has set one, or `rollout.stop` (L22), or what ends the run
    does."""
    if door.state in ("closing", "finalizing", "scoring", "releasing", "completed"):
        return "agent_completed"
    return "asked" if fault.asks == "stop" else otherwise


def ended(door: Door, fault: Fault, state: str, otherwise: str | None, more: Mapping[str, Any]) -> Expected:
    stop, ways = condition(door, fault, otherwise), ends_at(door, fault)
    return Expected(**{"state": state, "stop": stop, "calls": ways, "measured": (), **more})


def failed(door: Door, fault: Fault, **more: Any) -> Expected:
    """A failure: never scored, unless scoring itself failed (L52, L63)."""
    return ended(door, fault, "failed", "error", more)


def aborted(door: Door, fault: Fault, **more: Any) -> Expected:
    """A cancellation: an interrupt comes out bare, the caller's own fresh; `rollout.cancel()` only lets the verb return
    (L70, L72)."""
    out = fault.interrupt or ("Cancelled" if fault.asks == "caller" else "")
    return ended(door, fault, "aborted", "cancelled", {"raised": out, "warnings": lost(fault, "after_cancel"), **more})


def goes_on(door: Door, fault: Fault, **more: Any) -> Expected:
    """Nothing is wrong with it. A stop that was asked for refuses the next turn: no segment runs if none does, and one
    that runs makes no further turn (L22)."""
    skipped: tuple[str, ...] = ()
    if fault.asks == "stop" and door.state in ("created", "booting", "setup", "waiting"):
        skipped = ("intercept.user", "session.run", *TURN)
    elif fault.asks == "stop" and door.state == "stepping" and door.name not in AMID_A_TURN:
        skipped = TURN
    calls = tuple(name for name in PATH if name not in skipped)
    return Expected(**{"stop": condition(door, fault, "agent_completed"), "calls": (calls,), **more})
