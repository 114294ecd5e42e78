"""The contract of a tool server, as a class of tests."""

from rollout_fsm.testing.toolset.life import LifeChecks
from rollout_fsm.testing.toolset.tools import ToolChecks

__all__ = ["ToolsetContract"]


class ToolsetContract(LifeChecks, ToolChecks):
    """Does a tool server keep its contract?

        class TestMyTools(ToolsetContract):
            works = "add", {"a": 2, "b": 2}

            def make(self) -> MyTools:
                return MyTools()

    The tests open rollouts with it, and call its tools with an MCP client. What a tool server has beside is declared by
    the attributes of `ToolsetChecks`; the tests of what is not are skipped.
    """
