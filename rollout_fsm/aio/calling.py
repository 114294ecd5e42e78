"""The way from the embedder's asyncio code to coroutines that live on trio."""

import inspect
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar, cast

from rollout_fsm.aio.host import AsyncioHost
from rollout_fsm.foreign import HOST

P = ParamSpec("P")
T = TypeVar("T")


async def on_trio(function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a coroutine function of trio's from a coroutine that the engine runs on asyncio, and await it.

    For a harness that wraps one of this package, say, or a runtime that overrides `start` and needs its `super()`'s:
    `await on_trio(super().start)`. Raises `RuntimeError` in code that the engine did not call.
    """
    host = HOST.get()
    if not isinstance(host, AsyncioHost):
        raise RuntimeError(
            "on_trio() is for coroutines that an engine of rollout_fsm.aio runs on asyncio; nothing of that kind calls "
            "here"
        )
    result = host.border.from_asyncio(function)(*args, **kwargs)
    return cast("T", await result if inspect.isawaitable(result) else result)
