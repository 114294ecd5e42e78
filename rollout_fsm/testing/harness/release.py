"""A harness lets go of what it took, wherever a rollout ends (L8, L50, L51, L70)."""

import trio

from rollout_fsm.engine import Engine, open_engine
from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import expect
from rollout_fsm.testing.harness.base import HarnessChecks, fine, summary, unwarned
from rollout_fsm.testing.harness.party import Barren
from rollout_fsm.testing.party import KitModel
from rollout_fsm.testing.sweep import Strike, sweep
from rollout_fsm.trace import Trace

__all__ = ["ReleaseChecks"]

WORD = "kit-pear"
UNDO = "undo in cleanup() and close() what had begun, and raise nothing where there is nothing to be undone"


class _Finished:
    """An observer that keeps the traces of rollouts that ended."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def on_finished(self, trace: Trace) -> None:
        self.traces.append(trace)


class ReleaseChecks(HarnessChecks):
    """`HarnessSession.close` and `Harness.cleanup`, after whatever came."""

    @check
    async def test_a_session_that_never_ran_is_closed(self) -> None:
        """A session may be closed without having run: the user has nothing to say (L50)."""
        async with self.opened(WORD) as rollout:
            pass
        fine(rollout.trace, UNDO)

    @check
    async def test_a_setup_that_fails_is_cleaned_up(self) -> None:
        """`cleanup` is called once if `setup` began, also where that failed: nothing works in this runtime (L8)."""
        trace = await self.ran(WORD, runtime=Barren)
        unwarned(trace, UNDO)

    @check
    async def test_a_cancellation_ends_a_segment_that_waits_for_the_model(self) -> None:
        """A cancelled rollout ends in time while the model is asked, and everything is released (L70)."""
        asked = trio.Event()

        async def never() -> None:
            asked.set()
            await trio.sleep_forever()

        with self.nothing_left(UNDO):
            model = KitModel(self.reply, gate=never)
            async with self.opened(WORD, model) as rollout, trio.open_nursery() as nursery:
                nursery.start_soon(rollout.step)
                with self.in_time("the way to the first question", "ask the model"):
                    await asked.wait()
                with self.in_time("the cancelled rollout", "let a cancellation pass through run(), in time"):
                    await rollout.cancel()
        expect(rollout.state == "aborted", summary(rollout.trace), "let a cancellation pass")
        unwarned(rollout.trace, UNDO)

    @check
    async def test_a_rollout_that_is_cancelled_anywhere_is_released(self) -> None:
        """A cancellation may come at any step of a rollout; it passes on, and everything is released, in time (L8,
        L70)."""
        async with open_engine() as engine:

            async def life(strike: Strike) -> None:
                await self._struck(engine, strike)

            await sweep(life, self.points)

    async def _struck(self, engine: Engine, strike: Strike) -> None:
        finished, settings = _Finished(), self.settings()
        with self.nothing_left(UNDO):
            await strike.call(engine.run, self.task(WORD), observers=[finished], **settings)
        for trace in finished.traces:
            unwarned(trace, UNDO)
