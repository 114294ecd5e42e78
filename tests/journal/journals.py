"""What the tests of the journal share: a journal whose committer runs, and disks that are full or read-only."""

import os
import resource
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio

from rollout_fsm.identity import Identity
from rollout_fsm.journal import Journal, JournalEntry
from rollout_fsm.trace import TaskInfo, Trace, TransitionRecord


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[Journal]:
    """An open journal whose committer runs; closed in the end."""
    journal = Journal.open(path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        try:
            yield journal
        finally:
            await journal.aclose()


def begin(journal: Journal, trace: str = "t1", *, key: str = "sum", index: int = 0) -> JournalEntry:
    return journal.attempt(trace, identity=Identity(key, 1, index), hash="h1", began=100.0)


def moved(target: str, *, time: float = 101.0, source: str = "created") -> TransitionRecord:
    return TransitionRecord(time=time, trigger="go", source=source, target=target)


def trace(name: str = "t1", *, state: str = "finalizing", **info: object) -> Trace:
    made = Trace(id=name, task=TaskInfo(type="Sum"), transitions=[moved(state)])
    made.info.update(info)  # type: ignore[arg-type]
    return made


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(place: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of this size; the test is skipped where there can be none."""
    place.mkdir()
    if os.geteuid() != 0 or _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)):
        pytest.skip("only root can mount a small disk")
    try:
        yield place
    finally:
        assert subprocess.run(["umount", "-l", str(place)], check=False).returncode == 0


def make_read_only(place: Path, *, read_only: bool = True) -> None:
    assert _mount("-o", f"remount,{'ro' if read_only else 'rw'}", str(place)) == 0


def _mount(*arguments: str) -> int:
    return subprocess.run(["mount", *arguments], check=False, stderr=subprocess.DEVNULL).returncode
