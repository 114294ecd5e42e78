"""How much is written in a box is measured, whatever programs do to be measured wrongly. No box is needed for that."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from rollout_fsm.runtimes.bubblewrap import BoxLimits, usage
from rollout_fsm.runtimes.bubblewrap.usage import Usage, measure
from rollout_fsm.runtimes.bubblewrap.watch import PAUSES, pause
from rollout_fsm.runtimes.removal import remove

LIMITS = BoxLimits()
CHUNK = 1 << 16


def measured(folder: Path, limits: BoxLimits = LIMITS) -> Usage:
    """What a folder holds."""

    async def main() -> Usage:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            return await trio.to_thread.run_sync(measure, [descriptor], os.getpid(), limits)
        finally:
            os.close(descriptor)

    return trio.run(main)


def file(path: Path) -> None:
    """A file of `CHUNK` bytes."""
    path.write_bytes(os.urandom(CHUNK))


def test_files_and_folders_are_counted_with_what_they_take_on_disk(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    empty = measured(tmp_path)
    assert empty.files == 2
    file(tmp_path / "a/b/file")
    file(tmp_path / "other")
    found = measured(tmp_path)
    assert (found.files, found.size - empty.size) == (4, 2 * CHUNK)


def test_a_file_of_two_names_is_counted_once_and_a_hole_not_at_all(tmp_path: Path) -> None:
    file(tmp_path / "file")
    (tmp_path / "again").hardlink_to(tmp_path / "file")
    with open(tmp_path / "hole", "wb") as hole:
        hole.truncate(1 << 30)
    found = measured(tmp_path)
    assert (found.files, found.size) == (2, CHUNK)


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").mkdir()
    file(tmp_path / "outside/file")
    (tmp_path / "inside/link").symlink_to(tmp_path / "outside")
    (tmp_path / "inside/loop").symlink_to(tmp_path / "inside")
    assert measured(tmp_path / "inside").size < CHUNK


def test_what_may_not_be_read_is_counted_and_stays_forbidden(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    file(tmp_path / "a/b/file")
    file(tmp_path / "a/file")
    for folder in ("a/b", "a"):
        (tmp_path / folder).chmod(0o200)
    try:
        assert measured(tmp_path).files == 4
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o200
    finally:
        (tmp_path / "a").chmod(0o700)
        (tmp_path / "a/b").chmod(0o700)


HOLDER = f"""
import os, sys
held = os.open("file", os.O_RDONLY)
os.unlink("file")
memory = os.memfd_create("memory")
os.write(memory, bytes({CHUNK}))
print("up", flush=True)
sys.stdin.read()
"""


def test_what_a_descendant_holds_open_without_a_name_is_counted(tmp_path: Path) -> None:
    file(tmp_path / "file")
    command = [sys.executable, "-c", HOLDER]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=tmp_path, **streams) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        found = measured(tmp_path)
        child.stdin.close()
    assert (found.files, found.size) == (2, 2 * CHUNK)
    assert measured(tmp_path).files == 0


HIDER = """
import os, sys, threading
file = open("file", "r+b")
os.unlink("file")
ready, go = threading.Event(), threading.Event()

def hold():
    os.unshare(os.CLONE_FILES) if hasattr(os, "unshare") else __import__("ctypes").CDLL(None).unshare(0x400)
    ready.set()
    go.wait()

threading.Thread(target=hold).start()
ready.wait()
file.close()
print("up", flush=True)
sys.stdin.read()
go.set()
"""


def test_what_a_thread_holds_open_for_itself_is_counted(tmp_path: Path) -> None:
    file(tmp_path / "file")
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", HIDER], cwd=tmp_path, **streams) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        found = measured(tmp_path)
        child.stdin.close()
    assert (found.files, found.size) == (1, CHUNK)


def test_counting_ends_where_there_is_too_much(tmp_path: Path) -> None:
    for number in range(50):
        file(tmp_path / str(number))
    found = measured(tmp_path, BoxLimits(files=10))
    assert found.files == 11
    assert found.beyond(BoxLimits(files=10)) == "it has made 11 files or more, beyond BoxLimits(files=10)"
    found = measured(tmp_path, BoxLimits(workspace=5 * CHUNK))
    assert found.size == 6 * CHUNK
    assert found.beyond(BoxLimits()) is None


def test_folders_in_each_other_cost_no_descriptors_and_have_a_limit(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(usage.DEEPEST - 1):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    found = measured(tmp_path)
    assert (found.files, found.restless) == (usage.DEEPEST - 1, None)
    os.mkdir("d", dir_fd=here)
    os.close(here)
    assert measured(tmp_path).beyond(LIMITS) == f"its folders are in each other more than {usage.DEEPEST} deep"
    assert remove(tmp_path) is None  # which nothing that calls itself for each folder could


@pytest.mark.parametrize("deep", [1, 5])
def test_a_folder_that_is_moved_while_it_is_walked_costs_nothing_but_itself(
    deep: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "moved" / "/".join("d" * deep)
    inner.mkdir(parents=True)
    (tmp_path / "to").mkdir()
    for number in range(20):
        (tmp_path / f"after-{number}").mkdir()
        file(tmp_path / f"after-{number}/file")
    moved = _moving(monkeypatch, inner, lambda: (tmp_path / "moved/d").rename(tmp_path / "to/d"))
    found = measured(tmp_path)
    assert moved == [1]
    assert found.size >= 20 * CHUNK
    assert found.restless is None


def test_a_walk_whose_folders_are_always_moved_gives_up_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MOVES", 3)
    for number in range(10):
        (tmp_path / f"{number}/a/b").mkdir(parents=True)
    (tmp_path / "to").mkdir()
    list_ = usage._Walk._list

    def moving(walk: usage._Walk, name: str) -> None:
        list_(walk, name)
        if name == "b":
            outer = walk._levels[1].name
            (tmp_path / outer / "a/b").rename(tmp_path / "to" / outer)

    monkeypatch.setattr(usage._Walk, "_list", moving)
    assert measured(tmp_path).beyond(LIMITS) == "its folders are moved faster than they can be measured"


def _moving(monkeypatch: pytest.MonkeyPatch, folder: Path, move: Callable[[], object]) -> list[int]:
    """Move something away when the walk is in a folder; returns how often."""
    inode, moved, list_ = folder.stat().st_ino, list[int](), usage._Walk._list

    def listing(walk: usage._Walk, name: str) -> None:
        list_(walk, name)
        if os.fstat(walk._here).st_ino == inode and not moved:
            moved.append(1)
            move()

    monkeypatch.setattr(usage._Walk, "_list", listing)
    return moved


def test_the_less_room_is_left_the_sooner_it_is_measured_again() -> None:
    limits = BoxLimits(workspace=10 << 30, files=1000)
    shortest, longest = PAUSES
    assert pause(Usage(), BoxLimits(workspace=1 << 40, files=1 << 40)) == longest
    assert pause(Usage(), limits) == shortest
    assert pause(Usage(size=8 << 30), BoxLimits(workspace=10 << 30, files=1 << 40)) == 2
    assert pause(Usage(size=10 << 30), limits) == shortest
