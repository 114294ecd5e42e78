"""How a run is going: counted by an observer, shown as something calm that stays in place, or as plain lines when
piped.

The picture has every state of the lifecycle in a place of its own, always the same one; only numbers change. It is
drawn by a task of the run, a few times a second, never by a thread.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import trio
from attrs import define, field
from rich.console import Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rollout_fsm.cli.harmless import one_line
from rollout_fsm.cli.numbers import clock, number
from rollout_fsm.cli.screen import Screen
from rollout_fsm.machine import load_machine
from rollout_fsm.machine.vocabulary import GROUPS
from rollout_fsm.reports.summary import Outcome, Summary
from rollout_fsm.trace import Trace, TransitionRecord

__all__ = ["Board", "Lines", "live_picture", "picture"]

INTERVAL = 0.1
"""Seconds between two looks at the board."""

LINES = 200
"""About how many lines a run writes when nobody watches it on a terminal."""

_COLOURS = {"opening": "cyan", "exchange": "green", "closing": "blue", "failure": "red", "cancellation": "yellow"}


@define(eq=False)
class Board:
    """Where every rollout of a run is: an observer of the engine."""

    total: int
    summary: Summary = field(factory=Summary)
    states: Counter[str] = field(factory=Counter)
    """How many rollouts are in each state that is not final."""
    started: float = field(factory=trio.current_time)
    _finals: frozenset[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        states = load_machine().states.values()
        self._finals = frozenset(state.name for state in states if state.kind == "final")

    def on_trace(self, trace: Trace) -> None:
        """A rollout was minted."""
        self.states[load_machine().initial.name] += 1

    def on_transition(self, trace: Trace, transition: TransitionRecord) -> None:
        """A rollout moved."""
        self.states[transition.source] -= 1
        if transition.target not in self._finals:
            self.states[transition.target] += 1

    def on_finished(self, trace: Trace) -> None:
        """A rollout ended."""
        self.summary.add(trace)

    @property
    def finished(self) -> int:
        """How many rollouts have ended."""
        return self.summary.rollouts

    @property
    def unfinished(self) -> int:
        """How many rollouts were minted and have not ended."""
        return self.states.total()

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return trio.current_time() - self.started


@define(eq=False)
class Lines:
    """Progress as lines, one for each rollout that finishes; of a long run only every so manieth. An observer."""

    board: Board
    screen: Screen

    def on_finished(self, trace: Trace) -> None:
        """A rollout ended; the board has counted it already."""
        board = self.board
        if board.finished % max(1, board.total // LINES) and board.finished != board.total:
            return
        outcome = Outcome.of(trace)
        parts = [
            f"[{board.finished}/{board.total}] {outcome.state}",
            f"stop={outcome.stop_condition}",
            *([f"error={outcome.error}"] if outcome.error else []),
            f"reward={number(trace.reward)}",
            f"turns={trace.num_turns}",
            f"task={_task(trace)}",
            f"id={trace.id}",
        ]
        self.screen.say(one_line("  ".join(parts), 400))


def picture(board: Board, name: str) -> Group:
    """The board as it is now."""
    done = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=max(1, board.total), completed=board.finished, width=40, complete_style="green")
    done.add_row(
        Text(one_line(name, 24), "bold"),
        bar,
        Text(f"{board.finished} of {board.total}"),
        Text(clock(board.elapsed), "dim"),
    )
    return Group(
        Text(), done, Text(), Padding(_states(board.states), (0, 0, 0, 2)), Text(), _so_far(board.summary), Text()
    )


def _states(counts: Mapping[str, int]) -> Table:
    states = [state for state in load_machine().states.values() if state.kind != "final"]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=12)
    for group in GROUPS:
        cells = [
            _state(state.name, counts.get(state.name, 0), _COLOURS[group]) for state in states if state.group == group
        ]
        grid.add_row(Text(group, "dim"), *cells)
    return grid


def _state(name: str, count: int, colour: str) -> Text:
    text = Text.assemble((f"{name:<10}", "dim" if not count else ""), " ")
    return text.append(f"{count:>4}" if count else "   ·", f"bold {colour}" if count else "dim")


def _so_far(summary: Summary) -> Text:
    reward = summary.reward
    said = "none yet" if reward.mean is None else f"{number(reward.mean)} in {reward.measured} of {reward.of}"
    text = Text.assemble("  ", ("mean reward ", "dim"), (said, "bold" if reward.mean is not None else "dim"))
    if summary.not_ok:
        text.append("   ").append("not ok ", "dim").append(str(summary.not_ok), "bold red")
    return text


@contextmanager
def live_picture(board: Board, screen: Screen, name: str) -> Iterator[Live]:
    """Within the block the picture is on the terminal; `keep_drawing` moves it. What others print comes above it."""
    live = Live(
        picture(board, name),
        console=screen.out,
        auto_refresh=False,
        transient=True,
        redirect_stderr=sys.stderr.isatty(),
    )
    with live:
        yield live


async def keep_drawing(live: Live, board: Board, name: str) -> None:
    """Draw the board whenever it has changed, and once a second for the clock, until cancelled."""
    shown: tuple[object, ...] = ()
    while True:
        now = (dict(board.states), board.finished, int(board.elapsed))
        if now != shown:
            live.update(picture(board, name), refresh=True)
            shown = now
        await trio.sleep(INTERVAL)


def _task(trace: Trace) -> str:
    named = trace.task.data.get("name")
    place = trace.task.data.get("idx")
    return (
        str(named) if isinstance(named, str) else f"{trace.task.type}#{place}" if place is not None else trace.task.type
    )
