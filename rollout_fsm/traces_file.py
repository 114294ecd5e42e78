"""`traces.jsonl`: a trace on each line, appended whole or not at all, read leniently.

A line that was appended is on disk when `append` returns. Reading trusts nobody: the line that a crash tore off at the
end is passed over, and damage anywhere else costs its own line and is reported. Lines end with LF and nothing else.
Reading and writing block: an async caller does them in a thread.

`isolate_torn_end` and `take_out` mend a file that nobody else has open. Whenever they are cut off by a crash, no line
is lost, and doing it again ends as if it had been done once.
"""

import errno
import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from types import TracebackType

from attrs import define, field

from rollout_fsm.disk import sync_folder
from rollout_fsm.exact_json import FormatError
from rollout_fsm.trace import Trace
from rollout_fsm.trace_json import trace_from_json, trace_to_json

log = logging.getLogger("rollout_fsm")

CHUNK = 1 << 20
"""Bytes read at once."""
BESIDE = ".new"
"""What the name of a file ends with that is to take the place of another."""


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
                _still_there(self._fd, self.path)
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


def _say(number: int, fault: FormatError) -> None:
    log.warning("line %d is no trace: %s", number, fault)


def read_traces(
    path: str | os.PathLike[str], *, on_fault: Callable[[int, FormatError], None] = _say
) -> Iterator[Trace]:
    """The traces of a file, line by line. `on_fault` is told the number, from 1, of each line that is none, and why;
    unless it is given, that is logged.

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


def isolate_torn_end(path: Path, side: Path) -> int:
    """Give the file's last line its end, or move what is no whole line into the file `side`, if that is how it ends.

    Returns how many bytes were moved. Raises `OSError`; no byte is lost then.
    """
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        start = _last_line(fd, size)
        rest = _pread(fd, start, size)
        if not rest:
            return 0
        if _is_json(rest):  # only its line feed was lost: no part of an object is JSON itself
            _write(fd, b"\n", size)
            return 0
        _append_once(side, rest + b"\n")
        os.ftruncate(fd, start)
        os.fsync(fd)
        return len(rest)
    finally:
        os.close(fd)


def take_out(path: Path, taken: Callable[[bytes], bool]) -> None:
    """Remove the lines for which `taken` says yes, all at once: the file is replaced by one without them.

    Raises `OSError`; the file is then as it was.
    """
    path = path.resolve()
    beside = path.with_name(path.name + BESIDE)
    try:
        with open(path, "rb") as file, open(beside, "wb") as made:
            os.fchmod(made.fileno(), os.fstat(file.fileno()).st_mode & 0o7777)
            made.writelines(line for line in file if not taken(line))
            made.flush()
            os.fsync(made.fileno())
        os.replace(beside, path)
        sync_folder(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def _last_line(fd: int, size: int) -> int:
    """Where the line begins that the file's last line feed does not end."""
    end = size
    while end > 0:
        start = max(0, end - CHUNK)
        found = _pread(fd, start, end).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _pread(fd: int, start: int, end: int) -> bytes:
    parts: list[bytes] = []
    while start < end and (part := os.pread(fd, min(CHUNK, end - start), start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _append_once(path: Path, line: bytes) -> None:
    """Append a line to a file, unless it is its last one already."""
    fd = _open(path)
    try:
        size = os.fstat(fd).st_size
        if b"\n" + line != (b"\n" + _pread(fd, max(0, size - len(line) - 1), size))[-len(line) - 1 :]:
            _append(fd, line)
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    sync_folder(path.parent)
    return fd


def _still_there(fd: int, path: Path) -> None:
    """Raises `FileNotFoundError` where the file is not at its path any more: what is written to it is nowhere."""
    try:
        there = os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        there = False
    if not there:
        raise FileNotFoundError(errno.ENOENT, f"{path} was removed, or replaced by another file, during the run")


def _append(fd: int, line: bytes) -> None:
    size = os.fstat(fd).st_size
    torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    _write(fd, b"\n" + line if torn else line, size)  # an earlier writer's torn line is to cost itself alone


def _write(fd: int, data: bytes, size: int) -> None:
    """Write at the end of a file of this size, all of it and on disk, or nothing."""
    rest = memoryview(data)
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
