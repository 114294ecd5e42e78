"""What the rules say of any fault at any door: what the answer to the five questions (L14a) means there."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve

from tests.doors.doors import Door, Means
from tests.doors.faults import Fault
from tests.doors.rules import (
    EVERY_SIGNAL,
    SIGNALS,
    Expected,
    Said,
    aborted,
    answer,
    condition,
    failed,
    failures,
    goes_on,
    lost,
    slow,
    the_end,
    timeout,
    told,
    until,
    words,
)

LENT = ("runtime.factory", "runtime.start", "runtime.prepare_setup", "runtime.stop")
"""What is not done to a lent runtime (L2)."""


def expected(door: Door, fault: Fault) -> Expected:
    """The outcome that the rules say."""
    if fault.asks == "nursery":
        return of_nursery(door, fault)
    return BY_MEANS[door.means](door, fault)


def of_nursery(door: Door, fault: Fault) -> Expected:
    """It cancels the nursery that it is in. The caller's is the caller's cancellation; a shield holds; nobody asked for
    a cancellation of the engine's own, so what it interrupts has failed (L14a): the harness with its turn, a signal."""
    match door.nursery:
        case "caller":
            return BY_MEANS[door.means](door, evolve(fault, asks="caller"))
        case "shield":
            return BY_MEANS[door.means](door, evolve(fault, asks=""))
        case "segment":
            return failed(door, fault, errors=(Said("HarnessError", ("segment", "Cancelled")),))
    return BY_MEANS[door.means](door, evolve(fault, asks="", stray=True))


# ---- failures of an activity


def of_error(door: Door, fault: Fault) -> Expected:
    """A failure of booting, setup, a segment, finalize (L7, L13, L40)."""
    match answer(door, fault):
        case "cancel":
            return aborted(door, fault)
        case "timed_out":
            return failed(
                door, fault, errors=(timeout(door, fault),), warnings=lost(fault, "after_timeout"), **slow(door, fault)
            )
        case "errored":
            return failed(door, fault, errors=failures(door, fault))
    return goes_on(door, fault)


def of_enter(door: Door, fault: Fault) -> Expected:
    """Who waits for a shared thing is bounded, the entering is not: it is interrupted when the engine ends, in a task
    of the engine's. So an interrupt there strikes the engine as well."""
    want = of_error(door, fault)
    if fault.late:
        said = Said(door.error, (door.says, "timed out", f"timeouts.boot = {door.seconds:g} s"))
        return failed(door, fault, errors=(said,), seconds=want.seconds)
    return aborted(door, fault, left_by=fault.interrupt) if fault.interrupt else want


def of_hook(door: Door, fault: Fault) -> Expected:
    """A failing stop or interceptor fails the rollout and is named (L35). Its bound is its own (L37): what it raises
    instead of being interrupted is lost with it."""
    if answer(door, fault) == "timed_out":
        return failed(door, fault, errors=(timeout(door, fault),), **slow(door, fault))
    return of_error(door, fault)


def of_model(door: Door, fault: Fault) -> Expected:
    """Whatever a model raises is the model's failure, however typed and however the harness ends (L20); the budget is
    the agent's (L13). A call that is cut off with its segment is answered to nobody (L24)."""
    match answer(door, fault):
        case "errored":
            said = tuple(Said("ProviderError", (door.says, leaf.type, leaf.text)) for leaf in fault.raised)
            return failed(door, fault, errors=said or failures(door, fault))
        case "timed_out":
            return failed(door, fault, errors=(timeout(door, fault),), **slow(door, fault))
    return of_error(door, fault)


# ---- scoring


