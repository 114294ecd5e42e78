"""The asyncio loop as the engine's host: calling the embedder's functions where they live.

A plain function is called inline, whoever wrote it: both loops share the thread. What it returns is awaited on the loop
where the function lives, and what is handed over is made callable from there.
"""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio
from attrs import define, field

from rollout_fsm.aio.border import Border, unwrapped
from rollout_fsm.aio.guest import Guest
from rollout_fsm.aio.held import HeldByTask
from rollout_fsm.aio.homes import home
from rollout_fsm.aio.hosted import Hosted


@define(eq=False)
class AsyncioHost:
    """The host of one guest."""

    guest: Guest
    border: Border = field(init=False)
    _hosted: set[Hosted[object]] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.border = Border(on_trio=self._on_trio, on_asyncio=self._on_asyncio)
        self.guest.at_the_end(self._end)

    async def call(self, function: Callable[..., object], *args: object, **kwargs: object) -> object:
        """Call it from trio and, if that gives something awaitable, await it where the function lives."""
        if not self._is_ours():
            result = function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        lives = home(function)
        result = self.border.handing_over(function, lives)(*args, **kwargs)
        if not inspect.isawaitable(result):
            return unwrapped(result)
        return unwrapped(await (result if lives == "trio" else self._on_asyncio(result, function)))

    def manager(self, shared: AbstractAsyncContextManager[object]) -> AbstractAsyncContextManager[object]:
        """The context manager, to be entered and left from trio; the embedder's by one asyncio task."""
        if not self._is_ours() or {home(shared.__aenter__), home(shared.__aexit__)} == {"trio"}:
            return shared
        return HeldByTask(self.guest.loop, shared, self.start)

    def start(self, awaitable: Awaitable[object], function: object) -> Hosted[object]:
        """Start it on the loop."""
        called = getattr(function, "__qualname__", None) or type(function).__qualname__
        hosted = Hosted(self.guest.loop, awaitable, str(called))
        self._hosted.add(hosted)
        hosted.start(self._forget)
        return hosted

    async def _on_asyncio(self, awaitable: Awaitable[object], function: object) -> object:
        return await self.start(awaitable, function).result()

    async def _on_trio(self, awaitable: Awaitable[object]) -> object:
        return await self.guest.call(_awaited, awaitable)

    def _is_ours(self) -> bool:
        """Whether this trio run is the guest: the context may have come to another one, in a thread, say."""
        return trio.lowlevel.current_trio_token() is self.guest.token

    def _forget(self, hosted: Hosted[object]) -> None:
        self._hosted.discard(hosted)
        hosted.close()

    def _end(self) -> None:
        for hosted in self._hosted:
            hosted.abandon()


async def _awaited(awaitable: Awaitable[object]) -> object:
    return await awaitable
