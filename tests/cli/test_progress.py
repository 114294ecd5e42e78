"""Progress: what the board counts, and what of it is to be seen."""

import io

import pytest
import trio
from rich.console import Console

from rollout_fsm import Activity, ChatHarness, ScriptedModel, Task, Trace, open_engine
from rollout_fsm.cli.numbers import clock, number, seconds
from rollout_fsm.cli.progress import Board, Lines, keep_drawing, live_picture, picture
from rollout_fsm.cli.screen import Outlet, Screen
from rollout_fsm.errors import ErrorRecord
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.parties import Party
from rollout_fsm.trace import Reward, TransitionRecord
from tests.reports.made import FAILED, made


class Watch:
    """Notes the board after every transition that it has counted."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.seen: list[dict[str, int]] = []

    def on_transition(self, trace: Trace, transition: TransitionRecord) -> None:
        self.seen.append({name: count for name, count in self.board.states.items() if count})
        assert self.board.unfinished == sum(self.seen[-1].values())


async def test_the_board_knows_at_every_moment_how_many_rollouts_are_in_which_state() -> None:
    board = Board(6, most=2)
    watch = Watch(board)
    async with (
        open_engine(gateway=False, observers=[board, watch]) as engine,
        engine.run_all(
            [Task(prompt="?")] * 6, harness=ChatHarness(), model=ScriptedModel(["!"]), max_concurrent=2
        ) as traces,
    ):
        finished = [trace async for trace in traces]

    assert (board.finished, board.unfinished, board.summary.ok) == (6, 0, 6)
    assert len(watch.seen) == sum(len(trace.transitions) for trace in finished)
    assert max(sum(states.values()) for states in watch.seen) == 2
    assert all(count > 0 for states in watch.seen for count in states.values())
    assert {name for states in watch.seen for name in states} >= {"booting", "setup", "stepping", "releasing"}


def drawn(board: Board, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(picture(board, "example", width))
    return captured.get()


async def test_every_state_has_a_place_of_its_own_that_does_not_move_with_the_numbers() -> None:
    empty, busy = Board(100, most=32), Board(100, most=32)
    busy.states.update({"booting": 3, "stepping": 17, "releasing": 12})
    busy.on_finished(made(rewards={"right": Reward(score=0.5)}))
    busy.on_finished(made(path=FAILED, stop="error", errors=[ErrorRecord(type="TaskError", message="x")]))
    names = [state.name for state in lifecycle().declaration.states.values() if state.kind != "final"]

    before, after = drawn(empty, 80).splitlines(), drawn(busy, 80).splitlines()

    assert len(before) == len(after)
    grid = {
        name: (number, line.index(f" {name} "))
        for name in names
        for number, line in enumerate(before[3:8])
        if f" {name} " in line
    }
    assert set(grid) == set(names)
    for name, (number_, column) in grid.items():
        assert after[3:8][number_][column:].startswith(f" {name} ")
    assert "0 of 100" in before[1]
    assert "2 of 100" in after[1]
    assert "booting     3" in after[3]
    assert "stepping   17" in after[4]
    assert "releasing 12" in after[5]
    assert "mean reward 0.500 in 1 of 2   not ok 1" in after[10]
    assert "mean reward none yet" in before[10]


async def test_a_narrow_terminal_is_shown_only_the_states_that_rollouts_are_in() -> None:
    board = Board(10, most=10)
    board.states.update({"setup": 2, "stepping": 7})

    lines = drawn(board, 60).splitlines()

    assert "setup 2  stepping 7" in lines[3]
    assert max(map(len, lines)) <= 60


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_the_picture_is_drawn_when_something_changed_and_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    screen, board = Screen(Outlet(terminal), Outlet(io.StringIO())), Board(3, most=3)
    assert screen.live

    with live_picture(board, screen, "example") as live:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_drawing, live, board, "example")
            await trio.sleep(0.5)
            still = terminal.tell()
            await trio.sleep(0.3)
            assert terminal.tell() == still, "nothing changed, and it was drawn again"
            board.states["stepping"] = 2
            await trio.sleep(0.15)
            assert terminal.tell() > still
            nursery.cancel_scope.cancel()

    assert terminal.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in terminal.getvalue()[-200:], "the cursor is back"


async def test_a_long_run_that_is_piped_writes_a_few_hundred_lines_and_the_last_one() -> None:
    out = io.StringIO()
    board = Board(2001, most=1)
    lines = Lines(board, Screen(Outlet(out), Outlet(io.StringIO())))
    for _ in range(2001):
        board.on_finished(trace := made())
        lines.on_finished(trace)

    written = out.getvalue().splitlines()

    assert 200 <= len(written) <= 202
    assert written[-1].startswith("[2001/2001] completed")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (1.0, "1"),
        (-3.0, "-3"),
        (0.5, "0.500"),
        (2 / 3, "0.667"),
        (0.00042, "4.20e-04"),
        (1234567.0, "1,234,567"),
        (12345.678, "12,345.7"),
        (1e300, "1.00e+300"),
    ],
)
def test_a_number_is_shown_as_a_person_reads_it(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_times_are_shown_in_the_unit_that_fits() -> None:
    assert [seconds(value) for value in (None, 0.0, 0.0123, 1.25, 59.9, 61, 3723)] == [
        "–",
        "0 ms",
        "12 ms",
        "1.2 s",
        "59.9 s",
        "1:01",
        "1:02:03",
    ]
    assert clock(7) == "0:07"


def activity(party: Party) -> Activity:
    return Activity(state="stepping", since=0.0, waiting_on=party, doing="…", attempt=1, time_left=None)


async def test_the_picture_says_whom_the_rollouts_wait_for_and_how_many_were_tried_again() -> None:
    board = Board(100, most=32)
    traces = [made(id=f"t{number}") for number in range(4)]
    for trace, party in zip(traces, ("provider", "provider", "sandbox", "provider"), strict=True):
        board.on_activity(trace, activity(party))
    assert "waiting on  provider 3  sandbox 1" in drawn(board, 80).splitlines()[9]
    board.on_activity(traces[2], activity("task"))
    board.on_retry(traces[0], 1.0)
    board.on_finished(traces[1])
    shown = drawn(board, 80).splitlines()
    assert "waiting on  task 1  provider 1" in shown[9]
    assert "retries 1" in shown[10]
