"""A rollout, for asyncio: the same verbs, run on trio."""

from types import TracebackType

from rollout_fsm import rollout as trio_rollout
from rollout_fsm.aio.delegation import StandsFor, plain, read, verb
from rollout_fsm.aio.guest import EngineClosed
from rollout_fsm.trace import Trace


class Rollout(StandsFor[trio_rollout.Rollout]):
    """One execution of one task by one agent. Cancelling the asyncio task that awaits a verb cancels the rollout (L70).

    As a context manager it ends itself: left normally by `close()`, by an exception by `fail(error)` and `close()`, by
    a cancellation by `cancel()`.
    """

    open = verb(trio_rollout.Rollout.open)
    step = verb(trio_rollout.Rollout.step)
    stop = plain(trio_rollout.Rollout.stop)
    fail = plain(trio_rollout.Rollout.fail)
    ok = read(trio_rollout.Rollout.ok)
    failure = read(trio_rollout.Rollout.failure)
    activity = read(trio_rollout.Rollout.activity)
    time_remaining = read(trio_rollout.Rollout.time_remaining)
    is_final = read(trio_rollout.Rollout.is_final)
    can_go_on = read(trio_rollout.Rollout.can_go_on)

    @property
    def trace(self) -> Trace:
        """The record of the rollout."""
        return self._inner.trace

    @property
    def state(self) -> str:
        """The state's name."""
        return self._inner.state

    async def close(self) -> Trace:
        """End the exchange, finalize, score, release; return the finished trace, whatever happened (L50). Idempotent,
        also when the engine has ended."""
        try:
            return await self._call(self._inner.close)
        except EngineClosed:
            if not self.is_final:
                raise
            return self.trace

    async def cancel(self) -> None:
        """Release everything and end as `aborted`; returns when the rollout is final (L72)."""
        try:
            await self._call(self._inner.cancel)
        except EngineClosed:
            if not self.is_final:
                raise

    async def __aenter__(self) -> "Rollout":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(self._inner.__aexit__, error, abandon=self._inner.cancel)
