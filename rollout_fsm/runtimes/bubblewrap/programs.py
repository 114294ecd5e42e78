"""The programs of a box: run by its first process, whom the engine tells.

As for `LocalRuntime`: a run that is left by anything but the program's own exit first ends the program and all that it
started: TERM, a grace, KILL, waited for under a shield that is bounded. A run that the program's own exit ends leaves
alone what the program started (L13).
"""

import logging
import math
import os
import re
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import trio
from attrs import define, field
from trio.lowlevel import FdStream

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtime import ProgramResult
from rollout_fsm.runtimes.bubblewrap.control import Control, Exit
from rollout_fsm.runtimes.bubblewrap.folder import WORKSPACE, in_memory
from rollout_fsm.runtimes.bubblewrap.keeper import EXECUTION, PACKET
from rollout_fsm.runtimes.conversation import converse, read_what_is_there
from rollout_fsm.runtimes.launch import unrunnable
from rollout_fsm.runtimes.output import HeadTail

DRAIN = 0.1
"""Seconds after a program's exit in which what it left behind may still write to its output."""
PATIENCE = 5.0
"""Seconds that killed processes are waited for before they are called survivors."""
PAUSES = (0.002, 0.1)
"""Seconds between two looks while processes die: the first pause, and the longest that it is doubled to."""
TROUBLE = re.compile(rb"([0-9]{1,4}) (.*)", re.DOTALL)

log = logging.getLogger("rollout_fsm")


@define(eq=False, repr=False)
class _Program:
    """A program that is being started, or was."""

    name: str
    number: int
    end: Exit
    session: int = field(init=False, default=0)
    """Its process id in the box, which is its session's too; 0 until it was started."""
    trouble: FdStream | None = field(init=False, default=None)
    """Where its process says why it cannot become the program, and nothing once it is."""
    stdin: FdStream | None = field(init=False, default=None)
    outputs: list[FdStream] = field(init=False, factory=list)
    """Standard output and error."""


