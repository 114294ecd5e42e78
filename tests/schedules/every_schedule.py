"""Every order in which a small program of several tasks can run: all of them, or those that deviate least from the
default order and some at random.

A deviation is a choice that is not the default. A schedule with n of them is one with n - 1 and a further one later, so
the schedules are a tree, in which each occurs once; it is walked by the number of deviations, since the fewer a failing
schedule has, the better it can be read. `explore` says how many schedules there were and whether they are all.
"""

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Container, Hashable, Iterable, Mapping, Sequence
from random import Random
from typing import Generic, TypeVar

import trio
from attrs import field, frozen
from trio.testing import MockClock

from tests.profiles import profile
from tests.schedules.scheduler import ENDLESS, Scheduler, scheduled_by

T = TypeVar("T", bound=Hashable)
Case = Callable[[Scheduler], Awaitable[T]]
"""Runs the program and returns what came of it; raises if that is wrong."""

HANG = 3600.0
"""Virtual seconds after which a program is taken for hung."""
AGAIN = "SCHEDULE"
"""The variable of the environment that names one schedule, which is then the only one."""
AT_RANDOM = 4
"""Where not all are visited, one in so many schedules is drawn at random."""


class ScheduleFailed(AssertionError):  # noqa: N818  (read as a sentence: this schedule failed)
    """A schedule for which the case raised, with its list of choices and an account of the order of tasks."""

    def __init__(self, message: str, schedule: tuple[int, ...]) -> None:
        super().__init__(message)
        self.schedule = schedule


@frozen(kw_only=True, eq=False)
class Run(Generic[T]):
    """One schedule, and what came of it."""

    schedule: tuple[int, ...]
    sizes: tuple[int, ...]
    account: Sequence[str] = field(repr=False)
    outcome: T | None
    error: BaseException | None

    @property
    def deviations(self) -> int:
        """How many of its choices are not the default."""
        return sum(map(bool, self.schedule))

    @property
    def short(self) -> tuple[int, ...]:
        """The choices up to the last deviation."""
        return _short(self.schedule)


@frozen(kw_only=True)
class Explored(Generic[T]):
    """What came of all the schedules that were visited."""

    outcomes: Mapping[T, tuple[int, ...]]
    """Each outcome, with the first schedule that led to it."""
    by_deviations: Mapping[int, int]
    """How many schedules there were of so many deviations."""
    at_random: int
    exhaustive: bool
    """Whether these are all that there are."""

    @property
    def schedules(self) -> int:
        """How many were visited."""
        return sum(self.by_deviations.values()) + self.at_random

    def expect(self, reached: Iterable[T], *, allowed: Container[T] | None = None) -> None:
        """Assert that these outcomes were reached, and none but the allowed ones: by default, but these.

        A search that `dev` cut short may miss some.
        """
        wanted = set(reached)
        others = {out: at for out, at in self.outcomes.items() if out not in (wanted if allowed is None else allowed)}
        assert not others, f"outcomes that no rule allows, by their schedules: {others}"
        missed = wanted - set(self.outcomes)
        assert not missed or (profile() == "dev" and not self.exhaustive), f"{self} never came to {missed}"

    def __str__(self) -> str:
        if self.exhaustive:
            return f"all {self.schedules} schedules, {len(self.outcomes)} outcomes"
        by_order = ", ".join(f"{count} of {number}" for number, count in sorted(self.by_deviations.items()))
        return (
            f"{self.schedules} schedules (by deviations: {by_order}; {self.at_random} at random), "
            f"{len(self.outcomes)} outcomes"
        )


def most(*, dev: int, ci: int, fuzz: int | None = None) -> int | None:
    """How many schedules to visit in this run's profile; None: every one."""
    return {"dev": dev, "ci": ci, "fuzz": fuzz}[profile()]


def replay(case: Case[T], schedule: Sequence[int], *, drawn: Random | None = None, telling: bool = False) -> Run[T]:
    """Run one schedule, given by its list of choices; what is left out at its end is the default."""
    scheduler = Scheduler(picks=tuple(schedule), drawn=drawn, telling=telling)
    outcome: T | None = None
    error: BaseException | None = None

    async def main() -> T:
        with trio.fail_after(HANG), scheduler.patience:
            return await case(scheduler)
        raise RuntimeError(f"the program never ends: {ENDLESS} batches of tasks have run")

    with scheduled_by(scheduler):
        try:
            clock = MockClock(autojump_threshold=0)
            outcome = trio.run(main, clock=clock, instruments=[scheduler] if telling else [])
        except Exception as raised:  # noqa: BLE001  (kept: that it raises is what is looked for)
            error = _bare(raised)
    return Run(
        schedule=tuple(scheduler.made),
        sizes=tuple(scheduler.sizes),
        account=scheduler.account,
        outcome=outcome,
        error=error,
    )


