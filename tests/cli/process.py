"""The command line as a process of its own, and what it says, line by line as it says it."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import trio
from attrs import define, field

import rollout_fsm

HOME = Path(rollout_fsm.__file__).parents[1]


@define(eq=False)
class Voice:
    """One stream of a process; `text` is what it said so far."""

    _stream: trio.abc.ReceiveStream
    text: str = ""
    _ended: bool = False

    async def says(self, words: str, times: int = 1) -> None:
        """Wait until it has said this so many times. Fails when the stream ends before."""
        while self.text.count(words) < times:
            assert not self._ended, f"it ended without saying {words!r} {times} times; it said:\n{self.text}"
            await self._more()

    async def all(self) -> str:
        """Wait for the end, and return everything that it said."""
        while not self._ended:
            await self._more()
        return self.text

    async def close(self) -> None:
        """Go away, as a reader that has enough does."""
        await self._stream.aclose()

    async def _more(self) -> None:
        said = await self._stream.receive_some()
        self._ended = not said
        self.text += bytes(said).decode()


@define(eq=False)
class Running:
    """A command line that runs."""

    process: trio.Process
    out: Voice = field(init=False)
    err: Voice = field(init=False)

    def __attrs_post_init__(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.out, self.err = Voice(self.process.stdout), Voice(self.process.stderr)

    def send(self, which: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(which)

    async def ended(self) -> int:
        """Wait for its end; returns the exit code."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.err.all)
            await self.out.all()
        return await self.process.wait()


@asynccontextmanager
async def running(
    folder: Path, arguments: Sequence[str], variables: Mapping[str, str] | None = None, *, first: str = ""
) -> AsyncIterator[Running]:
    """The command line with these arguments, in a folder, with a folder for temporary files beside it.

    `first` is what the process does to itself before it begins, in Python.
    """
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    environment |= {"PYTHONPATH": str(HOME), "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1", **(variables or {})}
    begin = f"import os, sys\n{first}\nos.execv(sys.executable, [sys.executable, '-m', 'rollout_fsm', *sys.argv[1:]])"
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", begin, *arguments],
        stdout=PIPE,
        stderr=PIPE,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def processes_of(mark: str) -> list[str]:
    """The command lines of all processes that have this in an argument."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            if mark in line:
                found.append(line)
    return found
