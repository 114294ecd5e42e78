"""The folder of a box on the host: what programs can write is in it, and so is what was made up for them.

Programs see parts of it only, each at its own place. The engine reads and writes them through descriptors. Blocking,
but short, where it does not say otherwise.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import trio
from attrs import define, field

from rollout_fsm.runtimes import files
from rollout_fsm.runtimes.bubblewrap import etc
from rollout_fsm.runtimes.removal import remove
from rollout_fsm.runtimes.threads import ending_limiter

WORKSPACE = Path("/workspace")
TEMPORARY = Path("/tmp")
SHARED_MEMORY = Path("/dev/shm")
WRITABLE: Mapping[Path, str] = {WORKSPACE: "workspace", TEMPORARY: "tmp", SHARED_MEMORY: "shm"}
"""What programs can write, by the place where they see it: the name in the folder."""
LEFT = "left"
"""The name of the file with how many processes lived when the engine was gone."""
SAID = "said"
"""The name of the file with what bubblewrap and the box's first process said of their troubles."""
SAID_AT_MOST = 2000


@define(eq=False, repr=False)
class Folder:
    """A box's folder. `owner`: the user that its programs have; None: the engine's own."""

    path: Path
    owner: int | None
    _open: dict[Path, int] = field(init=False, factory=dict)
    """A descriptor of each writable part, from making to removing."""

    def make(self) -> None:
        """Make it, for the engine's user alone. Raises `OSError`."""
        self.path.mkdir(mode=0o700)
        for name in WRITABLE.values():
            part = self.path / name
            part.mkdir(mode=0o700)
            if self.owner is not None:
                os.chown(part, self.owner, self.owner)
        user, group = (os.getuid(), os.getgid()) if self.owner is None else (self.owner, self.owner)
        etc.make(self.etc, home=WORKSPACE, user=user, group=group)
        self._open_parts()

    def find(self) -> bool:
        """Open the one that an earlier process made; whether it is there, and whole."""
        try:
            self._open_parts()
        except OSError:  # gone, or something else is in its place
            self.close()
            return False
        return True

    def _open_parts(self) -> None:
        for place, name in WRITABLE.items():
            self._open[place] = os.open(self.path / name, files.FOLDER)

    @property
    def made(self) -> bool:
        """Whether its parts are open."""
        return bool(self._open)

    def part(self, place: Path) -> Path:
        """Where on the host a writable part is."""
        return self.path / WRITABLE[place]

    @property
    def etc(self) -> Path:
        """What programs see as /etc."""
        return self.path / "etc"

    @contextmanager
    def descriptors(self) -> Iterator[dict[Path, int]]:
        """The writable parts, opened for one use: a removing that comes meanwhile closes other descriptors."""
        with ExitStack() as stack:
            held = {}
            for place, descriptor in self._open.items():
                held[place] = os.dup(descriptor)
                stack.callback(os.close, held[place])
            yield held

    @contextmanager
    def area(self) -> Iterator[files.Area]:
        """What the engine reads and writes for its callers, opened for one use."""
        with self.descriptors() as held:
            folders = {place: held[place] for place in (WORKSPACE, TEMPORARY)}
            yield files.Area(workspace=WORKSPACE, folders=folders, owner=self.owner)

    def open_file(self, name: str) -> int:
        """A descriptor of a file in it, which is made where it is not there."""
        return os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def said(self) -> str:
        """The last of what bubblewrap and the first process said."""
        try:
            return (self.path / SAID).read_text(errors="replace")[-SAID_AT_MOST:].strip()
        except OSError:
            return ""

    def left(self) -> int | None:
        """How many processes lived when the engine was gone; None if that was not said."""
        try:
            return int((self.path / LEFT).read_text())
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Let go of the descriptors."""
        while self._open:
            _, descriptor = self._open.popitem()
            os.close(descriptor)

    async def remove(self) -> str | None:
        """Remove it with all that programs left in it, in a thread; returns None, or what would not go and why."""
        self.close()
        return await trio.to_thread.run_sync(remove, self.path, limiter=ending_limiter())


def in_memory(content: bytes) -> int:
    """A descriptor of a file that is in memory only, to be handed to a process of the box."""
    descriptor = os.memfd_create("content", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
