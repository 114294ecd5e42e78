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
from rich.console import Console, Group
from rich.live import Live
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rollout_fsm.activity import Activity
from rollout_fsm.cli.harmless import one_line
from rollout_fsm.cli.numbers import clock, number
from rollout_fsm.cli.screen import Screen
from rollout_fsm.machine import State
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.machine.vocabulary import Group as StateGroup
from rollout_fsm.parties import Party
from rollout_fsm.reports.summary import Outcome, Summary
from rollout_fsm.trace import Trace, TransitionRecord

__all__ = ["Board", "Lines", "live_picture", "picture"]

INTERVAL = 0.1
"""Seconds between two looks at the board."""

LINES = 200
"""About how many lines a run writes when nobody watches it on a terminal."""

BAR = 36
"""Columns of the bar."""

_GROUPS: Mapping[StateGroup, tuple[str, str]] = {
    "opening": ("opening", "cyan"),
    "exchange": ("exchange", "green"),
    "closing": ("closing", "blue"),
    "failure": ("failure", "red"),
    "cancellation": ("cancelled", "yellow"),
}
"""The label and the colour of each group of states."""


@define(eq=False)
class Board:
    """Where every rollout of a run is: an observer of the engine."""

    total: int
    most: int
    """How many rollouts may run at once."""
    before: int = 0
    """How many rollouts were done before, by an earlier process of the run."""
    summary: Summary = field(factory=Summary)
    states: Counter[str] = field(factory=Counter)
    """How many rollouts are in each state that is not final."""
    waiting: dict[str, Party] = field(factory=dict)
    """Whom each rollout that is at work waits for, by the id of its trace."""
    retries: int = 0
    """How many attempts were followed by another."""
    started: float = field(factory=trio.current_time)
    _finals: frozenset[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        states = lifecycle().declaration.states.values()
        self._finals = frozenset(state.name for state in states if state.kind == "final")

    def on_trace(self, trace: Trace) -> None:
        """A rollout was minted, or one that another process had begun is gone on with."""
        last = trace.transitions[-1].target if trace.transitions else lifecycle().declaration.initial.name
        if last not in self._finals:
            self.states[last] += 1

    def on_transition(self, trace: Trace, transition: TransitionRecord) -> None:
        """A rollout moved."""
        self.states[transition.source] -= 1
        if transition.target not in self._finals:
            self.states[transition.target] += 1

    def on_activity(self, trace: Trace, activity: Activity) -> None:
        """A rollout does something else."""
        if activity.waiting_on is not None:
            self.waiting[trace.id] = activity.waiting_on

    def on_retry(self, trace: Trace, seconds: float) -> None:
        """An attempt ended, and another follows."""
        self.retries += 1
        self.waiting.pop(trace.id, None)

    def on_finished(self, trace: Trace) -> None:
        """A rollout ended."""
        self.summary.add(trace)
        self.waiting.pop(trace.id, None)

    @property
    def finished(self) -> int:
        """How many rollouts have ended, those before included."""
        return self.before + self.summary.rollouts

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


def picture(board: Board, name: str, width: int) -> Padding:
    """The board as it is now, in so many columns."""
    done = Table.grid(padding=(0, 2))
    done.add_row(
        Text(one_line(name, 24), "bold"),
        ProgressBar(total=max(1, board.total), completed=board.finished, width=BAR, complete_style="green"),
        Text(f"{board.finished} of {board.total}"),
        Text(clock(board.elapsed), "dim"),
        Text(f"{board.before} done before" if board.before else "", "dim"),
    )
    states = _states(board.states, max(2, len(str(board.most))))
    shown = states if _columns(states) < width else _few(board.states)
    return Padding(Group(done, Text(), shown, Text(), _waits(board), _so_far(board)), (1, 0, 1, 1))


def _states(counts: Mapping[str, int], digits: int) -> Table:
    """Every state at its place; how many rollouts are in it."""
    grid = Table.grid(padding=(0, 2))
    for group, (label, colour) in _GROUPS.items():
        members = [state.name for state in _unfinished_states() if state.group == group]
        grid.add_row(Text(label, "dim"), *(_state(name, counts.get(name, 0), digits, colour) for name in members))
    return grid


def _state(name: str, count: int, digits: int, colour: str) -> Table:
    cell = Table.grid(expand=True, padding=(0, 1))
    cell.add_column()
    cell.add_column(justify="right", min_width=digits)
    cell.add_row(
        Text(name, "" if count else "dim"), Text(str(count) if count else "·", f"bold {colour}" if count else "dim")
    )
    return cell


def _few(counts: Mapping[str, int]) -> Text:
    """For a narrow terminal: the states in which rollouts are, in lifecycle order."""
    text = Text()
    for state in _unfinished_states():
        if count := counts.get(state.name, 0):
            text.append(f"{state.name} ", "dim").append(f"{count}  ", f"bold {_GROUPS[state.group][1]}")
    return text


def _columns(thing: Table) -> int:
    console = Console(width=1000)
    return Measurement.get(console, console.options, thing).maximum


def _unfinished_states() -> list[State]:
    return [state for state in lifecycle().declaration.states.values() if state.kind != "final"]


def _waits(board: Board) -> Text:
    """Whom the rollouts wait for, the most waited for first."""
    text = Text("waiting on", "dim")
    for party, count in Counter(board.waiting.values()).most_common():
        text.append(f"  {party} ", "dim").append(str(count), "bold")
    return text


def _so_far(board: Board) -> Text:
    summary, reward = board.summary, board.summary.reward
    said = "none yet" if reward.mean is None else f"{number(reward.mean)} in {reward.measured} of {reward.of}"
    text = Text.assemble(("mean reward ", "dim"), (said, "bold" if reward.mean is not None else "dim"))
    if summary.not_ok:
        text.append("   ").append("not ok ", "dim").append(str(summary.not_ok), "bold red")
    if board.retries:
        text.append("   ").append("retries ", "dim").append(str(board.retries), "bold yellow")
    return text


@contextmanager
def live_picture(board: Board, screen: Screen, name: str) -> Iterator[Live]:
    """Within the block the picture is on the terminal; `keep_drawing` moves it. What others print comes above it."""
    live = Live(
        picture(board, name, screen.out.width),
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
        now = (dict(board.states), Counter(board.waiting.values()), board.finished, int(board.elapsed))
        if now != shown:
            live.update(picture(board, name, live.console.width), refresh=True)
            shown = now
        await trio.sleep(INTERVAL)


def _task(trace: Trace) -> str:
    named = trace.task.data.get("name")
    place = trace.task.data.get("idx")
    return (
        str(named) if isinstance(named, str) else f"{trace.task.type}#{place}" if place is not None else trace.task.type
    )
