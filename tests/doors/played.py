"""One rollout with a broken door, beside a healthy one in the same engine: what was seen of it from outside."""

import gc
import logging
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

import trio
import trio.testing
from attrs import define, evolve, field, frozen

from rollout_fsm import RolloutTimeouts, Trace, open_engine, read_traces
from rollout_fsm.engine import Engine
from rollout_fsm.journal import Journal, JournalContent
from rollout_fsm.output import JOURNAL, TRACES
from tests.doors.doors import Door
from tests.doors.faults import Fault, awaits_asyncio
from tests.doors.house import BOUNDS, House
from tests.doors.parties import live, mint

MEMORY = Path("/dev/shm")
"""Where files cost nothing to be synced, on systems that have that."""
PATIENT: RolloutTimeouts = evolve(BOUNDS, agent=1_000.0)


@define(eq=False, kw_only=True)
class Played:
    """What one broken door came to."""

    door: Door
    fault: Fault
    house: House
    raised: str = ""
    """The type of what the verbs raised."""
    left_by: str = ""
    """The type of what leaving the engine raised."""
    seconds: float = 0.0
    """Virtual ones, to the end of the engine."""
    tasks_left: int = 0
    """Tasks that lived on when the rollout was final, but for those of what was entered."""
    log: list[tuple[str, str]] = field(factory=list)
    """Levels and messages, from warnings on."""
    last_lines: list[str] = field(factory=list)
    """What was logged at the end of each rollout (L57)."""
    beside: bool
    """Whether a healthy rollout was beside it."""
    sibling: Trace | None = None
    kept: list[str] = field(factory=list)
    """What outlived the rollout without the cycle collector."""
    on_disk: "OnDisk | None" = None
    """What the run's folder holds in the end; None where it had none."""


def unreadable(line: int, fault: str) -> None:
    raise AssertionError(f"line {line} of the file of traces: {fault}")


@frozen(kw_only=True)
class OnDisk:
    """What a run left in its folder."""

    written: list[Trace]
    journal: JournalContent

    @classmethod
    def of(cls, folder: Path) -> "OnDisk":
        journal = Journal.open(folder / JOURNAL)
        try:
            return cls(written=list(read_traces(folder / TRACES, on_fault=unreadable)), journal=journal.read())
        finally:
            journal.close()


class Listening(logging.Handler):
    """Keeps text only, so that nothing is kept alive by the log."""

    def __init__(self, played: Played) -> None:
        super().__init__()
        self.played = played

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.levelno >= logging.WARNING:
            self.played.log.append((record.levelname, message))
        elif message.startswith("rollout done"):
            self.played.last_lines.append(message)


@contextmanager
def listening(played: Played) -> Iterator[None]:
    log, handler = logging.getLogger("rollout_fsm"), Listening(played)
    level, passes_on = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = passes_on


async def at_once(work: Callable[..., object], *args: object, limiter: object = None) -> object:
    """Blocking work without a thread, which a virtual clock would not wait for."""
    await trio.lowlevel.checkpoint_if_cancelled()
    value = work(*args)
    await trio.lowlevel.cancel_shielded_checkpoint()
    return value


@contextmanager
def folder_of_a_run() -> Iterator[Path]:
    """A folder for the run of an engine in virtual time."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder, patch.object(trio.to_thread, "run_sync", at_once):
        yield Path(folder)


async def stray() -> trio.Cancelled:
    """A Cancelled that was caught, and is kept for later."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            return cancelled
    raise AssertionError("it was not cancelled")


async def play(door: Door, fault: Fault, *, sibling: bool = True, kept: bool = False) -> Played:
    """One rollout with this door broken, whole; beside it a healthy one that is in the middle of a turn all the
    while. `kept`: the run has a folder, as it has in the scene of that name."""
    with folder_of_a_run() if kept or door.scene == "kept" else nullcontext() as folder:
        played = await _play(door, fault, sibling, folder)
        if folder is not None:
            played.on_disk = OnDisk.of(folder)
    return played


async def _play(door: Door, fault: Fault, sibling: bool, folder: Path | None) -> Played:
    house = House(door=door.name, fault=fault, scene=door.scene, seconds=door.seconds if door.bound else 0.0)
    if fault.stray or "group" in fault.name:
        house.kept = [await stray() for _ in range(12)]
    played = Played(door=door, fault=fault, house=house, beside=sibling)
    ended, started = trio.Event(), trio.current_time()
    watched: dict[str, weakref.ref[object]] = {}
    gc.disable()
    try:
        with listening(played):
            try:
                async with open_engine(gateway=False, output_dir=folder) as engine, trio.open_nursery() as beside:
                    if sibling:
                        beside.start_soon(_sibling, engine, played, ended)
                        await trio.testing.wait_all_tasks_blocked()
                    await _alone(engine, played, watched)
                    ended.set()
            except (KeyboardInterrupt, SystemExit) as struck:
                played.left_by = type(struck).__name__
        house.kept.clear()
        await trio.lowlevel.checkpoint()  # the event loop lets go of the task that it ran last
        if fault.wait is not awaits_asyncio:  # the event loop keeps the exception that it threw in last
            played.kept = [name for name, reference in watched.items() if reference() is not None]
    finally:
        gc.enable()
    played.seconds = trio.current_time() - started
    return played


async def _alone(engine: Engine, played: Played, watched: dict[str, "weakref.ref[object]"]) -> None:
    before = _living()
    try:
        with played.house.scope:
            async with trio.open_nursery() as callers:
                callers.start_soon(_call, engine, played, watched)
    finally:
        played.tasks_left = _living() - before


def _living() -> int:
    """How many tasks there are, without the sibling's: where an interrupt ends the engine, these end just then."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    left, living = [root], 0
    while left:
        task = left.pop()
        if not task.name.endswith(f".{_sibling.__name__}"):
            living += 1
            left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return living


async def _call(engine: Engine, played: Played, watched: dict[str, "weakref.ref[object]"]) -> None:
    try:
        rollout = mint(engine, played.house)
        watched.update(rollout=weakref.ref(rollout), world=weakref.ref(rollout._world))
        await live(rollout)
    except trio.Cancelled:
        played.raised = "Cancelled"
        if trio.current_effective_deadline() <= trio.current_time():  # the caller's own, and no stray one
            raise
    except BaseException as raised:  # noqa: BLE001  (what came out is what is asked)
        played.raised = type(raised).__name__


async def _sibling(engine: Engine, played: Played, ended: trio.Event) -> None:
    house = House(answer=ended.wait)
    rollout = mint(engine, house, PATIENT)
    played.sibling = house.trace
    await live(rollout)
