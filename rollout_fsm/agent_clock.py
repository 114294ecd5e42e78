"""The agent clock: one sum of seconds for the whole rollout, spent only while a segment runs (L12)."""

from attrs import define, field

from rollout_fsm.overdue import Overdue


@define(eq=False)
class AgentClock:
    """What is left of the agent budget. Waiting is free, whoever is waited for."""

    budget: float
    """Seconds, `timeouts.agent`; infinite without a bound."""
    _overdue: Overdue
    """Has a clock that stands still while the engine is paused."""
    spent: float = field(default=0.0, init=False)
    """Seconds of the segments that are over."""
    _began: float | None = field(default=None, init=False)

    def start(self) -> None:
        """A segment begins."""
        self._began = self._overdue.now()

    def stop(self) -> None:
        """It has ended; once more changes nothing."""
        if self._began is not None:
            self.spent += self._overdue.now() - self._began
            self._began = None

    def remaining(self) -> float:
        """What `left` says, for those who are to know nothing else of the clock."""
        return self.left

    @property
    def left(self) -> float:
        """Seconds that are left, also within a segment; never below zero."""
        running = 0.0 if self._began is None else self._overdue.now() - self._began
        return max(0.0, self.budget - self.spent - running)
