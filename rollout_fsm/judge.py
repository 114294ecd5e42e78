"""The contract of a judge: somebody who grades a finished trace, whose verdict is a reward (L63)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollout_fsm.task import Task
    from rollout_fsm.trace import Trace


class Judge(ABC):
    """Grades traces. One object serves many rollouts. `weight` multiplies its scores in the reward (L64)."""

    name: str
    weight: float = 1.0

    @abstractmethod
    async def score(self, task: "Task", trace: "Trace") -> float | Mapping[str, float]:
        """A number, or a mapping of names to numbers (L61). Tokens it spends go to `trace.extra_usage` (L63)."""
