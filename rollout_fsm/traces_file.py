"""`traces.jsonl`: a trace on each line, appended whole or not at all, read leniently.

A line that was appended is on disk when `append` returns. Reading trusts nobody: the line that a crash tore off at the
end is passed over, and damage anywhere else costs its own line and is reported. Lines end with LF and nothing else.
Reading and writing block: an async caller does them in a thread.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from types import TracebackType

from attrs import define, field

from rollout_fsm.exact_json import FormatError
from rollout_fsm.trace import Trace
from rollout_fsm.trace_json import trace_from_json, trace_to_json


@define(eq=False)
class TracesFile:
    """Appends traces to a file, which is made when it is not there. Threads and processes may share one path."""

    path: Path = field(converter=Path)
    _fd: int | None = field(default=None, init=False, repr=False)
    _lock: Lock = field(factory=Lock, init=False, repr=False)

    def append(self, trace: Trace | str) -> None:
        """Write a trace, or its JSON, as one line, and return when it is on disk.

        Raises `FormatError` for what JSON cannot carry, `ValueError` for a text with a line feed, `OSError` when the
        line could not be written whole; the file is then as it was.
        """
        line = trace if isinstance(trace, str) else trace_to_json(trace)
        if "\n" in line:
            raise ValueError("a line cannot hold a line feed; write the JSON on one line")
        with self._lock:
            if self._fd is None:
                self._fd = _open(self.path)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                _append(self._fd, line.encode() + b"\n")
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file. It may be appended to again, which opens it anew."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def __enter__(self) -> "TracesFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read_traces(path: str | os.PathLike[str], *, on_fault: Callable[[int, FormatError], None]) -> Iterator[Trace]:
    """The traces of a file, line by line. `on_fault` is told the number, from 1, of each line that is none, and why.

    Blank lines are passed over, and so is a last line that has no end and cannot be read: a writer was torn off there.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield trace_from_json(line)
            except FormatError as fault:
                if line.endswith(b"\n"):
                    on_fault(number, fault)


def _open(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # the file's name is to survive a crash as its lines do
    finally:
        os.close(folder)
    return fd


def _append(fd: int, line: bytes) -> None:
    size = os.fstat(fd).st_size
    torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    rest = memoryview(b"\n" + line if torn else line)  # an earlier writer's torn line is to cost itself alone
    try:
        while rest:
            written = os.write(fd, rest)
            if not written:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            rest = rest[written:]
        os.fsync(fd)
    except BaseException:
        os.ftruncate(fd, size)
        raise
