"""All that is proven of a declared machine, and in which order: on the rows, by following every life, by firing it.

`prove` is what `rollout-fsm check` says. Each proof stands on those before it: lives are followed on a declaration that
is sound, and a declaration that is not is not compiled.
"""

from rollout_fsm.machine.check import STRUCTURE, check_machine
from rollout_fsm.machine.declaration import Declaration
from rollout_fsm.machine.fault import Fault
from rollout_fsm.machine.lifecycle import compile_machine
from rollout_fsm.machine.search import search
from rollout_fsm.machine.sweep import sweep

PROPERTIES = {
    **STRUCTURE,
    "S1": "with the turns bounded, no life goes on for ever",
    "S2": "every life comes to its end by its activities and close alone",
    "S3": "every row is taken by some life",
    "S4": "every life goes and ends as what happened in it demands, and has the stop condition that it must have",
    "M1": "the compiled machine takes the row that the table says, for every valuation of the guards",
}
"""Every property and what it says, in the order in which they are proven."""


def prove(declaration: Declaration) -> list[Fault]:
    """Every fault of the declaration, property by property; of the later kinds only where its structure is sound."""
    return check_machine(declaration) or [*search(declaration), *sweep(compile_machine(declaration), declaration)]
