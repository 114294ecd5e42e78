"""The scenarios as witnesses: what each of them fires on the shipped machine, and whether it notices another one.

Only a scenario that fires the edited state's trigger can notice an edit of a row, so each is played once on the shipped
machine and what it fires is kept. A play on a mutant may go round for ever: after `FIRINGS` it is given up, and one
that burns the processor without firing is struck by a signal. A play that is given up, or that raises, has noticed.
"""

import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio
from attrs import define, field, frozen

from rollout_fsm.machine.declaration import Declaration, Row
from rollout_fsm.machine.guards import Facts
from rollout_fsm.machine.lifecycle import Lifecycle, Subject
from rollout_fsm.simulation import Scenario, load_scenario, simulate
from tests.mutation.mutants import Mutant
from tests.mutation.swapping import machine
from tests.simulation.expectations import differences

FIRINGS = 400
"""After so many firings a play is given up; no scenario needs a tenth of them."""
SECONDS = 20.0
"""Of the processor's time, after which a play is struck; none needs a hundredth."""

REFUSED = "refused"
"""The trigger that the engine also asks about: whether a state takes it says whether turns are admitted there."""

Firing = tuple[str, str]
"""A state and a trigger that was fired in it."""


class Unending(BaseException):
    """A play went on and on. No exception of the engine's, so that nothing handles it as one."""


@frozen(kw_only=True, eq=False)
class Witness:
    """A case, and what it fires on the shipped machine."""

    name: str
    case: Mapping[str, Any] = field(repr=False)
    scenario: Scenario = field(repr=False)
    firings: int = 0
    fired: frozenset[Firing] = field(default=frozenset(), repr=False)
    taken: frozenset[Row] = field(default=frozenset(), repr=False)
    visited: frozenset[str] = field(default=frozenset(), repr=False)


@define(eq=False)
class _Watch:
    """Counts what is fired, and notes it."""

    firings: int = 0
    fired: set[Firing] = field(factory=set)
    taken: set[Row] = field(factory=set)
    visited: set[str] = field(factory=set)

    def wrapped(self, fire: Callable[[Lifecycle, Subject, str, Facts], Row]) -> Callable[..., Row]:
        def watched(lifecycle: Lifecycle, subject: Subject, trigger: str, facts: Facts) -> Row:
            self.firings += 1
            if self.firings > FIRINGS:
                raise Unending(f"more than {FIRINGS} firings; the last is {trigger!r} in {subject.state!r}")
            self.visited.add(subject.state)
            self.fired.add((subject.state, trigger))
            row = fire(lifecycle, subject, trigger, facts)
            self.taken.add(row)
            self.visited.add(subject.state)
            return row

        return watched


def witnesses(paths: Iterable[Path], shipped: Declaration) -> tuple[Witness, ...]:
    """The cases of these files, each played once on the shipped machine, the shortest lives first."""
    found = []
    for path in paths:
        case, scenario = json.loads(path.read_bytes()), load_scenario(path)
        with machine(shipped):
            watch, differs = _played(case, scenario)
        assert differs is None, f"{path}: on the shipped machine: {differs}"
        found.append(
            Witness(
                name=path.stem,
                case=case,
                scenario=scenario,
                firings=watch.firings,
                fired=frozenset(watch.fired),
                taken=frozenset(watch.taken),
                visited=frozenset(watch.visited),
            )
        )
    return tuple(sorted(found, key=lambda witness: (witness.firings, witness.name)))


def concerned(mutant: Mutant, all_: Iterable[Witness]) -> list[Witness]:
    """The witnesses that could notice the edit; first those that take the edited row."""

    def could(witness: Witness) -> bool:
        row = mutant.row
        if row is None or row.trigger == REFUSED:
            return mutant.state in witness.visited
        return (row.source, row.trigger) in witness.fired

    return sorted(filter(could, all_), key=lambda witness: mutant.row not in witness.taken)


def noticed_by(mutant: Mutant, all_: Sequence[Witness]) -> tuple[Witness, str] | None:
    """The first witness that notices, with what it says; None if the mutant passes them all."""
    with machine(mutant.declaration):
        for witness in concerned(mutant, all_):
            _, differs = _played(witness.case, witness.scenario)
            if differs is not None:
                return witness, differs
    return None


def _played(case: Mapping[str, Any], scenario: Scenario) -> tuple[_Watch, str | None]:
    """One play: what it fired, and what is not as it must be, None where all is."""
    watch = _Watch()
    differs = fault_of(lambda: differences(case, simulate(scenario).to_json()), watch)
    return watch, differs


def fault_of(play: Callable[[], Sequence[str] | None], watch: _Watch | None = None) -> str | None:
    """The first thing that a play finds wrong, or what it raises; one that goes on and on is ended, and that is wrong.

    Always on the same schedule, so that what is noticed is noticed again.
    """
    watch = _Watch() if watch is None else watch
    trio._core._run._r.seed(0)
    try:
        with patch.object(Lifecycle, "fire", watch.wrapped(Lifecycle.fire)), _struck_after(SECONDS):
            wrong = play()
    except BaseException as raised:  # noqa: BLE001  (whatever a mutant does)
        return f"raised {type(raised).__name__}: {str(raised).splitlines()[:1]}"
    if watch.firings > FIRINGS:
        return f"went on for more than {FIRINGS} firings"
    return wrong[0] if wrong else None


@contextmanager
def _struck_after(seconds: float) -> Iterator[None]:
    """Raise `Unending` in the block when it has used so much of the processor's time, and again every second."""

    def strike(*_: object) -> None:
        raise Unending(f"more than {seconds:g} s of the processor")

    before = signal.signal(signal.SIGPROF, strike)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
