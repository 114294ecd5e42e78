"""Waiting in asyncio for something that will happen for certain, whatever is cancelled meanwhile.

asyncio delivers a cancellation once, by throwing it out of the await. Who waits for a release must not leave it then:
the latch takes the cancellation, says so at once, goes on waiting, and hands it over when what was waited for is there.
"""

import asyncio
from collections.abc import Callable

from attrs import define, field


@define(eq=False)
class Latch:
    """Something that happens once, in the thread of an asyncio loop."""

    loop: asyncio.AbstractEventLoop = field(repr=False)
    is_set: bool = field(default=False, init=False)
    _waiters: set["asyncio.Future[None]"] = field(factory=set, init=False, repr=False)

    def set(self) -> None:
        """It has happened."""
        self.is_set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, struck: Callable[[], object] = lambda: None) -> tuple[object, ...] | None:
        """Wait until it has happened. `struck` is called at each cancellation of the waiting task.

        Returns what the first cancellation said, None if there was none: whoever waits has to raise it again.
        """
        said: tuple[object, ...] | None = None
        while not self.is_set:
            waiter = self.loop.create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            except asyncio.CancelledError as cancelled:
                said = cancelled.args if said is None else said
                struck()
            except GeneratorExit:  # the waiting coroutine is closed: it cannot wait any more
                struck()
                raise
            finally:
                self._waiters.discard(waiter)
        return said