def of_signal(door: Door, fault: Fault) -> Expected:
    """What failed stays None and stands as an error, whatever comes after it; the others are measured, as far as there
    is time (L62, L63)."""
    at = next(place for place, kind in enumerate(SIGNALS) if door.name in kind)
    before = tuple(name for kind in SIGNALS[:at] for name in kind)
    later = tuple(name for kind in SIGNALS[at + 1 :] for name in kind)
    others = tuple(name for name in EVERY_SIGNAL if name != door.name)
    begun = (the_end(until(SIGNALS[at][-1]), segment=False),)
    match answer(door, fault):
        case "cancel":
            stands = told(door, fault.raised)  # beside an interrupt, and in time
            return aborted(
                door, fault, errors=stands, warnings=(), calls=begun, measured=before, unmeasured=(door.name, *later)
            )
        case "timed_out":
            return failed(
                door, fault, errors=(timeout(door, fault),), warnings=lost(fault, "after_timeout"), calls=begun,
                measured=tuple(name for name in others if name not in later), unmeasured=(door.name, *later),
                **slow(door, fault),
            )  # fmt: skip
        case "errored":
            every = (the_end(until("judge.score"), segment=False),)
            return failed(
                door, fault, errors=failures(door, fault), calls=every, measured=others, unmeasured=(door.name,)
            )
    return goes_on(door, fault)


def of_naming(door: Door, fault: Fault) -> Expected:
    """Judges that cannot be named fail the scoring; the other signals are measured all the same (L60, L63)."""
    if answer(door, fault) != "errored":
        return of_error(door, fault)
    own = EVERY_SIGNAL[:-1]
    calls = (the_end(until("reward"), segment=False),)
    return failed(door, fault, errors=failures(door, fault), calls=calls, measured=own)


# ---- what is asked when something is wrong already


def of_alive(door: Door, fault: Fault) -> Expected:
    """A program failed. Only a yes, in time, leaves it the harness's failure; else the box is dead, and why it did not
    say yes is kept (L40, L41, L74)."""
    done = (*until("stop.response"), door.name)
    calls = (the_end(done, segment=True),)
    match answer(door, fault):
        case "cancel":
            return aborted(door, fault, calls=calls)
        case "":
            said = Said("HarnessError", ("exited with 3", "no luck"))
            return failed(door, fault, errors=(said,), calls=calls)
    dead = Said(door.error, (door.says, "exited with 3", *words(fault)))
    return failed(door, fault, errors=(dead,), calls=calls, **slow(door, fault))


def of_kill(door: Door, fault: Fault) -> Expected:
    """A segment failed. What does not say, in time, that everything was killed is a survivor, which stands after the
    segment's own error, and on a cancelled run as well (L13, L74)."""
    calls = (the_end(until("stop.response"), segment=True),)
    own = Said("HarnessError", ("segment", "ValueError", "the agent's own"))
    verdict = answer(door, fault)
    spoilt = bool(verdict) and fault.asks != "caller"
    survivor = (Said(door.error, (door.says, *words(fault))),) if spoilt else ()
    if verdict != "cancel":
        return failed(door, fault, errors=(own, *survivor), calls=calls, **slow(door, fault))
    waits = door.seconds if fault.asks == "cancel" else 0.0  # for the end of its own call: shielded, and bounded
    overruled = (Said("after_cancel", ("ValueError", "the agent's own")),)
    return aborted(door, fault, errors=survivor, warnings=overruled, calls=calls, seconds=waits)


def of_stopped(door: Door, fault: Fault) -> Expected:
    """A lent runtime that says that it is stopped is its owner's bug, raised to the caller and blamed on nobody; one
    that cannot say so is not stopped (L3). It is neither started nor stopped by the rollout (L2)."""
    unsaid = (Said("WARNING", ("cannot say if it is stopped",)),)
    seeded: dict[str, Any] = {"unmeasured": EVERY_SIGNAL} if door.state == "scoring" else {}  # before it is asked (L60)
    if answer(door, fault) == "cancel":
        want = aborted(door, fault, **seeded)
        if door.state == "created":  # no activity, of which something could be lost
            want = evolve(want, warnings=())
    elif fault.returned in door.refuses:
        want = aborted(door, fault, stop=condition(door, fault, None), raised="RuntimeLifetimeError", **seeded)
    else:
        unclear = fault.raised or fault.stray or fault.returned == "something hostile"
        want = goes_on(door, fault, log=unsaid if unclear else ())
    calls = tuple(tuple(name for name in way if name not in LENT) for way in want.calls)
    return evolve(want, calls=calls)


