"""Which plans there are, and playing many of them.

Up to its first interruption a play is the same as without it, so the points of the uninterrupted play are all the first
points that there are; those of the play interrupted once are all that a second interruption can have.
"""

from collections.abc import Iterable, Iterator
from functools import cache

from attrs import evolve, frozen

from tests.cancellation.cases import Case
from tests.cancellation.faults import faults_of_step
from tests.cancellation.plan import Broken, Means, Plan, Strike
from tests.cancellation.playing import play
from tests.cancellation.verdict import explained, faults_of

SHOWN = 3
"""How many failures are shown whole."""


@frozen(kw_only=True)
class Played:
    """What is kept of a play."""

    points: int
    failure: str | None


@cache
def played(plan: Plan) -> Played:
    """Play it, once however often it is asked for."""
    stage = play(plan)
    faults = faults_of(stage)
    if stage.schedule.fired != len(plan.strikes):
        faults.append(f"{stage.schedule.fired} of {len(plan.strikes)} points were reached: the schedule has changed")
    return Played(points=stage.schedule.seen, failure=explained(stage, faults) if faults else None)


def check(plans: Iterable[Plan]) -> None:
    """Play them all. Raises `AssertionError` with the first failures, and the names of all."""
    failures = {plan: failure for plan in plans if (failure := played(plan).failure) is not None}
    shown = [*list(failures.values())[:SHOWN], *(str(plan) for plan in list(failures)[SHOWN:])]
    assert not failures, f"{len(failures)} plays went wrong\n" + "\n".join(shown)


def once(case: Case, means: Means, broken: Broken | None = None) -> list[Plan]:
    """Interrupted at every point."""
    whole = Plan(case.name, broken=broken)
    points = range(1, played(whole).points + 1)
    return [evolve(whole, strikes=(Strike(means, point),)) for point in points]


def again(plans: Iterable[Plan], means: Means) -> Iterator[Plan]:
    """Each interrupted once more, at every later point."""
    for plan in plans:
        for point in range(plan.strikes[-1].point + 1, played(plan).points + 1):
            yield evolve(plan, strikes=(*plan.strikes, Strike(means, point)))


def breakages(case: Case) -> list[Broken]:
    """Each step of the case's release, with each fault."""
    return [Broken(step, fault) for step in case.steps for fault in faults_of_step(step)]
