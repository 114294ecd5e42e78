"""A run that is gone on with while what its dead process left is asked for by a broken door; and what the rules say."""

from typing import Literal

import trio
from attrs import define, field, frozen

from rollout_fsm import Trace, check_trace, open_engine
from tests.doors.doors import Door
from tests.doors.faults import Fault
from tests.doors.house import House
from tests.doors.left import LEFT, NEW, YARD, Image, agent, put_back
from tests.doors.played import OnDisk, folder_of_a_run, listening, stray
from tests.doors.rules import Said, answer, are, slow, words

Fate = Literal["", "kept on", "anew"]
"""What became of the rollout that was left: nothing yet, gone on with, or run again from the beginning."""


@define(eq=False, kw_only=True)
class Resumed:
    """What came of it, and, if something is owed still, of another resumption, in which nothing is wrong."""

    image: Image
    house: House
    raised: str = ""
    """The type of what the batch raised."""
    seconds: float = 0.0
    log: list[tuple[str, str]] = field(factory=list)
    last_lines: list[str] = field(factory=list)
    yielded: list[Trace] = field(factory=list)
    stays: bool = False
    """Whether the box is in the journal, for the next who comes."""
    tasks_left: int = 0
    again: list[Trace] = field(factory=list)
    """What the other resumption yielded."""
    log_again: list[tuple[str, str]] = field(factory=list)
    on_disk: OnDisk | None = None
    standing: set[str] = field(factory=set)


async def resume(door: Door, fault: Fault, image: Image) -> Resumed:
    """Go on with what the process left, the door being broken; then once more if need be."""
    house = House(door=door.name, fault=fault, scene=door.scene, seconds=door.seconds if door.bound else 0.0)
    if fault.stray or "group" in fault.name:
        house.kept = [await stray() for _ in range(4)]
    came = Resumed(image=image, house=house)
    with folder_of_a_run() as folder:
        put_back(image, folder)
        YARD.house = house
        started = trio.current_time()
        with listening(came), house.scope:
            async with open_engine(gateway=False, output_dir=folder, resume=True) as engine:
                before = trio.lowlevel.current_statistics().tasks_living
                try:
                    async with engine.resume([LEFT, NEW], **agent()) as traces:
                        async for trace in traces:
                            came.yielded.append(trace)
                except trio.Cancelled:
                    came.raised = "Cancelled"
                    raise
                except BaseException as raised:  # noqa: BLE001  (what came out is what is asked)
                    came.raised = type(raised).__name__
                finally:
                    came.tasks_left = trio.lowlevel.current_statistics().tasks_living - before
        came.seconds = trio.current_time() - started
        (attempt, *_) = OnDisk.of(folder).journal.attempts
        came.stays = [lease.data for lease in attempt.leases] == [{"box": image.box}]
        assert came.stays or image.box not in YARD.standing
        if came.stays or came.raised:
            YARD.house = House(scene=door.scene)
            log, came.log = came.log, []
            with listening(came):
                opening = open_engine(gateway=False, output_dir=folder, resume=True)
                async with opening as engine, engine.resume([LEFT, NEW], **agent()) as traces:
                    came.again = [trace async for trace in traces]
            came.log_again, came.log = came.log, log
        came.on_disk = OnDisk.of(folder)
        came.standing = set(YARD.standing)
    house.kept.clear()
    return came


# ---- what the rules say


@frozen(kw_only=True)
class Expected:
    raised: str = ""
    fate: Fate
    stays: bool = False
    seconds: float = 0.0
    log: tuple[Said, ...] = ()


def expected(door: Door, fault: Fault) -> Expected:
    """A box that cannot be removed stays, is said and stays in the journal; one that cannot be taken over is removed,
    and its rollout owed again, unless it needs no box any more (L73). An interrupt comes out bare (L70)."""
    verdict, adopting = answer(door, fault), "reclaim" not in door.name
    told = tuple(words(fault))
    if verdict == "cancel":
        log = (Said("ERROR", (door.says, *told)),) if told else ()
        return Expected(raised=fault.interrupt or "Cancelled", fate="", stays=True, log=log)
    needs_no_box = door.scene == "to be released"
    if fault.asks == "nursery":  # nobody asked for that, so what it interrupts has failed
        return Expected(fate="anew", stays=True, log=(Said("ERROR", (door.says, "cancelled")),))
    if not verdict:
        return Expected(fate="kept on" if adopting else "anew")
    if verdict == "timed_out":
        told = (f"more than {door.seconds:g} s", *told)
    elif fault.returned:
        told = (door.wrong,)
    elif fault.stray:
        told = ("Cancelled although nothing was cancelled",)
    costs = slow(door, fault)
    return Expected(
        fate="kept on" if adopting and needs_no_box else "anew",
        stays=not adopting,
        seconds=costs.get("seconds", 0.0),
        log=(*costs.get("log", ()), Said("ERROR", (door.says, *told))),
    )


def differences(came: Resumed, want: Expected) -> list[str]:
    """Everything in which it is not what the rules say, or should never be."""
    found = [
        f"{name}: {right!r} is right, {has!r} came"
        for name in ("raised", "stays", "seconds")
        if (has := getattr(came, name)) != (right := getattr(want, name))
    ]
    fates = {trace.task.data["prompt"]: _fate(came.image, trace) for trace in came.yielded}  # type: ignore[index]
    right: dict[object, str] = {} if not want.fate else {LEFT.prompt: want.fate, NEW.prompt: "new"}
    if fates != right or len(fates) != len(came.yielded):
        found.append(f"yielded: {right} is right, {came.yielded} came")
    if not are(came.log, want.log):
        found.append(f"log: {want.log} is right, {came.log} came")
    if came.tasks_left:
        found.append(f"{came.tasks_left} tasks live on")
    return [*found, *_in_the_end(came)]


def _fate(image: Image, trace: Trace) -> str:
    if trace.id == image.box:
        return "kept on"
    return "anew" if trace.info.get("attempts") else "new"


def _in_the_end(came: Resumed) -> list[str]:
    """Whoever comes next finds all of it: each rollout is done once, and no box stands (L73)."""
    assert came.on_disk is not None
    written = came.on_disk.written
    found = [f"{trace.id}: {fault}" for trace in written for fault in check_trace(trace)]
    if sorted(str(trace.task.data["prompt"]) for trace in written) != sorted([str(LEFT.prompt), str(NEW.prompt)]):  # type: ignore[index]
        found.append(f"written in the end: {written}")
    found += [f"in the end: {trace!r}" for trace in written if not trace.ok or trace.reward != 1.0]
    found += [f"{trace!r} was yielded and is not written" for trace in came.yielded if trace not in written]
    if {trace.id for trace in came.again} & {trace.id for trace in came.yielded}:
        found.append("a trace was yielded twice")
    left = [lease for attempt in came.on_disk.journal.attempts for lease in attempt.leases]
    if came.standing or left:
        found.append(f"boxes stand in the end: {came.standing}, in the journal: {left}")
    if came.log_again:
        found.append(f"log of the second resumption: {came.log_again}")
    return found
