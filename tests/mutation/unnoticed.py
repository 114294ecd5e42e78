"""Why nobody notices some mutants: they behave as the shipped machine does, and this is why.

Each reason is one sentence about the engine and a rule of which mutants it is about. A mutant that is not noticed and
has no reason here is a gap in the tests.
"""

from collections.abc import Callable
from typing import TypeAlias

from rollout_fsm import load_machine
from rollout_fsm.machine import Row
from tests.mutation.mutants import Mutant

SHIPPED = load_machine()

Rule: TypeAlias = Callable[[Mutant], bool]


def _row(mutant: Mutant, source: str, trigger: str, guard: str | None, *edits: str) -> bool:
    row = mutant.row
    same = row is not None and (row.source, row.trigger, row.guard) == (source, trigger, guard)
    return same and (not edits or mutant.edit in edits)


def _never_begun(mutant: Mutant) -> bool:
    span = mutant.declaration.states[mutant.state].span if mutant.edit == "a state's span" else None
    return mutant.state == "created" and span in ("setup", "finalize", "scoring")


def _regrouped(mutant: Mutant) -> str | None:
    """The group that the state was moved to, if that is the edit."""
    return mutant.declaration.states[mutant.state].group if mutant.edit == "a state's group" else None


def _before_its_end(mutant: Mutant) -> bool:
    exchange = ("waiting", "stepping", "stopping")
    return (mutant.state in ("created", "booting", "setup") and _regrouped(mutant) == "exchange") or (
        mutant.state in exchange and _regrouped(mutant) == "opening"
    )


def _let_go(mutant: Mutant) -> bool:
    return mutant.state == "failed" and _regrouped(mutant) in ("opening", "exchange")


def _rests(mutant: Mutant) -> bool:
    return mutant.state in ("stopped", "failing") and _regrouped(mutant) in ("failure", "cancellation")


def _stop_is_logged(mutant: Mutant) -> bool:
    row = mutant.row
    return mutant.edit == "a row is dropped" and row is not None and row.trigger == "stop" and row.same


def _nobody_fails_it(mutant: Mutant) -> bool:
    return _row(mutant, "aborted", "errored", None, "a row is dropped")


def _never_left_early(mutant: Mutant) -> bool:
    edits = ("a row is retargeted", "what becomes of errors")
    return _row(mutant, "stopping", "segment_ended", "agent_survives", *edits)


def _edited(mutant: Mutant) -> list[Row]:
    """What the row was made, if it was replaced by another."""
    return [row for row in mutant.declaration.rows if row not in SHIPPED.rows]


def _stands(mutant: Mutant) -> bool:
    edited = _row(mutant, "stopping", "timed_out", "agent_survives", "what becomes of errors")
    return edited and not any(row.error == "raise" for row in _edited(mutant))


REASONS: tuple[tuple[Rule, str], ...] = (
    (_never_begun, "no row leads to created, so no span begins there, and none goes on where it leads"),
    (_before_its_end, "opening and exchange are told apart in pictures only: in both the exchange is not over"),
    (_let_go, "a final rollout has let go of all that would ask whether the exchange is over, and its trace is sealed"),
    (_rests, "the engine asks for this group where an activity runs, or at an end, and here the rollout rests"),
    (_stop_is_logged, "a stop that a state does not take is logged, and that is all a stop does there (L22)"),
    (_nobody_fails_it, "fail() in a final state is logged and fires nothing (L43)"),
    (_never_left_early, "a segment that ends by itself after a refusal is not left early, so nothing was to be killed"),
    (_stands, "the only failure that comes with it is the survivor's, which stands whatever the row says (L13)"),
)


def reason(mutant: Mutant) -> str | None:
    """Why the mutant behaves as the shipped machine does; None where nothing says so."""
    return next((why for rule, why in REASONS if rule(mutant)), None)
