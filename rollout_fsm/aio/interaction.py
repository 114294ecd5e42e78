"""An interaction, for asyncio: the caller is the user, and speaks in turns with an agent."""

from types import TracebackType

from rollout_fsm import interaction as trio_interaction
from rollout_fsm.aio.delegation import StandsFor, verb
from rollout_fsm.aio.rollout import Rollout
from rollout_fsm.trace import Trace


class Interaction(StandsFor[trio_interaction.Interaction]):
    """A rollout whose user is the caller. Entering it opens the rollout; a failure there is data: the first turn is
    terminated (L7).

    Left normally the exchange is closed as `user_closed` and scored; by an exception it is failed with that (L43); by a
    cancellation it is aborted.
    """

    turn = verb(trio_interaction.Interaction.turn)

    @property
    def rollout(self) -> Rollout:
        """The rollout behind it."""
        return Rollout(self._inner.rollout, self._caller)

    @property
    def trace(self) -> Trace:
        """The record of the rollout."""
        return self._inner.trace

    async def __aenter__(self) -> "Interaction":
        await self._enter(self._inner.__aenter__, self._inner.rollout.cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(self._inner.__aexit__, error, abandon=self._inner.rollout.cancel)
