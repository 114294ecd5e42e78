"""Running the engine on another machine than the shipped one, for as long as a block lasts.

The engine asks `lifecycle()` for its machine, which loads and compiles once. Here that is given another declaration to
load; so are the expectations of cases, which judge paths by the declaration: a checkout with an edited file would have
nothing else to judge by. Everything is put back, and what was kept of the other machine is forgotten.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from rollout_fsm.machine import GUARDS, Declaration
from rollout_fsm.machine import lifecycle as compiled
from rollout_fsm.machine.vocabulary import GIVEN
from rollout_fsm.settings import reserved_conditions
from tests.mutation.mutants import FLIPPED
from tests.simulation import expectations


@contextmanager
def machine(declaration: Declaration) -> Iterator[None]:
    """Everything that is played inside runs on this declaration. Entering it compiles nothing yet."""
    with ExitStack() as stack:
        stack.callback(_forget)
        for module, name, value in (
            (compiled, "shipped", lambda: declaration),
            (compiled, "GUARDS", {**GUARDS, **FLIPPED}),
            (expectations, "MACHINE", declaration),
            (expectations, "DECLARED", {row.sets for row in declaration.rows} - {None, GIVEN}),
        ):
            stack.enter_context(patch.object(module, name, value))
        _forget()
        yield


def _forget() -> None:
    compiled.lifecycle.cache_clear()
    reserved_conditions.cache_clear()
