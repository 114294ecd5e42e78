"""Scheduling points, counted, and what is done at some of them.

A point is reached when a task has yielded: its abort function is in place, so that an interruption strikes it there. A
Ctrl-C that is raised at a point strikes the main task when that can be struck; the moment is told, since only then the
rollout meets it.
"""

import signal
from collections.abc import Callable, Iterable

import trio
from attrs import define, field


@define(eq=False)
class Schedule(trio.abc.Instrument):
    """Counts points while it is armed."""

    acts: dict[int, Callable[[], None]]
    """What is done when so many points have been reached."""
    struck: Callable[[], None]
    """Told when a Ctrl-C has struck the main task."""
    here: Callable[[], Iterable[str]]
    """The states that the rollouts are in."""
    armed: bool = False
    seen: int = 0
    fired: int = 0
    where: list[str] = field(factory=list)
    """Which task had yielded when something was done, and its chain of functions."""
    states: set[str] = field(factory=set)
    """Every state in which a point was reached."""
    _pending: bool = False

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._pending = True
        signal.raise_signal(signal.SIGINT)

    def disarm(self) -> None:
        """Count no further."""
        self.armed = False
        self.acts.clear()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._pending and not task._runner.ki_pending:
            self._pending = False
            self.struck()
        if not self.armed:
            return
        self.seen += 1
        self.states.update(self.here())
        if (act := self.acts.pop(self.seen, None)) is not None:
            self.fired += 1
            chain = " > ".join(frame.f_code.co_name for frame, _ in task.iter_await_frames())
            self.where.append(f"{task.name}: {chain or 'it ended'}")
            act()
