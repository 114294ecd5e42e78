"""Which processes of a table are a box's."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.runtimes.processes import Box, Strike, belonging, strike
from rollout_fsm.runtimes.table import Census, Process, Table, ps_table, read_environ

ALL = range(sys.maxsize)


def process(pid: int, *, parent: int = 1, session: int = 1, serial: int | None = None) -> Process:
    return Process(pid=pid, parent=parent, session=session, started=pid, serial=serial)


def chosen(
    *table: Process, led: dict[int, int] | None = None, orphaned: dict[int, int] | None = None, wanted: range = ALL
) -> set[int]:
    box = Box(marker="M", led=led or {}, orphaned=orphaned or {})
    return {each.pid for each in belonging(table, box, wanted)}


def test_a_stranger_is_not_chosen() -> None:
    assert chosen(process(7), process(8, parent=7, session=7), led={9: 0}) == set()


def test_a_marked_process_its_session_and_its_descendants_are() -> None:
    assert chosen(
        process(10, session=10, serial=0),
        process(11, session=10),
        process(12, parent=11, session=12),
        process(13, parent=1, session=12),
        process(14, parent=2, session=14),
    ) == {10, 11, 12, 13}


def test_the_session_of_a_program_is_chosen_also_when_the_program_is_gone() -> None:
    assert chosen(process(11, session=10), orphaned={10: 0}) == {11}


def test_a_stranger_that_was_given_the_id_of_a_program_that_is_gone_is_not() -> None:
    assert chosen(process(10, session=10), process(11, parent=10, session=10), orphaned={10: 0}) == set()


def test_a_program_that_was_not_waited_for_is_chosen_by_its_id() -> None:
    assert chosen(process(10, session=10), led={10: 0}) == {10}


def test_only_wanted_serial_numbers_are_chosen() -> None:
    table = (process(10, session=10, serial=0), process(20, session=20, serial=1), process(21, session=20))
    assert chosen(*table, led={10: 0, 20: 1}, wanted=range(1, 2)) == {20, 21}
    assert chosen(*table, led={10: 0, 20: 1}, wanted=range(1)) == {10}


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[Process], set[int]]:
    """A table of two families that fork, leave sessions, shed markers and lose parents; the pids of the first."""
    table = {2: process(2, session=2, serial=0), 3: process(3, session=3)}
    ours = {2}
    for pid in range(4, 4 + draw(st.integers(0, 12))):
        parent = draw(st.sampled_from(sorted(table)))
        leaves = draw(st.booleans())
        keeps = draw(st.booleans()) or leaves  # whoever leaves the session keeps its marker
        mine = table[parent]
        # what has shed its marker has a session, or else its parent, to be known by
        table[pid] = process(
            pid,
            parent=parent if not leaves or draw(st.booleans()) else 1,
            session=pid if leaves and mine.serial is not None else mine.session,
            serial=mine.serial if keeps else None,
        )
        if parent in ours:
            ours.add(pid)
    return list(table.values()), ours


@given(forest=forests(), order=st.randoms(use_true_random=False))
def test_a_family_is_chosen_whole_and_alone(forest: tuple[list[Process], set[int]], order: random.Random) -> None:
    table, ours = forest
    order.shuffle(table)
    assert chosen(*table, led={2: 0}) == ours


@pytest.mark.skipif(sys.platform != "linux", reason="markers are read from /proc")
def test_the_table_shows_this_process_and_a_marked_child() -> None:
    marked = {**os.environ, "BOX_TEST": "5"}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=marked, start_new_session=True) as child:
        table = {each.pid: each for each in Census("BOX_TEST").look().processes}
        assert child.stdin is not None
        child.stdin.close()
    assert (table[child.pid].parent, table[child.pid].session, table[child.pid].marks) == (
        os.getpid(),
        child.pid,
        {"BOX_TEST": 5},
    )
    assert table[os.getpid()].marks == {}
    assert child.pid not in {each.pid for each in Census("BOX_TEST").look().processes}


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps here")
def test_a_system_without_proc_is_asked_through_ps() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as child:
        table = {each.pid: each for each in ps_table()}
        assert child.stdin is not None
        child.stdin.close()
    assert (table[child.pid].parent, table[child.pid].session) == (os.getpid(), child.pid)
    assert child.pid not in {each.pid for each in ps_table()}


def test_a_program_with_blanks_and_brackets_in_its_name_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / ") R 1 (x y"
    odd.symlink_to("/bin/cat")
    with subprocess.Popen([odd], stdin=subprocess.PIPE, start_new_session=True) as child:
        box = Box(marker="BOX_TEST", led={child.pid: 0}, orphaned={})
        (found,) = strike(Census("BOX_"), [Strike(box=box, wanted=ALL, signum=0)])
        assert child.stdin is not None
        child.stdin.close()
    assert [(each.pid, each.parent) for each in found] == [(child.pid, os.getpid())]


@pytest.mark.skipif(sys.platform != "linux", reason="markers are read from /proc")
def test_the_environment_of_a_process_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(pid: int) -> bytes:
        read.append(pid)
        return read_environ(pid)

    monkeypatch.setattr("rollout_fsm.runtimes.table.read_environ", counted)
    census = Census("BOX_")
    for _ in range(3):
        assert os.getpid() in {each.pid for each in census.look().processes}
    assert read.count(os.getpid()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the table is read from /proc")
def test_a_process_that_is_started_while_a_look_goes_on_is_seen_in_it() -> None:
    children: list[subprocess.Popen[bytes]] = []

    def start(process: Process) -> None:
        if not children:
            children.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))

    table = Census("BOX_").look(start)
    (child,) = children
    child.communicate()
    assert child.pid in {each.pid for each in table.processes}


def test_a_table_tells_what_a_box_is_about_and_no_more() -> None:
    marked = Process(pid=10, started=1, parent=1, session=10, marks={"M": 4, "N": 5})
    sibling, child, grandchild = process(11, session=10), process(12, parent=11, session=12), process(13, session=12)
    table = Table([marked, sibling, child, grandchild, process(7), process(8, parent=7, session=7)])
    about = {each.pid: each.serial for each in table.about("M", [])}
    assert about == {10: 4, 11: None, 12: None, 13: None}
    assert {each.pid for each in table.about("X", [7])} == {8}
