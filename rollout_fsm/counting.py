"""How many tokens a prompt has, where a harness asks: no turn, so no limit, stop or hook is asked."""

import trio
from attrs import define, field

from rollout_fsm import foreign
from rollout_fsm.attempt import Attempt, attempt
from rollout_fsm.errors import ProviderError
from rollout_fsm.messages import Request
from rollout_fsm.outcome import failed, pass_on
from rollout_fsm.plan import Plan
from rollout_fsm.segment_run import SegmentEnded
from rollout_fsm.turn_failures import of_the_model


@define(eq=False)
class Count:
    """One count, which runs in the segment's nursery and ends with it (L24)."""

    _plan: Plan
    _request: Request
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _done: trio.Event = field(factory=trio.Event, init=False)
    _got: Attempt[int | None] | None = field(default=None, init=False)

    async def run(self) -> None:
        """Ask the model. Raises only what interrupts."""
        got: Attempt[int | None] = Attempt()
        try:
            with self._scope:
                got = await attempt(foreign.call, self._plan.model.count_tokens, self._request)
                pass_on(got.error)
                await trio.lowlevel.checkpoint_if_cancelled()
                self._got = got
        finally:
            del got  # a frame that keeps an exception which it raises is kept by it
            self._done.set()

    async def result(self) -> int:
        """The model's own count where it has one; else a quarter of the characters. A caller that is cancelled gives
        it up. Raises `ProviderError`, and `SegmentEnded`."""
        try:
            await self._done.wait()
        except BaseException:
            self._scope.cancel()
            raise
        got, self._got = self._got, None
        doing = f"counting tokens with model {self._plan.model_name!r}"
        try:
            if got is None:
                raise SegmentEnded("the segment ended while tokens were counted")
            if got.error is not None:
                raise of_the_model(failed(got.error, ProviderError, doing)[0], doing)
            if got.value is not None and (type(got.value) is not int or got.value < 0):
                kind = type(got.value).__name__
                raise ProviderError(f"{doing} came to {kind}; it is a whole number from 0 on, or None")
            return _estimate(self._request) if got.value is None else got.value
        finally:
            del got  # a frame that keeps an exception which it raises is kept by it


def _estimate(request: Request) -> int:
    """About how many tokens a prompt has: a quarter of its characters."""
    said = sum(len(message.text) for message in request.messages)
    offered = sum(len(f"{tool.name}{tool.description}{tool.parameters}") for tool in request.tools)
    return -(-(said + offered) // 4)