def explore(case: Case[T], *, limit: int | None = None) -> Explored[T]:
    """Run every schedule, or so many: those with the fewest deviations, and at random, always the same.

    Raises `ScheduleFailed` with the failing schedule of the fewest deviations that was found.
    """
    outcomes: dict[T, tuple[int, ...]] = {}
    by_deviations: Counter[int] = Counter()
    visited: set[tuple[int, ...]] = set()
    frontier: deque[tuple[Sequence[int], int]] = deque([((), 0)])
    in_order = limit if limit is None else limit - limit // AT_RANDOM
    while frontier and (in_order is None or len(visited) < in_order):
        common, pick = frontier.popleft()
        wanted = (*common, pick) if pick else ()
        run = _judged(case, replay(case, wanted), len(visited), outcomes)
        made = run.schedule
        assert made[: len(wanted)] == wanted, f"the program is not deterministic: {wanted} was run as {made}"
        by_deviations[run.deviations] += 1
        visited.add(run.short)
        for at in range(len(wanted), len(made)):
            until = made[:at]
            frontier.extend((until, other) for other in range(1, run.sizes[at]))
    exhaustive, at_random = not frontier, 0
    if limit is not None and not exhaustive:
        random = Random(0)
        for _ in range(limit - len(visited)):
            run = _judged(case, replay(case, (), drawn=random), len(visited), outcomes)
            at_random += run.short not in visited
            visited.add(run.short)
    return Explored(outcomes=outcomes, by_deviations=by_deviations, at_random=at_random, exhaustive=exhaustive)


def shrink(case: Case[T], failing: Run[T]) -> Run[T]:
    """A schedule that fails in the same way, from which no deviation can be taken away or made smaller."""
    while True:
        for picks in _simpler(failing.short):
            run = replay(case, picks)
            if type(run.error) is type(failing.error) and _size(run) < _size(failing):
                failing = run
                break
        else:
            return failing


def _judged(case: Case[T], run: Run[T], before: int, outcomes: dict[T, tuple[int, ...]]) -> Run[T]:
    if run.error is None:
        assert run.outcome is not None, "a case returns what came of it"
        outcomes.setdefault(run.outcome, run.short)
        return run
    retell(case, shrink(case, run).short, f"; {before} others did not fail")
    raise AssertionError(f"the program is not deterministic: {run.short} failed only once") from run.error


def retell(case: Case[T], schedule: Sequence[int], note: str = "") -> Run[T]:
    """Run one schedule with an account of it. Raises `ScheduleFailed` with that if it fails."""
    told = replay(case, schedule, telling=True)
    if told.error is None:
        return told
    deviations = f"{told.deviations} deviation{'s' * (told.deviations != 1)}"
    said = [
        f"schedule {list(told.short)} fails ({deviations}{note}): {type(told.error).__name__}: {told.error}",
        f"the same again: {AGAIN}={','.join(map(str, told.short)) or '0'} in the environment, and this test",
        "who ran, in order, and where it then was:",
        *(f"    {line}" for line in told.account),
    ]
    raise ScheduleFailed("\n".join(said), told.short) from told.error


def _bare(error: BaseException) -> BaseException:
    """What was raised, out of the groups that the program's nurseries put around it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    return error


def _simpler(schedule: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The same with one deviation less, or with one made smaller; what follows may then mean other tasks."""
    deviations = [at for at, pick in enumerate(schedule) if pick]
    without = [(*schedule[:at], 0, *schedule[at + 1 :]) for at in deviations]
    cut = [schedule[:at] for at in deviations]
    joined = [(*schedule[:at], *schedule[at + 1 :]) for at in range(len(schedule))]
    smaller = [(*schedule[:at], pick, *schedule[at + 1 :]) for at in deviations for pick in range(1, schedule[at])]
    return [*cut, *without, *joined, *smaller]


def _size(run: Run[T]) -> tuple[int, int, tuple[int, ...]]:
    return run.deviations, len(run.short), run.short


def _short(schedule: tuple[int, ...]) -> tuple[int, ...]:
    length = len(schedule)
    while length and not schedule[length - 1]:
        length -= 1
    return schedule[:length]
