"""The sans-IO core: the declared table of states, its execution, its proofs and its pictures.

It knows no clock, no task and no socket, and imports nothing of the package that does. `load_machine` reads the
declaration, `check_machine` proves its structure, `prove` all that is claimed of it, `lifecycle.lifecycle()` is the
compiled machine of the process, and `fire` on it the only way to move. Who runs rollouts proves nothing, so the proofs
are imported when they are asked for.
"""

from typing import TYPE_CHECKING

from rollout_fsm.lazy_names import lazy_names
from rollout_fsm.machine.declaration import Declaration, DeclarationError, Row, State, load_machine
from rollout_fsm.machine.errors import IllegalTransition, RolloutBusyError
from rollout_fsm.machine.fault import Fault
from rollout_fsm.machine.guards import GUARDS, Facts, Guard
from rollout_fsm.machine.lifecycle import Lifecycle, compile_machine

if TYPE_CHECKING:
    from rollout_fsm.machine.check import check_machine
    from rollout_fsm.machine.proofs import prove

__all__ = [
    "GUARDS",
    "Declaration",
    "DeclarationError",
    "Facts",
    "Fault",
    "Guard",
    "IllegalTransition",
    "Lifecycle",
    "RolloutBusyError",
    "Row",
    "State",
    "check_machine",
    "compile_machine",
    "load_machine",
    "prove",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__, {"check_machine": "rollout_fsm.machine.check", "prove": "rollout_fsm.machine.proofs"}
    )
