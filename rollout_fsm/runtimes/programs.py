"""The programs of one box: how they are run, and how they and all that they started are ended.

A program runs in a session of its own, bears the box's marker, and is known from the moment it exists. A run that is
left by anything but the program's own exit first ends the program and all that it started: TERM, a grace, KILL,
waited for under a shield that is bounded. A run that the program's own exit ends leaves alone what the program
started (L13). The table of processes is read in a thread.
"""

import logging
import math
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import trio
from attrs import define, field
from trio.lowlevel import FdStream

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtime import ProgramResult
from rollout_fsm.runtimes import launch
from rollout_fsm.runtimes.conversation import converse, read_what_is_there
from rollout_fsm.runtimes.looks import looks
from rollout_fsm.runtimes.output import HeadTail
from rollout_fsm.runtimes.processes import Box, Strike, group_exists
from rollout_fsm.runtimes.table import Process
from rollout_fsm.runtimes.threads import file_limiter

DRAIN = 0.1
"""Seconds after a program's exit in which what it left behind may still write to its output."""
PATIENCE = 5.0
"""Seconds that killed processes are waited for before they are called survivors."""
PAUSES = (0.002, 0.1)
"""Seconds between two looks at the table while processes die: the first pause, and the longest that it is doubled to.
"""

QUIET = 3
"""How many looks at the table in a row have to show none until none is believed to be left."""

log = logging.getLogger("rollout_fsm")


