"""Who drives the rollout: the three modes of a scenario, and a record of what the verbs returned.

The driver is a caller like any other. It decides nothing about the rollout; how it is left (normally, by an exception,
by a cancellation) is the business of the context manager that it uses.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack

from attrs import define, field

from rollout_fsm.interaction import Interaction
from rollout_fsm.rollout import Rollout
from rollout_fsm.simulation.stage import Stage

Returned = bool | str | None


def raised(error: BaseException) -> str:
    """An exception as an outcome shows it."""
    return f"raised:{type(error).__name__}"


@define(eq=False)
class Returns:
    """What the verbs returned that drove a rollout."""

    open_return: Returned = None
    step_returns: list[Returned] = field(factory=list)
    replies: list[str | None] | None = None


@define(eq=False)
class Driver(Returns):
    """Drives one rollout through its scenario."""

    stage: Stage = field(kw_only=True)
    interaction: Interaction = field(kw_only=True)
    opens: bool = field(kw_only=True)
    """Whether the task has a prompt, so that the first segment needs no words."""

    @property
    def rollout(self) -> Rollout:
        """What is driven."""
        return self.interaction.rollout

    async def drive(self) -> None:
        """Open, step, close, as the mode says. Raises what leaves the driver; the rollout is at its end then."""
        drive: Callable[[], object] = {
            "run": self._run,
            "interaction": self._interact,
            "manual": self._by_hand,
        }[self.stage.scenario.mode]
        await drive()  # type: ignore[misc]

    # ---- the modes

    async def _run(self) -> None:
        """What `engine.run` does."""
        async with self.rollout as rollout:
            if await self._open():
                going = await self._step(self._words(0))
                await self._between(0, going=going)
            await rollout.close()

    async def _interact(self) -> None:
        self.replies = []
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.interaction)
            except BaseException as error:
                self.open_return = raised(error)
                raise
            self.open_return = self.rollout.can_go_on
            for number in range(len(self.stage.scenario.segments)):
                reply = await self._turn(self._words(number))
                await self._between(number, going=reply is not None)
                failure = self.stage.scenario.fail_between_segments
                if failure is not None and failure.after == number:
                    raise failure.error.make()
                if reply is None:
                    break

    async def _by_hand(self) -> None:
        manual, failure = self.stage.scenario.manual, self.stage.scenario.fail_between_segments
        async with self.rollout as rollout:
            if manual.step_before_open:
                await self._try_to_step()
            if not manual.close_without_open:
                going, number = await self._open(), 0
                if manual.bare_step and (went_on := await self._try_to_step()) is not None:
                    going = went_on
                    await self._between(number, going=going)
                    number = 1
                for _ in self.stage.scenario.segments:
                    if not going and not manual.keep_stepping:
                        break
                    going = await self._step(self._words(number))
                    await self._between(number, going=going)
                    if failure is not None and failure.after == number:
                        rollout.fail(failure.error.make())
                    number += 1
                if manual.stamp_completed and rollout.can_go_on:
                    rollout.stop("agent_completed")
            if manual.abort_instead_of_close:
                await rollout.cancel()
            await rollout.close()
            if manual.close_twice:
                await rollout.close()
            if manual.step_after_close:
                await self._try_to_step()

    # ---- the verbs, noted

    async def _open(self) -> bool:
        try:
            self.open_return = opened = await self.rollout.open()
        except BaseException as error:
            self.open_return = raised(error)
            raise
        return opened

    async def _step(self, words: str | None) -> bool:
        try:
            going = await self.rollout.step(words)
        except BaseException as error:
            self.step_returns.append(raised(error))
            raise
        self.step_returns.append(going)
        return going

    async def _turn(self, words: str | None) -> str | None:
        assert self.replies is not None
        try:
            segment = await self.interaction.turn(words)
        except BaseException as error:
            self.step_returns.append(raised(error))
            raise
        self.step_returns.append(not segment.terminated)
        self.replies.append(segment.last_reply)
        return segment.last_reply

    async def _try_to_step(self) -> bool | None:
        """A step without words; None if it raised, which is noted and no more."""
        try:
            return await self._step(None)
        except Exception:  # noqa: BLE001  (noted by _step; the scenario wants to know what it is)
            return None

    # ---- what the user says and does

    def _words(self, number: int) -> str | None:
        """What opens a segment; None where the prompt does."""
        said = self.stage.scenario.segment(number).user_message
        if said is None and number == 0 and self.opens:
            return None
        return f"user {number}" if said is None else said

    async def _between(self, number: int, *, going: bool) -> None:
        self.stage.timeline.enter(f"between:{number}")
        await self.stage.timeline.spend(self.stage.scenario.between_segments if going else 0.0)
