"""What is kept of a rollout while it runs, so that a crash loses neither its work nor its box (L73).

A journal that cannot be written costs nobody his rollout: that is said, once for a rollout, and the rollout goes on.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from attrs import define, field

from rollout_fsm.journal import JournalError
from rollout_fsm.machine.declaration import State
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.messages import JSON
from rollout_fsm.runtime import Runtime, class_path
from rollout_fsm.trace import Trace, TransitionRecord

if TYPE_CHECKING:
    from rollout_fsm.journal import Acquisition, JournalEntry

log = logging.getLogger("rollout_fsm")


@define(eq=False)
class Keeper:
    """Keeps one rollout in the journal."""

    trace: Trace
    _entry: "JournalEntry"
    _failed: Callable[[str], None]
    """Told why something could not be kept."""
    box: "Acquisition | None" = None
    """The runtime, once it is to be found again."""
    _told: JSON = field(default=None, init=False)
    """What an attempt that was to follow is to tell of this one."""
    _said: bool = field(default=False, init=False)

    async def acquiring(self, runtime: Runtime, name: str) -> None:
        """An owned runtime is about to be started: return once another process could find it again.

        Raises what its lease raises, `TypeError` and `FormatError` for one that is no JSON object.
        """
        if (lease := runtime.lease) is None:
            return
        if not isinstance(lease, Mapping):
            kind = type(runtime).__name__
            raise TypeError(f"the lease of {kind} is of type {type(lease).__name__}; a lease is a JSON object, or None")
        self.box = self._entry.acquiring("runtime", name, class_path(type(runtime)), lease)
        try:
            await self.durable()
        except BaseException:  # interrupted: it is not started, so there is nothing to be found again
            self.released()
            raise

    def released(self) -> None:
        """The runtime is gone."""
        if self.box is not None:
            self.box.released()

    def moved(self, taken: TransitionRecord) -> None:
        """A transition was taken; once the exchange is over the trace is kept with it, until it is written."""
        self._entry.transition(taken)
        if _is_kept_in(lifecycle().declaration.states[taken.target]):
            self._entry.snapshot(self.trace)

    def followed(self, told: JSON) -> None:
        """The attempt is over and another one follows, which is to tell this of it."""
        self._told = told
        self._entry.ended(self.trace.transitions[-1].target, written=False, retry=told)

    def written(self) -> None:
        """The trace is on disk, where it belongs."""
        self._entry.ended(self.trace.transitions[-1].target, written=True, retry=self._told)

    async def durable(self) -> None:
        """Return once all that was told is on disk, or is known not to be."""
        try:
            await self._entry.durable()
        except JournalError as error:
            if not self._said:
                self._said = True
                log.error("rollout %s could not be kept in the journal: %s", self.trace.id, error)
                self._failed(str(error))


def _is_kept_in(state: State) -> bool:
    """Whether a rollout in this state has what a later process can go on with: its exchange is over, and it has not
    ended."""
    return state.group == "closing" and state.activity is not None
