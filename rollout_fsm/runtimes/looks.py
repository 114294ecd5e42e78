"""One look at the table of processes for all who end programs at the same time.

Whoever asks while a look goes on waits for the next one, which serves everybody who asked meanwhile: ending many
programs at once costs a few looks, not a few for each. The invariant: an answer comes from a look that began after
the question.
"""

from collections.abc import Callable

import trio
from attrs import define, field

from rollout_fsm.runtimes import launch
from rollout_fsm.runtimes.processes import Strike, strike
from rollout_fsm.runtimes.table import Census, Process
from rollout_fsm.runtimes.threads import ending_limiter


@define(eq=False)
class _Request:
    make: Callable[[], Strike]
    found: list[Process] | None = None


@define(eq=False, repr=False)
class Looks:
    """The looks of one event loop."""

    _census: Census = field(init=False, factory=lambda: Census(launch.MARKER))
    _lock: trio.Lock = field(init=False, factory=trio.Lock)
    _waiting: list[_Request] = field(init=False, factory=list)

    async def strike(self, make: Callable[[], Strike]) -> list[Process]:
        """Find and signal processes; returns those found. `make` says which, and is asked when the look begins."""
        request = _Request(make)
        self._waiting.append(request)
        try:
            async with self._lock:
                if request.found is None:
                    await self._serve()
        finally:
            if request in self._waiting:
                self._waiting.remove(request)
        return request.found or []

    async def _serve(self) -> None:
        batch = list(self._waiting)
        strikes = [request.make() for request in batch]
        answers = await trio.to_thread.run_sync(strike, self._census, strikes, limiter=ending_limiter())
        for request, found in zip(batch, answers, strict=True):
            request.found = found
        self._waiting = [request for request in self._waiting if request.found is None]


_looks: trio.lowlevel.RunVar[Looks] = trio.lowlevel.RunVar("rollout_fsm_looks")


def looks() -> Looks:
    """The looks of this event loop."""
    try:
        return _looks.get()
    except LookupError:
        made = Looks()
        _looks.set(made)
        return made
