"""What the tests of runtimes share: a box that is always stopped, a bell that programs ring, and looks at the process
table.
"""

import os
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from rollout_fsm.runtimes import LocalRuntime


@asynccontextmanager
async def box(name: str = "box", *, cap: int = 1 << 20, grace: float = 2.0) -> AsyncIterator[LocalRuntime]:
    """A started runtime, stopped in the end."""
    runtime = LocalRuntime(name, cap=cap, grace=grace)
    try:
        await runtime.start()
        yield runtime
    finally:
        await runtime.stop()


class Bell:
    """A named pipe in the workspace: programs write lines to it, and it falls silent when the last that holds it is
    gone.
    """

    def __init__(self, workspace: Path, name: str = "bell") -> None:
        path = workspace / name
        os.mkfifo(path)
        self._stream = trio.lowlevel.FdStream(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        self._writer = os.open(path, os.O_WRONLY)  # without a writer a reader sees the end at once
        self._heard = b""

    async def line(self) -> str:
        """The next line that a program wrote."""
        while b"\n" not in self._heard:
            self._heard += await self._stream.receive_some()
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    async def silence(self) -> None:
        """Wait until no process holds the bell."""
        os.close(self._writer)
        while await self._stream.receive_some():
            pass
        await self._stream.aclose()

    def silent(self) -> bool:
        """Whether no process holds the bell at this moment."""
        os.close(self._writer)
        try:
            while os.read(self._stream.fileno(), 1 << 16):
                pass
        except BlockingIOError:
            return False
        finally:
            self._stream.close()
        return True

    def close(self) -> None:
        os.close(self._writer)
        self._stream.close()


def lives(pid: int) -> bool:
    """Whether a process exists and is not merely waiting to be asked how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def with_argument(argument: str) -> list[int]:
    """The living processes that have this argument on their command line."""
    return [pid for pid in _all() if lives(pid) and argument.encode() in _command_line(pid)]


def children(but: Collection[int] = ()) -> list[int]:
    """Processes that this one started and has not waited for, but for those that somebody else had before."""
    return [pid for pid in _all() if pid not in but and _parent(pid) == os.getpid()]


def _all() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _command_line(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None