@define(eq=False, repr=False, kw_only=True)
class Programs:
    """Runs and ends the programs of a box. `runtime` is the box's name, for messages; `marker` is the variable that
    tells its programs from all others; `cap` is in bytes, `grace` in seconds.
    """

    runtime: str
    marker: str
    cap: int
    grace: float
    closed: bool = field(init=False, default=False)
    """Once set, no program is run any more."""
    next_serial: int = field(init=False, default=0)
    """The number that the next program gets: `range(next_serial, …)` are the programs from now on."""
    _known: dict[int, trio.Process] = field(init=False, factory=dict)
    """By serial number: programs that were started and not let go of yet."""
    _starting: set[int] = field(init=False, factory=set)
    _orphaned: dict[int, int] = field(init=False, factory=dict)
    """Session to serial number, where a program was let go of and its process group lived on."""

    @property
    def running(self) -> int:
        """How many programs run."""
        return len(self._known)

    async def run(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        env: Mapping[str, str],
        data: bytes | None,
        timeout: float | None,
    ) -> ProgramResult:
        """Run a program to its exit. `timeout` is in seconds; raises what `Runtime.run` says."""
        serial, process = await self._start(argv, workspace, env, data)
        out, err = HeadTail(self.cap), HeadTail(self.cap)
        pipes = [(cast(FdStream, process.stdout), out), (cast(FdStream, process.stderr), err)]
        exited = False
        try:
            if self.closed:
                raise SandboxError(f"runtime {self.runtime} was stopped while {argv[0]!r} was being started")
            with trio.move_on_after(math.inf if timeout is None else timeout):
                await converse(process.wait, process.stdin, data, pipes, drain=DRAIN)
            exited = process.returncode is not None
            if exited:
                for pipe, buffer in pipes:
                    read_what_is_there(pipe, buffer)
        finally:
            await self._let_go(serial, process, exited=exited)
        if self.closed:
            raise SandboxError(f"runtime {self.runtime} was stopped while {argv[0]!r} ran")
        if not exited or process.returncode is None:
            raise TimeoutError(f"{list(argv)!r} did not end within {timeout} s and was killed")
        return ProgramResult(exit_code=process.returncode, stdout=out.text(), stderr=err.text())

    async def end(self, first: int = 0) -> list[Process]:
        """End what comes from the program number `first` or later ones, and wait for it; returns the survivors.

        Shielded, and bounded by the grace and twice `PATIENCE`.
        """
        wanted = range(first, sys.maxsize)
        if first >= self.next_serial:
            return []
        with trio.CancelScope(shield=True):
            survivors = await self._end(wanted)
            with trio.move_on_after(PATIENCE):
                for serial, process in list(self._known.items()):
                    if serial in wanted:
                        await process.wait()
        return survivors

    async def take_over(self) -> None:
        """Count what an earlier process started with this marker as this box's: `end` ends it, and what is started from
        now on is numbered after it.
        """
        ask = Strike(box=self._box(), wanted=range(sys.maxsize), signum=0)
        found = await looks().strike(lambda: ask)
        self.next_serial = 1 + max((process.serial or 0 for process in found), default=0)

    @trio.lowlevel.enable_ki_protection
    async def _start(
        self, argv: Sequence[str], workspace: Path, env: Mapping[str, str], data: bytes | None
    ) -> tuple[int, trio.Process]:
        """Start a program and know it: nothing comes between the two, neither a cancellation nor a Ctrl-C."""
        serial = self.next_serial
        self.next_serial += 1
        self._starting.add(serial)
        try:
            process = await trio.lowlevel.open_process(
                argv,
                stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=str(workspace),
                env={**env, self.marker: str(serial)},
                start_new_session=True,
            )
            self._known[serial] = process
        except OSError as error:
            explained = partial(launch.explain, error, argv, env, workspace, self.runtime)
            raise await trio.to_thread.run_sync(explained, limiter=file_limiter()) from error
        finally:
            self._starting.discard(serial)
        return serial, process

    async def _let_go(self, serial: int, process: trio.Process, *, exited: bool) -> None:
        """Let go of a program; where it did not exit by itself, it and all that it started are ended first."""
        with trio.CancelScope(shield=True):
            if not exited:
                survivors = await self._end(range(serial, serial + 1))
                with trio.move_on_after(PATIENCE):
                    await process.wait()
                if survivors:
                    log.warning("runtime %s: %s of %r would not die", self.runtime, pids(survivors), process.args)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    await trio.aclose_forcefully(pipe)
            if process.returncode is not None:
                del self._known[serial]
                if group_exists(process.pid):
                    self._orphaned[process.pid] = serial

    async def _end(self, wanted: range) -> list[Process]:
        """TERM once to each, after the grace KILL to all, until the table shows none or `PATIENCE` is out.

        KILL is sent also where TERM seems to have been enough: to the groups, in which it misses nobody. One look that
        shows none proves little, several in a row do.
        """
        pause, longest = PAUSES
        signum, until, quiet = signal.SIGTERM, trio.current_time() + self.grace, 0
        asked: set[Process] = set()
        while True:
            found = await looks().strike(partial(self._strike, wanted, signum, frozenset(asked)))
            starting = any(serial in wanted for serial in self._starting)
            quiet = 0 if found or starting else quiet + 1
            now = trio.current_time()
            if signum == signal.SIGTERM and (quiet or now >= until):
                signum, until = signal.SIGKILL, now + PATIENCE
                asked.clear()
                continue
            if signum == signal.SIGKILL and (quiet >= QUIET or (not quiet and now >= until)):
                return found
            if quiet:
                continue
            asked.update(found)
            await trio.sleep(pause)
            pause = min(2 * pause, longest)

    def _strike(self, wanted: range, signum: int, asked: frozenset[Process]) -> Strike:
        spared = asked if signum == signal.SIGTERM else frozenset[Process]()
        return Strike(box=self._box(), wanted=wanted, signum=signum, spared=spared)

    def _box(self) -> Box:
        led = {process.pid: serial for serial, process in self._known.items() if process.returncode is None}
        left = {process.pid: serial for serial, process in self._known.items() if process.returncode is not None}
        return Box(marker=self.marker, led=led, orphaned={**self._orphaned, **left})


def pids(processes: Sequence[Process]) -> str:
    """Processes for a message: `process 7`, `processes 7, 9`."""
    numbers = ", ".join(str(process.pid) for process in processes)
    return f"process {numbers}" if len(processes) == 1 else f"processes {numbers}"
