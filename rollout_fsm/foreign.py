"""Calling the embedder's coroutines where they live.

Alone on trio, everybody's coroutines are trio's and a call is a call. Inside a program of another event loop the
embedder's run on that loop, and what they are handed is made callable from there; a `Host` does both. Whoever calls
foreign code here neither knows nor asks which it is.
"""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import ParamSpec, Protocol, TypeVar, cast

T = TypeVar("T")
P = ParamSpec("P")


class Host(Protocol):
    """The event loop that the engine is a guest of."""

    async def call(self, function: Callable[..., object], *args: object, **kwargs: object) -> object:
        """Call a function and, if that gives something awaitable, await it where the function's owner lives."""
        ...

    def manager(self, shared: AbstractAsyncContextManager[object]) -> AbstractAsyncContextManager[object]:
        """The context manager, to be entered and left from trio."""
        ...


HOST: ContextVar[Host | None] = ContextVar("rollout_fsm_host", default=None)
"""The host of the engine in whose tasks this is asked; None on trio alone."""


async def call(function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a coroutine function of the embedder's and await it where it lives."""
    host = HOST.get()
    if host is None:
        return await function(*args, **kwargs)
    return cast("T", await host.call(function, *args, **kwargs))


async def ask(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> object:
    """Call a function of the embedder's, plain or async. A plain one runs inline."""
    host = HOST.get()
    if host is not None:
        return await host.call(function, *args, **kwargs)
    result = function(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def is_overridden(method: Callable[..., object], contract: Callable[..., object]) -> bool:
    """Whether a method is another than the contract's own, which does nothing, so that nobody need call it."""
    return getattr(method, "__func__", None) is not contract


def manager(shared: AbstractAsyncContextManager[object]) -> AbstractAsyncContextManager[object]:
    """What the embedder holds open, to be entered and left by a task of the engine."""
    host = HOST.get()
    return shared if host is None else host.manager(shared)
