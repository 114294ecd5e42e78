"""An async context manager of the embedder's, entered and left from trio: one asyncio task does both, since many of
them insist on that."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import trio
from attrs import define, field

from rollout_fsm.aio.hosted import Hosted
from rollout_fsm.attempt import attempt


@define(eq=False)
class HeldByTask(AbstractAsyncContextManager[object]):
    """The same context manager, for trio."""

    _loop: asyncio.AbstractEventLoop
    _shared: AbstractAsyncContextManager[object]
    _start: Callable[[Awaitable[object], object], Hosted[object]]
    _hosted: Hosted[object] | None = field(default=None, init=False)
    _entered: trio.Event = field(factory=trio.Event, init=False)
    """Set when it is entered, or could not be."""
    _held: bool = field(default=False, init=False)
    _value: object = field(default=None, init=False)
    _leaving: "asyncio.Future[None] | None" = field(default=None, init=False)
    _by: tuple[type[BaseException] | None, BaseException | None, TracebackType | None] = (None, None, None)

    async def __aenter__(self) -> object:
        self._leaving = self._loop.create_future()
        hosted = self._hosted = self._start(self._hold(), type(self._shared))
        try:
            await self._entered.wait()
        except BaseException:
            self._let_go()
            if hosted.began and not self._entered.is_set():
                hosted.cancel()
            with trio.CancelScope(shield=True):
                await attempt(hosted.result)
            raise
        if not self._held:
            await hosted.result()
        return self._value

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        assert self._hosted is not None
        self._by = (kind, error, traceback)
        self._let_go()
        try:
            return bool(await self._hosted.result())
        finally:
            self._by = (None, None, None)
            del error

    def _let_go(self) -> None:
        if self._leaving is not None and not self._leaving.done():
            self._leaving.set_result(None)

    async def _hold(self) -> object:
        leaving = self._leaving
        assert leaving is not None
        if leaving.done():
            return None  # given up before it began
        try:
            self._value = await self._shared.__aenter__()
            self._held = True
        finally:
            self._entered.set()
        try:
            await leaving
        except BaseException as error:
            if not await self._shared.__aexit__(type(error), error, error.__traceback__):
                raise
            return True
        return await self._shared.__aexit__(*self._by)
