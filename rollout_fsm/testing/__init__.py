"""Do your own runtime, harness, model and tool server keep their contracts? Tests that embedders run on theirs.

    class TestMyRuntime(RuntimeContract):
        def make(self, name):
            return MyRuntime(name)

A class for each contract, which pytest collects where it is subclassed. A test that fails says what the contract asks,
what came, and what to change.
"""

from rollout_fsm.testing.expecting import ContractError
from rollout_fsm.testing.harness import HarnessContract
from rollout_fsm.testing.leases import check_leases
from rollout_fsm.testing.model import ModelContract
from rollout_fsm.testing.runtime import RuntimeContract
from rollout_fsm.testing.toolset import ToolsetContract

__all__ = [
    "ContractError",
    "HarnessContract",
    "ModelContract",
    "RuntimeContract",
    "ToolsetContract",
    "check_leases",
]
