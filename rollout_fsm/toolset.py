"""The contract of a tool server that belongs to one rollout."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from attrs import frozen

from rollout_fsm.runtime import Runtime

if TYPE_CHECKING:
    from rollout_fsm.task import Task
    from rollout_fsm.trace import Trace


@frozen(kw_only=True, eq=False)
class RolloutContext:
    """What a tool server may see of its rollout. `trace.state` is shared with hooks and signals."""

    task: "Task"
    trace: "Trace"
    runtime: Runtime


class Toolset(ABC):
    """A tool server of one rollout: built in setup, served before the exchange, stopped after it (L5, L8, L50)."""

    @property
    def name(self) -> str:
        """What the server is called in `Exchange.tool_urls`, in errors and warnings."""
        return type(self).__name__

    @abstractmethod
    async def start(self, context: RolloutContext) -> str:
        """Serve, and return the URL. A start that fails undoes itself; it is not followed by `stop` (L8)."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop serving. Bounded by `timeouts.close`; a failure is a warning (L51)."""
