"""Who uses a run's folder: one engine at a time, whatever process it is in.

The lock is the kernel's (`flock`), so a process that dies lets go of it; the file only says who holds it. A process
that was forked off does not hold it, since it might outlive the engine.
"""

import errno
import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from attrs import define, field

LOCK = "run.lock"
"""The file's name; it is there while a run's folder is in use, and after a crash."""


class FolderInUseError(OSError):
    """Another engine uses the folder. The message names its process."""

    def __init__(self, message: str) -> None:
        super().__init__(errno.EBUSY, message)

    def __str__(self) -> str:
        return str(self.strerror)


@define(eq=False)
class FolderLock:
    """The lock of a folder."""

    folder: Path
    _fd: int | None = field(init=False, default=None, repr=False)

    @property
    def path(self) -> Path:
        """The file that is locked."""
        return self.folder / LOCK

    def acquire(self, run_id: str) -> None:
        """Take the lock and say so in its file. Blocks, but waits for nobody.

        Raises `FolderInUseError` naming the process that has it, `OSError` where the file cannot be made or locked.
        """
        while self._fd is None:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                self._lock(fd)
                if _is_at(fd, self.path):  # else who held it before has just taken it away
                    self._say(fd, run_id)
                    self._fd = fd
            finally:
                if self._fd is None:
                    os.close(fd)
        _forget_in_children(self)

    def release(self) -> None:
        """Let go of the lock and take its file away. Any number of times."""
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        _held.discard(self)
        try:
            if _is_at(fd, self.path):
                self.path.unlink()
        finally:
            os.close(fd)

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(
                f"the folder {self.folder} is in use by {_holder(fd)}; wait until that ends, or name another folder"
            ) from None

    def _say(self, fd: int, run_id: str) -> None:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        said = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "run": run_id, "since": since})
        os.ftruncate(fd, 0)
        os.pwrite(fd, said.encode(), 0)

    def forget(self) -> None:
        """Close the descriptor that this process got when it was forked off; its parent's lock stays."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(fd: int) -> str:
    """Who holds a lock, as its file says."""
    try:
        said = json.loads(os.pread(fd, 4096, 0))
        run = f", run {said['run']}" if said["run"] else ""
        told = f"process {said['pid']} on {said['host']}{run}, since {said['since']}"
        return "".join(character if character.isprintable() else "?" for character in told)
    except (ValueError, TypeError, KeyError, RecursionError):
        return "another process, which has only just begun"


_held: set[FolderLock] = set()
_watching = False


def _forget_in_children(lock: FolderLock) -> None:
    global _watching
    _held.add(lock)
    if not _watching:
        _watching = True
        os.register_at_fork(after_in_child=_forget_all)


def _forget_all() -> None:
    while _held:
        _held.pop().forget()
