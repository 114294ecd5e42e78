"""`python -m tests.fuzz`: rounds with new seeds, a failure that ends it and is told, and an end by Ctrl-C.

It is run on small test files of its own, so that what it does is bounded by their events.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.profiles import ROOT

pytestmark = pytest.mark.whole_process

HEAD = """
import pathlib, signal
from hypothesis import given, strategies as st

FOLDER = pathlib.Path(__file__).parent
"""
ILL_LATER = """
RUN = FOLDER / "was here"
later = RUN.exists()
RUN.touch()

@given(st.integers())
def test_all_numbers_are_small(number):
    assert number < 1000 or not later

def test_that_is_no_property():
    RUN.unlink()
"""
ENDLESS = """
@given(st.integers())
def test_it_never_ends(number):
    (FOLDER / "fifo").write_text("here")
    signal.pause()
"""

Project = Callable[[str], Path]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A folder with one file of tests, and the profiles."""

    def project(tests: str) -> Path:
        (tmp_path / "conftest.py").write_text("from tests.profiles import register_profiles\nregister_profiles()\n")
        path = tmp_path / "test_of_its_own.py"
        path.write_text(HEAD + tests)
        return path

    return project


def fuzz(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.fuzz", "-p", "no:cacheprovider", *arguments]


def test_rounds_go_on_with_new_seeds_until_one_fails_and_that_is_told(project: Project) -> None:
    done = subprocess.run(fuzz(str(project(ILL_LATER))), cwd=ROOT, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (1, "")
    sweeps, first, second, *report, last = done.stdout.splitlines()
    assert sweeps.startswith("all else, once: 1 passed, 1 deselected")
    assert [line.split(", seed ")[0] for line in (first, second)] == ["round 1", "round 2"]
    assert first.split("seed ")[1].split(":")[0] != second.split("seed ")[1].split(":")[0]
    assert ": 1 passed" in first
    assert ": 1 failed" in second
    assert "number=1000" in "\n".join(report)
    assert report[-1].startswith("examples that fail are kept in ")
    assert last.startswith("1 round of property tests without a failure, ")


@pytest.mark.real_time
async def test_ctrl_c_ends_the_round_and_the_run_with_a_summary(project: Project, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    process = await trio.lowlevel.open_process(fuzz(str(project(ENDLESS))), cwd=ROOT, stdout=subprocess.PIPE)
    try:
        await trio.to_thread.run_sync((tmp_path / "fifo").read_text, abandon_on_cancel=True)  # the round has begun
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        said = b"".join([chunk async for chunk in process.stdout]).decode().splitlines()
        assert await process.wait() == 130
    finally:
        process.kill()
    assert len(said) == 2
    assert said[0].startswith("all else, once: 1 deselected")
    assert said[1].startswith("0 rounds of property tests without a failure, ")
