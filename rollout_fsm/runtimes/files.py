"""Files of a box, read and written by the engine while programs that it does not trust may change them.

A path in a folder of the box is walked folder by folder from a descriptor of that folder, links by hand: what leaves
the box's folders is refused, whatever is swapped meanwhile. Blocking; callers run it in a thread. The invariant: a
program cannot make the engine touch a file that the engine did not name, block, or read more than the cap.
"""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, field, frozen

LINKS = 40
"""How many symbolic links one path may lead through."""
CHUNK = 1 << 20
"""Bytes read at once."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen(kw_only=True)
class Area:
    """The folders that programs and the engine share. A relative path begins in the workspace, which is one of them."""

    workspace: Path
    folders: Mapping[Path, int]
    """A descriptor of each, by the absolute path that programs know it under."""
    outside: bool = False
    """Whether the engine opens other absolute paths as they are; else they are refused."""
    owner: int | None = None
    """The user and group that own what the engine makes in the folders; None: the engine's."""


def read(area: Area, path: str, cap: int) -> bytes:
    """The content of a regular file of at most `cap` bytes; `OSError` EFBIG for a longer one."""
    with _open(area, path, os.O_RDONLY) as descriptor:
        size = os.fstat(descriptor).st_size
        content = bytearray()
        while size <= cap and (chunk := os.read(descriptor, min(CHUNK, cap + 1 - len(content)))):
            content += chunk
            size = max(size, len(content))
        if size > cap:
            raise OSError(errno.EFBIG, f"holds {size} bytes or more, and no more than {cap} are read at once")
        return bytes(content)


def write(area: Area, path: str, content: bytes) -> None:
    """Create or replace a regular file, its folders too."""
    with _open(area, path, os.O_WRONLY | os.O_CREAT) as descriptor:
        os.ftruncate(descriptor, 0)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


@contextmanager
def _open(area: Area, path: str, flags: int) -> Iterator[int]:
    """Open a regular file. An `OSError` names the whole path, also one that comes out of the block."""
    whole = area.workspace / path
    flags |= os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = _descriptor(area, whole, flags)
        try:
            _require_regular(os.fstat(descriptor).st_mode)
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads, or a socket
            raise OSError(errno.EINVAL, NOT_REGULAR, str(whole)) from error
        error.filename = str(whole)
        raise


def _descriptor(area: Area, path: Path, flags: int) -> int:
    if any(path.is_relative_to(folder) for folder in area.folders):
        return _Walk(area, create=bool(flags & os.O_CREAT)).open(path, flags)
    if not area.outside:
        known = " and ".join(map(str, area.folders))
        raise PermissionError(errno.EACCES, f"is outside of {known}, which is all that is read and written in this box")
    if flags & os.O_CREAT:
        path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, flags, 0o666)


NOT_REGULAR = "is not a regular file but a pipe, a socket or a device"


def _require_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, NOT_REGULAR)


@define(eq=False, repr=False)
class _Walk:
    """A walk down from one of the folders, which never steps out of them."""

    area: Area
    create: bool
    """Whether missing folders are made."""
    _root: int = field(init=False, default=-1)
    """The descriptor of the folder that it started from."""
    _folders: list[int] = field(init=False, factory=list)
    """Descriptors of the folders from below that one down to where the walk is."""

    def open(self, path: Path, flags: int) -> int:
        """Open what is at an absolute path."""
        try:
            return self._open(path, flags)
        finally:
            self._go_back()

    def _open(self, path: Path, flags: int) -> int:
        todo = self._from_a_folder(path)
        links = 0
        while todo:
            name = todo.pop()
            if name == "..":
                self._go_up()
                continue
            target = self._link(name)
            if target is not None:
                links += 1
                if links > LINKS:
                    raise OSError(errno.ELOOP, "leads through too many symbolic links")
                todo += self._from_a_folder(target) if target.is_absolute() else reversed(target.parts)
            elif todo:
                self._go_down(name)
            else:
                return self._open_here(name, flags | os.O_NOFOLLOW)
        return os.open(".", flags & ~os.O_CREAT, dir_fd=self._here)

    def _from_a_folder(self, path: Path) -> list[str]:
        """Go to the folder that an absolute path is in; the parts that lead on from there, the next one last."""
        for folder, descriptor in self.area.folders.items():
            if path.is_relative_to(folder):
                self._go_back()
                self._root = descriptor
                return list(reversed(path.relative_to(folder).parts))
        raise _leaves()

    @property
    def _here(self) -> int:
        return self._folders[-1] if self._folders else self._root

    def _link(self, name: str) -> Path | None:
        try:
            return Path(os.readlink(name, dir_fd=self._here))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):  # no link, or nothing
                return None
            raise

    def _open_here(self, name: str, flags: int) -> int:
        descriptor = os.open(name, flags, 0o666, dir_fd=self._here)
        try:
            if self.create:
                self._hand_over(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _go_down(self, name: str) -> None:
        made = False
        if self.create:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._here)
                made = True
        self._folders.append(os.open(name, FOLDER, dir_fd=self._here))
        if made:
            self._hand_over(self._folders[-1])

    def _hand_over(self, descriptor: int) -> None:
        """Give what the engine made to the box's own user."""
        if self.area.owner is not None and os.fstat(descriptor).st_uid != self.area.owner:
            os.fchown(descriptor, self.area.owner, self.area.owner)

    def _go_up(self) -> None:
        if not self._folders:
            raise _leaves()
        os.close(self._folders.pop())

    def _go_back(self) -> None:
        while self._folders:
            os.close(self._folders.pop())


def _leaves() -> PermissionError:
    return PermissionError(
        errno.EACCES, "leads out of the workspace; what is outside is reached by its own absolute path only"
    )
