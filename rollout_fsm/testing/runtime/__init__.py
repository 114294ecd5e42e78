"""The contract of a runtime, as a class of tests."""

from rollout_fsm.testing.runtime.execution import ExecutionChecks
from rollout_fsm.testing.runtime.files import FileChecks
from rollout_fsm.testing.runtime.isolation import IsolationChecks
from rollout_fsm.testing.runtime.life import LifeChecks
from rollout_fsm.testing.runtime.programs import ProgramChecks

__all__ = ["RuntimeContract"]


class RuntimeContract(IsolationChecks, ExecutionChecks, FileChecks, ProgramChecks, LifeChecks):
    """Does a runtime keep its contract?

        class TestMyRuntime(RuntimeContract):
            def make(self, name: str) -> MyRuntime:
                return MyRuntime(name)

    The tests make real boxes and run small shell scripts in them. What a runtime does not offer is declared by the
    attributes of `RuntimeChecks`, and skipped.
    """
