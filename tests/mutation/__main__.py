"""`python -m tests.mutation`: every single edit of the declaration, and who notices it.

Prints a table, then the mutants that nobody noticed, those that are equivalent under the reason why. Exits with 1 if
more than one in twenty of the others was not noticed. `--own` asks the project's own cases only, as a clone has to;
else those that lie beside the project are asked too.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from time import monotonic

from rollout_fsm import load_machine
from tests.mutation.mutants import EDITS, Mutant, mutants
from tests.mutation.noticing import LEVELS, Notice
from tests.mutation.pool import notices
from tests.mutation.scenarios import witnesses
from tests.mutation.unnoticed import reason
from tests.simulation.test_cases import OWN, SHARED

WANTED = 0.95
"""The share of the mutants that are not equivalent, of which somebody must notice that they are wrong."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask about every mutant."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--own", action="store_true", help="ask the project's own cases only")
    parser.add_argument("--said", action="store_true", help="say of each mutant what was noticed")
    given = parser.parse_args(arguments)
    began, shipped = monotonic(), load_machine()
    asked = witnesses(OWN if given.own else [*OWN, *SHARED], shipped)
    every = mutants(shipped)
    say(f"{len(every)} mutants of {len(shipped.rows)} rows and {len(shipped.states)} states, {len(asked)} scenarios")
    came: dict[str, Notice] = {}
    for noticed in notices(every, asked):
        came[noticed.mutant] = noticed
        if given.said:
            say(f"{noticed.mutant}\n    {noticed.level or 'nobody'}: {noticed.said}")
    missed = [mutant for mutant in every if came[mutant.name].level is None]
    equivalent = sum(reason(mutant) is not None for mutant in missed)
    say(*table(every, came), *listed(missed), f"{monotonic() - began:.0f} s")
    return 0 if len(every) - len(missed) >= WANTED * (len(every) - equivalent) else 1


def say(*lines: str) -> None:
    """Print."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def table(every: Iterable[Mutant], came: dict[str, Notice]) -> list[str]:
    """How many of each kind of edit were noticed, and by whom."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant in every:
        level = came[mutant.name].level
        column = level or ("equivalent" if reason(mutant) else "missed")
        for line in (mutant.edit, "all"):
            counts[line].update((column, "mutants"))
    columns = ("mutants", *LEVELS, "missed", "equivalent")
    lines = [f"{'':32}" + "".join(f"{column:>12}" for column in columns) + f"{'noticed':>10}{'of the rest':>13}"]
    for line in (*EDITS, "all"):
        of = counts[line]
        numbers = "".join(f"{of[column] or '':>12}" for column in columns)
        lines.append(
            f"{line:32}{numbers}{_share(of, of['mutants']):>10}{_share(of, of['mutants'] - of['equivalent']):>13}"
        )
    return lines


def _share(of: Counter[str], whole: int) -> str:
    return f"{sum(of[level] for level in LEVELS) / whole:.1%}" if whole else ""


def listed(missed: Sequence[Mutant]) -> list[str]:
    """What nobody noticed, by name: first what is not explained, then what behaves the same, under the reason why."""
    lines = [f"missed: {mutant.name}" for mutant in missed if reason(mutant) is None]
    why: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in missed:
        if (said := reason(mutant)) is not None:
            why[said].append(mutant)
    for said, same in why.items():
        lines += ["", f"equivalent: {said}", *(f"    {mutant.name}" for mutant in same)]
    return lines


if __name__ == "__main__":
    sys.exit(main())
