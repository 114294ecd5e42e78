"""A box that lives: bubblewrap as a process, the socket to the box's first process, and the tasks that serve it."""

import os
import socket
import subprocess
from contextlib import ExitStack

import trio
from attrs import define, field

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtimes import launch
from rollout_fsm.runtimes.bubblewrap import remains
from rollout_fsm.runtimes.bubblewrap.command import bubblewrap, command_line, explain
from rollout_fsm.runtimes.bubblewrap.control import Control
from rollout_fsm.runtimes.bubblewrap.folder import LEFT, SAID, Folder, in_memory
from rollout_fsm.runtimes.bubblewrap.lease import BoxLease
from rollout_fsm.runtimes.bubblewrap.programs import BoxPrograms
from rollout_fsm.runtimes.bubblewrap.seccomp import filter_program
from rollout_fsm.runtimes.bubblewrap.watch import watch
from rollout_fsm.runtimes.bubblewrap.ways import Ways
from rollout_fsm.runtimes.table import Process
from rollout_fsm.runtimes.tasks import Tasks

PATIENCE = 5.0
"""Seconds in which a box has to be dead once its first process was told."""

AGAIN, TRIES = 0.1, 20
"""Seconds until what a box has written is measured again where that failed, and how often that may be in a row."""
RECOVERED = 1.0
"""Seconds that it was measured for after which an earlier failure is over."""


@define(eq=False, repr=False)
class Box:
    """One box, from before its start to after its end. `name` is its runtime's."""

    name: str
    lease: BoxLease
    folder: Folder
    control: Control = field(init=False)
    programs: BoxPrograms = field(init=False)
    ways: Ways = field(init=False)
    condemned: str | None = field(init=False, default=None)
    """Why it was ended, where its limits did that."""
    _theirs: socket.socket = field(init=False)
    """The first process's end of the socket, until that has it."""
    _tasks: Tasks = field(init=False)
    _process: trio.Process | None = field(init=False, default=None)
    """Bubblewrap, which ends when the box has."""

    def __attrs_post_init__(self) -> None:
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control = Control.of(self.name, ours)
        self._tasks = Tasks(f"runtime {self.name}", self._forsaken)
        self.programs = BoxPrograms(runtime=self.name, control=self.control, cap=self.lease.cap, grace=self.lease.grace)
        self.ways = Ways(self.name, self.control, self._tasks)

    async def start(self) -> None:
        """Bring it up. `end` follows, also where this fails or is cancelled. Raises `SandboxError`."""
        await self._tasks.open()
        process = await self._launch()
        self._tasks.start_soon(self.control.attend)
        try:
            await self.control.ready()
        except SandboxError as error:
            with trio.move_on_after(PATIENCE):
                await process.wait()
            raise explain(self.name, self.folder.said(), process.returncode) from error
        self._tasks.start_soon(self._watch, process)

    @trio.lowlevel.enable_ki_protection
    async def _launch(self) -> trio.Process:
        """Run bubblewrap and know it: nothing comes between the two, neither a cancellation nor a Ctrl-C."""
        program = bubblewrap()
        outer = {name: value for name, value in os.environ.items() if name.startswith(launch.MARKER)}
        with self._theirs, ExitStack() as opened:
            left, said = self.folder.open_file(LEFT), self.folder.open_file(SAID)
            calls = in_memory(filter_program())
            for descriptor in (left, said, calls):
                opened.callback(os.close, descriptor)
            os.ftruncate(said, 0)
            inherited = self._theirs.fileno(), left, calls
            try:
                self._process = await trio.lowlevel.open_process(
                    command_line(program, self.lease, self.folder, inherited),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    env={**outer, self.lease.marker: "0"},
                    pass_fds=inherited,
                    start_new_session=True,
                )
            except OSError as error:
                raise SandboxError(f"runtime {self.name} could not start {program}: {error}") from error
        return self._process

    async def _watch(self, process: trio.Process) -> None:
        failures = 0
        while self.condemned is None:
            began = trio.current_time()
            try:
                self.condemned = await watch(self.folder, self.lease.limits, process.pid)
            except OSError as error:  # the engine has no descriptors left, say
                failures = 1 if trio.current_time() - began > RECOVERED else failures + 1
                if failures == TRIES:
                    self.condemned = f"what it has written could not be measured any more: {error}"
                await trio.sleep(AGAIN)
        self.control.lose(f"was ended: {self.condemned}")
        await self._dead()

    def _forsaken(self) -> None:
        """The event loop ends, or the box: nobody will answer the first process."""
        self.control.lose("lost the tasks that serve it")

    async def answers(self) -> bool:
        """Whether the first process answers. Raises `SandboxError` where the limits ended the box."""
        if self.condemned is not None:
            self.control.require()
        try:
            await self.control.ask("ping")
        except SandboxError:
            return False
        return True

    async def kill(self) -> int:
        """End everything that came since the execution began, and wait for that; returns how many survive. Shielded."""
        survivors = await self.programs.kill()
        return survivors if self.control.lost is None else len(await self._dead())

    async def end(self, why: str) -> list[Process]:
        """End it with everything that lives in it, and wait for that; returns the survivors. Any number of times.

        Shielded; bounded by twice `PATIENCE`.
        """
        self.control.lose(why)
        self._theirs.close()
        survivors = await self._dead()
        with trio.CancelScope(shield=True):
            await self._tasks.close()
        return survivors

    async def _dead(self) -> list[Process]:
        """Wait until the box, which was told to end, is dead; what is not is killed. Returns the survivors."""
        survivors: list[Process] = []
        process = self._process
        with trio.CancelScope(shield=True):
            if process is not None:
                with trio.move_on_after(PATIENCE):
                    await process.wait()
                if process.returncode != 0:  # it did not end as the first process did, or not at all
                    survivors = await remains.end(self.lease.marker)
                    with trio.move_on_after(PATIENCE):
                        await process.wait()
        return survivors
