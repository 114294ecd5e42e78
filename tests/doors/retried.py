"""A rollout that fails at first and is tried again, with a broken door where that is decided and told; and what the
rules say of it."""

import gc
import weakref
from typing import Any

import trio
from attrs import define, field, frozen

from rollout_fsm import ChatHarness, ProviderError, Request, RetryPolicy, ScriptedModel, Trace, check_trace, open_engine
from rollout_fsm.engine import Engine
from tests.doors.doors import Door
from tests.doors.faults import Fault
from tests.doors.house import House
from tests.doors.left import NEW, YARD, LeftBox
from tests.doors.played import listening, stray
from tests.doors.rules import CAME, Said, answer, are, words

PAUSE = 10.0
"""Seconds of back-off."""


@define(eq=False, kw_only=True)
class Retried:
    """What came of it; itself an observer."""

    house: House
    engine: Engine
    minted: list[Trace] = field(factory=list)
    told: list[tuple[str, str]] = field(factory=list)
    """What was told at the end of each attempt: the event, and the trace's id."""
    kept: "list[weakref.ref[Any]]" = field(factory=list)
    returned: Trace | None = None
    raised: str = ""
    seconds: float = 0.0
    tasks_left: int = 0
    log: list[tuple[str, str]] = field(factory=list)
    last_lines: list[str] = field(factory=list)

    def on_trace(self, trace: Trace) -> None:
        self.minted.append(trace)
        assert self.engine._register is not None
        *_, rollout = self.engine._register.live
        self.house.minted = weakref.ref(rollout)
        self.kept += [weakref.ref(rollout), weakref.ref(rollout._world)]

    def on_retry(self, trace: Trace, seconds: float) -> Any:
        self.told.append(("retry", trace.id))
        return self.house.look("observer.on_retry", None)

    def on_finished(self, trace: Trace) -> None:
        self.told.append(("finished", trace.id))


async def try_twice(door: Door, fault: Fault) -> Retried:
    """One rollout whose first attempt fails, and the second does not."""
    house = House(door=door.name, fault=fault)
    if fault.stray or "group" in fault.name:
        house.kept = [await stray() for _ in range(4)]
    engine = open_engine(gateway=False)
    came = Retried(house=house, engine=engine)
    YARD.house, YARD.standing = House(), set()

    def reply(request: Request) -> str:
        if len(came.minted) == 1:
            raise ProviderError("overloaded", status_code=529)
        return "reply"

    def backoff(retry: int) -> Any:
        return house.look("backoff", PAUSE)

    policy = RetryPolicy(max_retries=1, backoff=backoff)
    started = trio.current_time()
    gc.disable()
    try:
        with listening(came):
            async with engine:
                before = trio.lowlevel.current_statistics().tasks_living
                await _run(came, harness=ChatHarness(), model=ScriptedModel(reply), runtime=LeftBox, retry=policy)
                came.tasks_left = trio.lowlevel.current_statistics().tasks_living - before
        house.kept.clear()
        await trio.lowlevel.checkpoint()  # the event loop lets go of the task that it ran last
        came.kept = [reference for reference in came.kept if reference() is not None]
    finally:
        gc.enable()
    came.seconds = trio.current_time() - started
    return came


async def _run(came: Retried, **agent: Any) -> None:
    with came.house.scope:
        try:
            came.returned = await came.engine.run(NEW, observers=[came], **agent)
        except trio.Cancelled:
            came.raised = "Cancelled"
            raise
        except BaseException as raised:  # noqa: BLE001  (what came out is what is asked)
            came.raised = type(raised).__name__


@frozen(kw_only=True)
class Expected:
    attempts: int
    raised: str = ""
    seconds: float = 0.0
    told: tuple[str, ...] | None
    """None: another attempt was to follow, and then was not; who is told what of that is open."""
    log: tuple[Said, ...] = ()


def expected(door: Door, fault: Fault) -> Expected:
    """A back-off that is none ends the attempts, and is said; what an observer raises disturbs nothing (L42). After an
    interrupt or a cancellation nothing is tried again (L14a), and the attempt that there was is the last."""
    verdict, log = answer(door, fault), tuple[Said, ...]()
    if door.means == "log":
        log = (Said("ERROR", (door.says,)),) if fault.raised or fault.stray or fault.interrupt else ()
    elif verdict == "errored" or (verdict and fault.raised):
        log = (Said("ERROR", (door.says, *words(fault), CAME.get(fault.returned, ""))),)
    if fault.asks == "fail":  # the rollout has ended, so it is only said (L43)
        verdict, log = "", (Said("WARNING", ("reported",)),)
    decided = door.means == "log" or fault.asks == "caller"
    if verdict == "cancel":
        raised = fault.interrupt or "Cancelled"
        return Expected(attempts=1, raised=raised, told=None if decided else ("finished",), log=log)
    if verdict == "errored" and door.means == "again":
        return Expected(attempts=1, told=("finished",), log=log)
    return Expected(attempts=2, seconds=PAUSE, told=("retry", "finished"), log=log)


def differences(came: Retried, want: Expected) -> list[str]:
    """Everything in which it is not what the rules say, or should never be."""
    told = tuple(event for event, _ in came.told) if want.told is not None else None
    has = {"attempts": len(came.minted), "raised": came.raised, "seconds": came.seconds, "told": told}
    found = [
        f"{name}: {getattr(want, name)!r} is right, {value!r} came"
        for name, value in has.items()
        if value != getattr(want, name)
    ]
    if not are(came.log, want.log):
        found.append(f"log: {want.log} is right, {came.log} came")
    last = came.minted[-1]
    if not want.raised and came.returned is not last:
        found.append(f"returned: {came.returned}")
    if [trace.ok for trace in came.minted] != [False, True][: want.attempts]:
        found.append(f"traces: {came.minted}")
    earlier = [told["id"] for told in last.info.get("attempts", [])]  # type: ignore[union-attr, call-overload, index]
    if earlier != [trace.id for trace in came.minted[:-1]]:
        found.append(f"the last attempt tells of {earlier}")
    found += [f"{trace.id}: {fault}" for trace in came.minted for fault in check_trace(trace)]
    found += [f"{trace!r} is not sealed" for trace in came.minted if not trace.sealed]
    if came.tasks_left or YARD.standing or came.kept:
        found.append(f"left: {came.tasks_left} tasks, boxes {YARD.standing}, kept by a cycle {came.kept}")
    return found
