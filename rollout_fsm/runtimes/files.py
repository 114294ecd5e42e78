"""Files of a workspace, read and written by the engine while programs that it does not trust may change them.

A path in the workspace is walked folder by folder from a descriptor of the workspace, links by hand: what leaves the
workspace is refused, whatever is swapped meanwhile. Other absolute paths are opened as they are. Blocking; callers run
it in a thread. The invariant: a program cannot make the engine touch a file that the engine did not name, block, or
read more than the cap.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, field

LINKS = 40
"""How many symbolic links one path may lead through."""
CHUNK = 1 << 20
"""Bytes read at once."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read(root: int, workspace: Path, path: str, cap: int) -> bytes:
    """The content of a regular file of at most `cap` bytes; `OSError` EFBIG for a longer one.

    `root` is a descriptor of the folder `workspace`.
    """
    with _open(root, workspace, path, os.O_RDONLY) as descriptor:
        size = os.fstat(descriptor).st_size
        content = bytearray()
        while size <= cap and (chunk := os.read(descriptor, min(CHUNK, cap + 1 - len(content)))):
            content += chunk
            size = max(size, len(content))
        if size > cap:
            raise OSError(errno.EFBIG, f"holds {size} bytes or more, and no more than {cap} are read at once")
        return bytes(content)


def write(root: int, workspace: Path, path: str, content: bytes) -> None:
    """Create or replace a regular file, its folders too."""
    with _open(root, workspace, path, os.O_WRONLY | os.O_CREAT) as descriptor:
        os.ftruncate(descriptor, 0)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


@contextmanager
def _open(root: int, workspace: Path, path: str, flags: int) -> Iterator[int]:
    """Open a regular file. An `OSError` names the whole path, also one that comes out of the block."""
    whole = workspace / path
    flags |= os.O_NONBLOCK | os.O_CLOEXEC
    try:
        if whole.is_relative_to(workspace):
            descriptor = _Walk(root, workspace, create=bool(flags & os.O_CREAT)).open(whole, flags)
        else:
            if flags & os.O_CREAT:
                whole.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(whole, flags, 0o666)
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


NOT_REGULAR = "is not a regular file but a pipe, a socket or a device"


def _require_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, NOT_REGULAR)


@define(eq=False, repr=False)
class _Walk:
    """A walk down from the workspace, which never steps out of it."""

    root: int
    workspace: Path
    create: bool
    """Whether missing folders are made."""
    _folders: list[int] = field(init=False, factory=list)
    """Descriptors of the folders from below the workspace down to where the walk is."""

    def open(self, path: Path, flags: int) -> int:
        """Open what is at a path that begins with the workspace."""
        try:
            return self._open(path, flags)
        finally:
            self._go_to_the_workspace()

    def _open(self, path: Path, flags: int) -> int:
        todo = self._below(path)
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
                todo += self._below(target) if target.is_absolute() else reversed(target.parts)
            elif todo:
                self._go_down(name)
            else:
                return os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=self._here)
        return os.open(".", flags & ~os.O_CREAT, dir_fd=self._here)

    def _below(self, path: Path) -> list[str]:
        """Go to the workspace; the parts of an absolute path that lead on from there, the next one last."""
        if not path.is_relative_to(self.workspace):
            raise _leaves()
        self._go_to_the_workspace()
        return list(reversed(path.relative_to(self.workspace).parts))

    @property
    def _here(self) -> int:
        return self._folders[-1] if self._folders else self.root

    def _link(self, name: str) -> Path | None:
        try:
            return Path(os.readlink(name, dir_fd=self._here))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):  # no link, or nothing
                return None
            raise

    def _go_down(self, name: str) -> None:
        if self.create:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._here)
        self._folders.append(os.open(name, FOLDER, dir_fd=self._here))

    def _go_up(self) -> None:
        if not self._folders:
            raise _leaves()
        os.close(self._folders.pop())

    def _go_to_the_workspace(self) -> None:
        while self._folders:
            os.close(self._folders.pop())


def _leaves() -> PermissionError:
    return PermissionError(
        errno.EACCES, "leads out of the workspace; what is outside is reached by its own absolute path only"
    )
