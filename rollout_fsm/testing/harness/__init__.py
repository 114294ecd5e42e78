"""The contract of a harness, as a class of tests."""

from rollout_fsm.testing.harness.exchange import ExchangeChecks
from rollout_fsm.testing.harness.release import ReleaseChecks

__all__ = ["HarnessContract"]


class HarnessContract(ReleaseChecks, ExchangeChecks):
    """Does a harness keep its contract?

        class TestMyHarness(HarnessContract):
            def make(self) -> MyHarness:
                return MyHarness()

    The tests run whole rollouts with a scripted model. What a harness does not offer is declared by the attributes of
    `HarnessChecks`, and skipped.
    """
