"""Who notices a mutant, asked in the order of what it costs: structure, scenarios, tests by hand, lives.

The structure is P1 to P10 of the edited table; all that the loader refuses, it refuses too. The scenarios are the
project's cases, played on the engine with the edited machine; what no scenario can play or tell is tested by hand. The
lives are what else `rollout-fsm check` proves: every life followed on the edited table (S), and the compiled machine
fired against it (M). A flipped guard cannot be written in a state file, so `check` will never meet one, and what is
played has to notice it.

`tests/machine/oracle.py` is not asked: the table, written a second time, notices everything by construction. Nor are
the exported diagrams, which show the whole table and are stale after every edit.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from attrs import frozen

from rollout_fsm.machine import check_machine, prove
from tests.conftest import under_trio
from tests.mutation.mutants import Mutant
from tests.mutation.scenarios import Witness, fault_of, noticed_by
from tests.mutation.swapping import machine
from tests.mutation.test_unscripted import by_hand

Level = Literal["structure", "scenarios", "by hand", "lives"]

LEVELS: tuple[Level, ...] = get_args(Level)


@frozen(kw_only=True)
class Notice:
    """What came of a mutant."""

    mutant: str
    level: Level | None
    """Who noticed; None: nobody."""
    said: str = ""
    """What was noticed, in words."""


def notice(mutant: Mutant, witnesses: Sequence[Witness]) -> Notice:
    """Ask until somebody notices."""

    def noticed(level: Level, said: str) -> Notice:
        return Notice(mutant=mutant.name, level=level, said=said)

    if faults := check_machine(mutant.proven):
        return noticed("structure", str(faults[0]))
    if (found := noticed_by(mutant, witnesses)) is not None:
        return noticed("scenarios", f"{found[0].name}: {found[1]}")
    if (differs := _noticed_by_hand(mutant)) is not None:
        return noticed("by hand", differs)
    if mutant.edit != "a guard is flipped" and (faults := prove(mutant.declaration)):
        return noticed("lives", str(faults[0]))
    return Notice(mutant=mutant.name, level=None)


def _noticed_by_hand(mutant: Mutant) -> str | None:
    test = by_hand.get((mutant.state, None if mutant.row is None else mutant.row.trigger))
    if test is None:
        return None
    run = under_trio(test, real_time=False)
    with machine(mutant.declaration):
        return fault_of(run)
