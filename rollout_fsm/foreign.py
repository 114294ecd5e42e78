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
F = TypeVar("F", bound=Callable[..., object])

_OPTIONAL: dict[int, Callable[..., object]] = {}
"""The optional methods of contracts, by id: what an embedder puts in their place is not to be hashed."""


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


def optional(method: F) -> F:
    """A method of a contract for which its own is as good as none: nobody need call it."""
    _OPTIONAL[id(method)] = method
    return method


def is_given(owner: object, name: str) -> bool:
    """Whether the owner has a method of this name that is another than a contract's optional one.

    Looked up without running any code of the owner's, and anew each time: it may be given later.
    """
    kind = type(owner)
    if kind.__getattribute__ is not object.__getattribute__:
        return True  # it makes up what it has
    if kind.__dictoffset__ and name in object.__getattribute__(owner, "__dict__"):
        return True
    for base in kind.__mro__:
        if name in base.__dict__:
            return id(base.__dict__[name]) not in _OPTIONAL
    return True


def manager(shared: AbstractAsyncContextManager[object]) -> AbstractAsyncContextManager[object]:
    """What the embedder holds open, to be entered and left by a task of the engine."""
    host = HOST.get()
    return shared if host is None else host.manager(shared)
