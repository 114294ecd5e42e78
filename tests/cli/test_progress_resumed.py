"""Progress of a run that is gone on with: what was done before counts, and rollouts may begin where another process
left them."""

import io
import sqlite3

from rich.console import Console

from rollout_fsm.cli.faults import is_of_the_disk
from rollout_fsm.cli.progress import Board, Lines, picture
from rollout_fsm.cli.screen import Outlet, Screen
from rollout_fsm.journal import JournalError
from tests.reports.made import COMPLETED, made


async def test_what_was_done_before_is_counted_and_said() -> None:
    out, board = io.StringIO(), Board(80, most=4, before=12)
    lines = Lines(board, Screen(Outlet(out), Outlet(io.StringIO())))
    board.on_finished(trace := made())
    lines.on_finished(trace)
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    with console.capture() as captured:
        console.print(picture(board, "sums", 100))

    assert out.getvalue().startswith("[13/80] completed")
    assert "13 of 80" in captured.get()
    assert "12 done before" in captured.get()
    assert "mean reward none yet" in captured.get()


async def test_a_rollout_that_another_process_began_is_counted_in_the_state_that_it_was_left_in() -> None:
    board = Board(1, most=1)
    trace = made(path=COMPLETED[:-2])
    last = made(path=COMPLETED[-2:]).transitions

    board.on_trace(trace)
    assert (board.unfinished, +board.states) == (1, {"scoring": 1})
    for taken in last:
        board.on_transition(trace, taken)
    assert (board.unfinished, +board.states) == (0, {})


def test_a_disk_that_takes_nothing_is_told_from_a_wrong_name() -> None:
    full, busy = sqlite3.OperationalError("full"), sqlite3.OperationalError("busy")
    full.sqlite_errorcode, busy.sqlite_errorcode = sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY
    errors = {OSError(28, "no space"): True, OSError(30, "read-only"): True, OSError(2, "missing"): False}
    errors |= {JournalError("it is full"): True, JournalError("it is in use"): False, ValueError("odd"): False}
    for error, cause in zip(errors, (None, None, None, full, busy, None), strict=True):
        error.__cause__ = cause

    assert {error: is_of_the_disk(error) for error in errors} == errors
