"""How much a box has written: in its workspace, /tmp and /dev/shm, and in files without a name that it holds open.

A walk holds three descriptors, however deep the folders are, follows no link, and stops where it has seen too much.
Blocking; callers run it in a thread of trio, and a cancellation ends it. The invariant: what is measured is the box's
own, whatever is moved, linked or forbidden meanwhile.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import trio
from attrs import define, field, frozen

from rollout_fsm.runtimes.bubblewrap.limits import BoxLimits

BLOCK = 512
"""Bytes of the blocks that the system counts in."""
DEEPEST = 2000
"""How deep folders may be in each other: no path that is as long can be named."""
MOVES = 64
"""How often the folder that a walk is in may be moved elsewhere before the walk is given up."""
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READABLE = stat.S_IRUSR | stat.S_IXUSR


@define
class Usage:
    """What was counted so far."""

    size: int = 0
    """Bytes on disk."""
    files: int = 0
    restless: str | None = None
    """Why not everything could be counted, if it could not."""
    _met: set[tuple[int, int]] = field(init=False, factory=set)
    """Files of several names, or of none."""

    def count(self, found: os.stat_result) -> None:
        """Count a file or a folder, once."""
        if found.st_nlink != 1 and not stat.S_ISDIR(found.st_mode):
            if (key := _identity(found)) in self._met:
                return
            self._met.add(key)
        self.size += found.st_blocks * BLOCK
        self.files += 1

    def beyond(self, limits: BoxLimits) -> str | None:
        """What is too much, and by which setting; None if nothing is."""
        if self.size > limits.workspace:
            return f"it has written {self.size} bytes or more, beyond BoxLimits(workspace={limits.workspace})"
        if self.files > limits.files:
            return f"it has made {self.files} files or more, beyond BoxLimits(files={limits.files})"
        return self.restless


@frozen
class _Level:
    """A folder that the walk is in, or below."""

    name: str
    """Its name in the folder above."""
    identity: tuple[int, int]
    todo: list[str]
    """The names of the folders in it that are still to be walked."""


def measure(folders: Iterable[int], ancestor: int, limits: BoxLimits) -> Usage:
    """Count what is in the folders, and what the descendants of a process hold open without a name, until that is
    beyond the limits.
    """
    usage = Usage()
    for folder in folders:
        _Walk(folder, usage, limits).go()
    for found in _nameless(ancestor):
        if usage.beyond(limits):
            break
        usage.count(found)
    return usage


@define(eq=False, repr=False)
class _Walk:
    """A walk through a folder and all that is in it, which ends where the usage is beyond the limits."""

    _root: int
    _usage: Usage
    _limits: BoxLimits
    _here: int = field(init=False, default=-1)
    _levels: list[_Level] = field(init=False, factory=list)
    _moves: int = field(init=False, default=0)

    def go(self) -> None:
        """Count everything."""
        self._here = os.dup(self._root)
        try:
            self._list("")
            while self._levels and not self._usage.beyond(self._limits):
                trio.from_thread.check_cancelled()
                if self._levels[-1].todo:
                    self._enter(self._levels[-1].todo.pop())
                else:
                    self._leave()
        finally:
            os.close(self._here)

    def _enter(self, name: str) -> None:
        if len(self._levels) >= DEEPEST:
            self._usage.restless = f"its folders are in each other more than {DEEPEST} deep"
            return
        with suppress(OSError):  # it is gone, or no folder any more
            self._step(_open(self._here, name))
            self._list(name)

    def _list(self, name: str) -> None:
        """Count what is in the folder that the walk is in now."""
        level = _Level(name, _identity(os.fstat(self._here)), [])
        self._levels.append(level)
        with suppress(OSError), _readable(self._here):
            listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._here)
            try:
                with os.scandir(listed) as entries:
                    for entry in entries:
                        with suppress(OSError):  # it is gone
                            found = entry.stat(follow_symlinks=False)
                            self._usage.count(found)
                            if stat.S_ISDIR(found.st_mode):
                                level.todo.append(entry.name)
                        if self._usage.beyond(self._limits):
                            return
            finally:
                os.close(listed)

    def _leave(self) -> None:
        """Go to the folder above, or, if this one was moved meanwhile, back to what is still where it was."""
        self._levels.pop()
        if not self._levels:
            return
        with suppress(OSError):
            self._step(_open(self._here, os.pardir))
            if _identity(os.fstat(self._here)) == self._levels[-1].identity:
                return
        self._moves += 1
        if self._moves > MOVES:
            self._usage.restless = "its folders are moved faster than they can be measured"
            return
        self._step(os.dup(self._root))
        for depth, level in enumerate(self._levels[1:], start=1):
            try:
                self._step(_open(self._here, level.name))
            except OSError:
                del self._levels[depth:]
                return
            if _identity(os.fstat(self._here)) != level.identity:
                self._step(_open(self._here, os.pardir))
                del self._levels[depth:]
                return

    def _step(self, folder: int) -> None:
        os.close(self._here)
        self._here = folder


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _open(here: int, name: str) -> int:
    """A folder in another one, to go on from."""
    with _readable(here):
        return os.open(name, FOLDER, dir_fd=here)


@contextmanager
def _readable(folder: int) -> Iterator[None]:
    """While a folder can be listed and searched by its owner, whatever its mode says before and after."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & READABLE == READABLE or os.geteuid() == 0:
        yield
        return
    path = f"/proc/self/fd/{folder}"
    os.chmod(path, mode | READABLE)
    try:
        yield
    finally:
        with suppress(OSError):
            os.chmod(path, mode)


def _nameless(ancestor: int) -> Iterator[os.stat_result]:
    """The files without a name, on disk and in memory, that descendants of a process hold open."""
    todo = list(_children(ancestor))
    while todo:
        trio.from_thread.check_cancelled()
        pid = todo.pop()
        todo += _children(pid)
        for held in _held(pid):
            with suppress(OSError):
                found = os.stat(held)
                if found.st_nlink == 0 and stat.S_ISREG(found.st_mode):
                    yield found


def _held(pid: int) -> Iterator[str]:
    """Paths to the files that a process has open or mapped, whichever of its threads, its first one gone or not. As an
    ordinary user the engine does not see what is mapped only."""
    places = [f"/proc/{pid}/map_files"]
    with suppress(OSError):  # it has ended
        places += [f"/proc/{pid}/task/{thread}/fd" for thread in os.listdir(f"/proc/{pid}/task")]
    for place in places:
        with suppress(OSError):
            yield from (f"{place}/{name}" for name in os.listdir(place))


def _children(pid: int) -> Sequence[int]:
    """The processes that a process is the parent of, whichever of its threads started them."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found