# ---- releases


def of_warning(door: Door, fault: Fault) -> Expected:
    """A step that fails, or takes too long, is a warning that names it; every other step is attempted, and nothing of
    the outcome changes (L51, L55). A cancellation waits for the end of `closing`; behind scoring it changes nothing
    (L71)."""
    costs = slow(door, fault)
    if fault.asks == "cancel":  # it waits for its own rollout's end
        costs = {"seconds": door.seconds}
    passed = (f"{door.seconds:g} s (timeouts.{door.bound})", f"{costs['seconds']:g} s passed") if costs else ()
    spoilt = costs or fault.raised or fault.stray or fault.interrupt
    warned = (Said(door.error, (door.says, *passed, *words(fault))),) if spoilt else ()
    if answer(door, fault) == "cancel" and door.state == "closing":
        closed = (the_end(until("first.stop"), segment=False),)
        return aborted(door, fault, warnings=warned, calls=closed, **costs)
    return Expected(raised=fault.interrupt, warnings=warned, **costs)


# ---- who is told, who makes, who leaves


def of_log(door: Door, fault: Fault) -> Expected:
    """What an observer raises is logged and disturbs nothing (L42); but an interrupt is one wherever it comes from
    (L14a)."""
    resting, final = door.name.endswith(("@waiting", "on_trace")), door.state == "completed"
    amid = door.of == "observer.on_activity" and not resting and door.state != "closing"
    if fault.asks == "fail" and door.name.endswith("@waiting"):  # at rest, so it acts (L43)
        return failed(door, fault, errors=(Said("OwnersError", ("reported",)),))
    if fault.asks == "fail" and final:
        return Expected(log=(Said("WARNING", ("reported",)),))
    log = (Said("ERROR", (door.says,)),) if fault.raised or fault.stray or fault.interrupt else ()
    if answer(door, fault) != "cancel":
        return goes_on(door, fault, log=log)
    if door.state in ("releasing", "completed"):  # a scored trace is never lost (L71)
        return Expected(raised=fault.interrupt, log=log)
    if amid:  # something goes on, and is cut off as soon as it waits
        return aborted(door, fault, warnings=(), log=log)
    done = until("first.stop") if door.state == "closing" else until(door.name)
    stop = "cancelled" if resting else condition(door, fault, "cancelled")  # at rest the engine ends it (L75)
    return aborted(door, fault, stop=stop, warnings=(), log=log, calls=(the_end(done, segment=False),))


def of_mint(door: Door, fault: Fault) -> Expected:
    """A mistake of the caller's is raised to the caller as it came, and nothing is made."""
    if answer(door, fault) == "errored" or fault.interrupt:
        return Expected(raised=fault.comes_as or "TypeError", minted=False, calls=((),))
    return aborted(door, fault, calls=((),)) if fault.asks == "caller" else Expected()


def of_leaving(door: Door, fault: Fault) -> Expected:
    """The rollouts are final: what a service does now can only be said, and is bounded (L75)."""
    said = tuple(Said("WARNING", (door.says, leaf.type, leaf.text)) for leaf in fault.raised)
    given_up = (Said("WARNING", (door.says, f"more than {door.seconds:g} s")),) if fault.late else ()
    return Expected(left_by=fault.interrupt, log=(*given_up, *said), seconds=slow(door, fault).get("seconds", 0.0))


BY_MEANS: Mapping[Means, Callable[[Door, Fault], Expected]] = {
    "mint": of_mint,
    "error": of_error,
    "enter": of_enter,
    "hook": of_hook,
    "model": of_model,
    "naming": of_naming,
    "signal": of_signal,
    "alive": of_alive,
    "kill": of_kill,
    "stopped": of_stopped,
    "warning": of_warning,
    "log": of_log,
    "leaving": of_leaving,
}
