"""trio's scheduler, with a number for each of its choices: which of the tasks that can run goes next, and when somebody
who may come at any moment comes.

trio runs what is runnable in batches and shuffles each. Here the shuffle asks, one after the other, which of the tasks
that remain goes next; 0 is the oldest. A list of numbers is therefore a schedule, and the same list is the same
schedule. The private names of trio that this needs are in this file only, and are known to exist before one is set.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType

import trio
import trio._core._run
from attrs import define, field
from trio.lowlevel import Task

ENDLESS = 20_000
"""Batches after which a program is taken for one that never ends."""


@define(eq=False, repr=False)
class Scheduler(trio.abc.Instrument):
    """Makes the choices of one run, and keeps what was chosen."""

    picks: tuple[int, ...] = ()
    """What to choose, in order; one that is too high is the highest there is. After the last, 0."""
    drawn: Random | None = None
    """Draws what is chosen after the last pick; None: the default, 0."""
    telling: bool = False
    """Whether to keep an account of who ran, which costs more than the run."""
    made: list[int] = field(init=False, factory=list)
    """What was chosen."""
    sizes: list[int] = field(init=False, factory=list)
    """Of how many."""
    account: list[str] = field(init=False, factory=list)
    patience: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    """The scope in which the whole program runs; cancelled if that never ends."""
    _free: bool = field(init=False, default=False)
    _undecided: dict[Task, bool] = field(init=False, factory=dict)
    """Who may come at any moment, and whether it is to come now."""
    _names: dict[Task, str] = field(init=False, factory=dict)
    _batches: int = field(init=False, default=0)

    @contextmanager
    def free(self) -> Iterator[None]:
        """In this block every order is possible; outside of it tasks run in the order of their age."""
        self._free = True
        try:
            yield
        finally:
            self._free = False

    def choose(self, size: int, what: Callable[[int], str]) -> int:
        """One of so many, numbered from 0; `what` says it in the account."""
        at = len(self.made)
        if at < len(self.picks):
            pick = min(self.picks[at], size - 1)
        else:
            pick = 0 if self.drawn is None else self.drawn.randrange(size)
        self.made.append(pick)
        self.sizes.append(size)
        if self.telling:
            self.account.append(f"  choice {at}: {what(pick)}{' (a deviation)' if pick else ''}")
        return pick

    def say(self, line: str) -> None:
        """Put something that happens into the account, where one is kept."""
        if self.telling:
            self.account.append(f"  {line}")

    async def any_moment(self) -> None:
        """Return now, or at any later scheduling point up to the one at which nobody else has anything to do.

        By default as late as possible. Virtual time does not pass meanwhile.
        """
        task = trio.lowlevel.current_task()
        if not self._free:
            return
        if self.choose(2, lambda pick: f"{self.named(task)} {'comes at once' if pick else 'comes later'}"):
            return
        self._undecided[task] = False
        try:
            while not self._undecided[task]:
                await trio.lowlevel.checkpoint()
        finally:
            del self._undecided[task]

    # ---- what trio asks of its source of randomness

    def shuffle(self, batch: list[Task]) -> None:
        """Put a batch, which comes sorted by age, into the order in which it is to run: from its end."""
        self._batches += 1
        if self._batches > ENDLESS:
            self.patience.cancel()
        waiting = [task for task in batch if task in self._undecided]
        if waiting:
            self._decide(waiting, alone=len(waiting) == len(batch))
        late = [task for task in waiting if not self._undecided[task]]
        left = [task for task in batch if task not in late]
        order: list[Task] = []
        while len(left) > 1 and self._free:
            among = tuple(left)

            def what(pick: int, among: tuple[Task, ...] = among) -> str:
                return f"of {', '.join(map(self.named, among))} runs {self.named(among[pick])}"

            order.append(left.pop(self.choose(len(left), what)))
        batch[:] = reversed([*order, *left, *late])

    def uniform(self, low: float, high: float) -> float:
        """trio's clock begins at a random time; this one does not."""
        return low

    def _decide(self, waiting: list[Task], *, alone: bool) -> None:
        if alone:  # nothing happens before one of them comes
            coming = 0
            if len(waiting) > 1 and self._free:
                coming = self.choose(
                    len(waiting), lambda pick: f"{self.named(waiting[pick])} comes, since all is quiet"
                )
            self._undecided[waiting[coming]] = True
            return
        for task in waiting:

            def what(pick: int, task: Task = task) -> str:
                return f"{self.named(task)} {'comes' if pick else 'does not come yet'}"

            self._undecided[task] = not self._free or bool(self.choose(2, what))

    # ---- the account

    def named(self, task: Task) -> str:
        """What the account calls a task; of several with one name the later ones have a number."""
        if task not in self._names:
            name = task.name if " " in task.name else task.name.rpartition(".")[2]
            same = sum(other.partition(" #")[0] == name for other in self._names.values())
            self._names[task] = f"{name} #{same + 1}" if same else name
        return self._names[task]

    def after_task_step(self, task: Task) -> None:
        """Part of the account, where one is kept: who ran, and what it waits for now."""
        if self._free and self._undecided.get(task, True) and not _is_trios_own(task):
            self.account.append(f"{self.named(task)} {_place(task)}")


def _place(task: Task) -> str:
    """Where a task is now: the calls in which it waits, but for trio's own."""
    if task.coro.cr_frame is None:
        return "ends"
    frames = [frame for frame, _ in task.iter_await_frames() if not _is_trios(frame)]
    return f"waits in {' > '.join(f'{frame.f_code.co_name}:{frame.f_lineno}' for frame in frames)}"


def _is_trios_own(task: Task) -> bool:
    return task.name.startswith("<")


def _is_trios(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "trio"


@contextmanager
def scheduled_by(scheduler: Scheduler) -> Iterator[None]:
    """In this block `trio.run` has every choice made by this scheduler."""
    run = trio._core._run
    for name in ("_r", "_ALLOW_DETERMINISTIC_SCHEDULING"):
        assert hasattr(run, name), f"trio {trio.__version__} has no {run.__name__}.{name}: schedules cannot be chosen"
    before = run._r, run._ALLOW_DETERMINISTIC_SCHEDULING
    run._r, run._ALLOW_DETERMINISTIC_SCHEDULING = scheduler, True  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        run._r, run._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
