"""The life of one engine inside asyncio: one trio task enters it, stays, and leaves it.

The verbs that asyncio tasks call run beside it, in a nursery that ends after the engine, so those that were pending
when it was left come to what L72 and L75 say. A crash of the engine strikes the asyncio task that opened it, as a
nursery's would: its block is interrupted, and what comes out of the block is the crash.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import trio
from attrs import define, field

from rollout_fsm.aio.guest import NOT_OPEN, EngineClosed, Guest, running_loop
from rollout_fsm.aio.host import AsyncioHost
from rollout_fsm.aio.latch import Latch
from rollout_fsm.aio.work import Work
from rollout_fsm.engine import Engine
from rollout_fsm.outcome import interrupts

T = TypeVar("T")


@define(eq=False)
class EngineLife:
    """Of one engine."""

    _engine: Engine
    _guest: Guest | None = field(default=None, init=False)
    _work: Work[None] | None = field(default=None, init=False)
    _verbs: trio.Nursery | None = field(default=None, init=False)
    _entered: Latch | None = field(default=None, init=False)
    """Set when the engine is open, or could not be opened."""
    _leaving: trio.Event = field(factory=trio.Event, init=False)
    _owner: "asyncio.Task[object] | None" = field(default=None, init=False)
    """The task that is inside the engine's block."""
    _crashes: bool = field(default=False, init=False)
    """Whether the engine ends, and nobody asked for it."""
    _struck: bool = field(default=False, init=False)
    """Whether the owner was cancelled because of that."""

    def submit(self, function: Callable[..., Awaitable[T]], *args: object) -> Work[T]:
        """Begin work that the engine's end waits for. Raises `EngineClosed` where the engine is not open."""
        if self._guest is None or self._verbs is None:
            raise EngineClosed(NOT_OPEN)
        return self._guest.submit(function, *args, nursery=self._verbs)

    async def begin(self) -> None:
        """Open the engine. Raises what opening it raises; a cancellation closes it again."""
        if self._entered is not None:
            raise RuntimeError("an engine is entered once; open another with aio.open_engine()")
        self._entered = Latch(running_loop())
        guest = self._guest = await Guest.join(AsyncioHost)
        work = self._work = guest.submit(self._live, guest, resident=True)
        work.at_the_end(self._entered.set)
        said = await self._entered.wait(work.cancel)
        if said is None and not work.ended.is_set and not self._crashes:
            self._owner = asyncio.current_task()
            return
        await self.end(None)
        raise asyncio.CancelledError(*(said or ()))

    async def end(self, error: BaseException | None) -> None:
        """Close it, and wait until it and the last guest of its loop have ended, whatever is cancelled meanwhile.

        `error`: what the block is left by. Raises the crash of the engine, or the cancellation that came meanwhile.
        """
        work, guest, owner, self._owner = self._work, self._guest, self._owner, None
        assert work is not None
        assert guest is not None
        self._leaving.set()
        if isinstance(error, GeneratorExit):
            return  # nothing may be awaited any more; the engine ends by itself
        said = await work.ended.wait()
        if not guest.users:
            said = await guest.ended.wait() or said
        if self._struck and owner is not None:
            if said is None and not isinstance(error, asyncio.CancelledError):
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)  # it has not been delivered yet
            said = said if owner.uncancel() else None
        crash = work.take_error()
        try:
            if crash is not None and (not isinstance(error, Exception) or interrupts(crash)):
                raise crash
            if said is not None:
                raise asyncio.CancelledError(*said)
        finally:
            del crash, error  # a frame that keeps an exception which it raises is kept by it

    async def _live(self, guest: Guest) -> None:
        crash: BaseException | None = None
        try:
            async with trio.open_nursery() as self._verbs:
                try:
                    async with self._engine:
                        await self._stay()
                except trio.Cancelled:
                    raise
                except BaseException as raised:  # noqa: BLE001  (raised when the verbs have come to their end)
                    crash = raised
            if crash is not None:
                raise crash
        finally:
            del crash  # a frame that keeps an exception which it raises is kept by it
            guest.leave()

    async def _stay(self) -> None:
        assert self._entered is not None
        self._entered.set()
        try:
            await self._leaving.wait()
        except trio.Cancelled:
            self._crashes = True
            if self._owner is not None:
                self._struck = self._owner.cancel("the engine crashed")
            raise