@define(eq=False, repr=False, kw_only=True)
class BoxPrograms:
    """Runs and ends the programs of a box. `runtime` is its name; `cap` is in bytes, `grace` in seconds."""

    runtime: str
    control: Control
    cap: int
    grace: float
    running: int = field(init=False, default=0)
    """How many programs run."""

    async def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], data: bytes | None, timeout: float | None
    ) -> ProgramResult:
        """Run a program to its exit. `timeout` is in seconds; raises what `Runtime.run` says."""
        content = _content(argv, env)
        number = self.control.number()
        program = _Program(argv[0], number, self.control.expect(number))
        buffers = HeadTail(self.cap), HeadTail(self.cap)
        exited = False
        self.running += 1
        try:
            with trio.move_on_after(math.inf if timeout is None else timeout):
                if said := await self._start(program, content, feed=data is not None):
                    await program.end.came.wait()
                    exited = True
                    raise self._refused(said, argv[0], env)
                pipes = list(zip(program.outputs, buffers, strict=True))
                await converse(program.end.came.wait, program.stdin, data, pipes, drain=DRAIN)
            exited = program.end.status is not None
            if exited:
                for pipe, buffer in zip(program.outputs, buffers, strict=True):
                    read_what_is_there(pipe, buffer)
        finally:
            self.running -= 1
            await self._let_go(program, argv, exited=exited)
        if self.control.lost is not None and not exited:
            raise SandboxError(f"runtime {self.runtime} {self.control.lost}, while {argv[0]!r} ran")
        if program.end.status is None or not exited:
            raise TimeoutError(f"{list(argv)!r} did not end within {timeout} s and was killed")
        out, err = (buffer.text() for buffer in buffers)
        return ProgramResult(exit_code=program.end.status, stdout=out, stderr=err)

    async def begin(self) -> None:
        """The execution begins: what lives now is the setup's (L13)."""
        await self.control.ask("begin")

    async def kill(self) -> int:
        """End everything that came since the execution began; returns how many survive."""
        return await self._end(EXECUTION, 0)

    @trio.lowlevel.enable_ki_protection
    async def _start(self, program: _Program, content: bytes, *, feed: bool) -> bytes:
        """Start a program. Returns nothing, or what its process said where it could not become the program."""
        theirs: list[int] = []
        try:
            theirs.append(in_memory(content))
            program.trouble, *program.outputs = (_reading(theirs) for _ in range(3))
            if feed:
                program.stdin = _writing(theirs)
            program.session = (await self.control.ask("run", number=program.number, send=theirs)).value
        except OSError as error:
            raise unrunnable(error.errno or 0, program.name, {}, self.runtime, place=WORKSPACE, present=None) from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        said = b""
        while len(said) < PACKET and (chunk := await program.trouble.receive_some(PACKET)):
            said += chunk
        return said

    def _refused(self, said: bytes, program: str, env: Mapping[str, str]) -> Exception:
        """The exception for what a process said that could not become the program."""
        words = TROUBLE.fullmatch(said)
        if words is None:
            return SandboxError(f"runtime {self.runtime} could not start {program!r}: {said[:100]!r} was said of it")
        present = WORKSPACE / os.fsdecode(words[2]) if words[2] else None
        return unrunnable(int(words[1]), program, env, self.runtime, place=WORKSPACE / program, present=present)

    async def _let_go(self, program: _Program, argv: Sequence[str], *, exited: bool) -> None:
        """Let go of a program; where it did not exit by itself, it and all that it started are ended first."""
        with trio.CancelScope(shield=True):
            if not exited and program.session:
                survivors = await self._end(program.number, program.session)
                with trio.move_on_after(PATIENCE):
                    await program.end.came.wait()
                if survivors:
                    log.warning("runtime %s: %d processes of %r would not die", self.runtime, survivors, argv)
            self.control.forget(program.number)
            for pipe in (program.trouble, program.stdin, *program.outputs):
                if pipe is not None:
                    await trio.aclose_forcefully(pipe)

    async def _end(self, program: int, session: int) -> int:
        """TERM, after the grace KILL, until looks show none or `PATIENCE` is out; returns how many survive."""

        async def strike(signum: int) -> int:
            return (await self.control.ask("strike", program, session, signum)).value

        survivors = 0
        with trio.CancelScope(shield=True), suppress(SandboxError):  # raised where the box is dead, and all in it
            await _wait_for_none(strike, signal.SIGTERM, 0, self.grace)
            survivors = await _wait_for_none(strike, signal.SIGKILL, signal.SIGKILL, PATIENCE)
        return survivors


async def _wait_for_none(strike: Callable[[int], Awaitable[int]], first: int, then: int, seconds: float) -> int:
    """Send a signal, and another one until it finds nobody or the time is out; returns how many are left."""
    pause, longest = PAUSES
    until = trio.current_time() + seconds
    left = await strike(first)
    while left and trio.current_time() < until:
        await trio.sleep(pause)
        pause = min(2 * pause, longest)
        left = await strike(then)
    return left


def _content(argv: Sequence[str], env: Mapping[str, str]) -> bytes:
    """What the first process is told to run: where, how many arguments, the arguments, the variables."""
    for name in env:
        if not name or "=" in name:
            raise ValueError(f"{name!r} is no name of an environment variable: it is empty or has an equals sign")
    arguments = [os.fsencode(argument) for argument in argv]
    variables = [os.fsencode(name) + b"=" + os.fsencode(value) for name, value in env.items()]
    if any(b"\0" in item for item in (*arguments, *variables)):
        raise ValueError(f"an argument or a variable of {argv[0]!r} has a null byte, which ends it for every program")
    return b"\0".join([bytes(WORKSPACE), b"%d" % len(arguments), *arguments, *variables])


def _reading(theirs: list[int]) -> FdStream:
    """The end of a new pipe that is read from; the other one is theirs."""
    reading, writing = os.pipe()
    theirs.append(writing)
    return FdStream(reading)


def _writing(theirs: list[int]) -> FdStream:
    """The end of a new pipe that is written to; the other one is theirs."""
    reading, writing = os.pipe()
    theirs.append(reading)
    return FdStream(writing)
