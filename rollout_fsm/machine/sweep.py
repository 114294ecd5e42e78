"""The proof of the execution: the compiled machine does what the table says, for every state, trigger and valuation.

The other proofs read the declaration; this one fires the library's machine, and the declared rows say what must come of
it (M1). A machine that was compiled from something else, a guard that tests another fact, a row that the library does
not execute, a refusal that moves its subject: all are found here.
"""

from collections.abc import Iterator, Mapping
from itertools import product

from attrs import define, frozen

from rollout_fsm.machine.declaration import Declaration, Row
from rollout_fsm.machine.errors import IllegalTransition
from rollout_fsm.machine.fault import Fault
from rollout_fsm.machine.guards import GUARDS
from rollout_fsm.machine.lifecycle import Lifecycle
from rollout_fsm.machine.paths import Valuation, by_trigger, taken
from rollout_fsm.machine.vocabulary import TRIGGERS


@define(eq=False)
class _Subject:
    """What is fired: a state and nothing else."""

    state: str


@frozen(eq=False)
class _Facts:
    """Facts that are what a valuation says."""

    values: Mapping[str, bool]

    def __getattr__(self, name: str) -> bool:
        return self.values[name]


Asked = tuple[Valuation, _Facts]


def sweep(machine: Lifecycle, declaration: Declaration) -> list[Fault]:
    """Where the machine and the declaration part, at most once for each state and trigger."""
    everything = tuple(_valuations())
    found = (
        _parting(machine, name, trigger, rows.get(trigger, ()), everything)
        for name, rows in ((name, by_trigger(state)) for name, state in declaration.states.items())
        for trigger in TRIGGERS
    )
    return [fault for fault in found if fault is not None]


def _valuations() -> Iterator[Asked]:
    for bits in product((False, True), repeat=len(GUARDS)):
        values: dict[str, bool] = dict(zip(GUARDS, bits, strict=True))
        holds = frozenset(name for name, bit in values.items() if bit)
        yield Valuation(holds=holds, asked=tuple(GUARDS)), _Facts(values)


def _parting(
    machine: Lifecycle,
    state: str,
    trigger: str,
    rows: tuple[Row, ...],
    valuations: tuple[Asked, ...],
) -> Fault | None:
    for valuation, facts in valuations:
        expected = taken(rows, valuation)
        subject = _Subject(state)
        try:
            came: Row | None = machine.fire(subject, trigger, facts)
        except IllegalTransition:
            came = None
        if came != expected or subject.state != (expected.target if expected else state):
            message = (
                f"{state}: {trigger!r} takes {came or 'no row'} and ends in {subject.state}, where the table says "
                f"{expected or 'that it is refused'}, when {valuation}"
            )
            return Fault(property="M1", message=message, states=(state,))
    return None
