"""What crosses the border between trio and asyncio, made callable on the other side.

A runtime of the package's, handed to an asyncio coroutine, is a runtime whose coroutines run on trio, and the other way
round; one with methods on both sides goes method by method. So do what a harness session is given and what a tool
server is. What goes back where it came from is itself again, and what holds no coroutines crosses as it is.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from typing import TypeVar, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from attrs import define, evolve, field

from rollout_fsm.aio.homes import Home, home
from rollout_fsm.foreign import manager
from rollout_fsm.harness import Exchange, HarnessSession, Respond
from rollout_fsm.held_open import HeldOpen, Hold
from rollout_fsm.messages import Deliver, Delivery
from rollout_fsm.runtime import Runtime
from rollout_fsm.toolset import RolloutContext, Toolset

T = TypeVar("T")
Function = Callable[..., object]

_CARRIES = "_rollout_fsm_carries"
"""The attribute in which a function that was made callable keeps the one that it calls."""


@define(eq=False)
class Border:
    """Between one guest and its host."""

    _on_trio: Callable[[Awaitable[object]], Awaitable[object]]
    """Awaits on trio, from asyncio."""
    _on_asyncio: Callable[[Awaitable[object], object], Awaitable[object]]
    """Awaits on asyncio, from trio; the second argument is whose result it is."""
    _facades: "WeakValueDictionary[tuple[int, Home], Facade]" = field(factory=WeakValueDictionary, init=False)

    def to(self, side: Home, thing: T) -> T:
        """What stands for this thing on that side."""
        thing = unwrapped(thing)
        crossing: object = thing
        if isinstance(thing, Runtime | HarnessSession | HeldOpen):
            crossing = self._facade(side, thing) if _needs_facade(type(thing), side) else thing
        elif isinstance(thing, RolloutContext):
            serve = cast("Callable[[Toolset, RolloutContext], Awaitable[str]]", self.callable_on(side, thing._serve))
            crossing = evolve(thing, runtime=self.to(side, thing.runtime), serve=serve)
        elif isinstance(thing, Exchange):
            respond = cast("Respond", self.callable_on(side, thing._respond))
            hold = cast("Hold", self._holding(side, thing._hold))
            crossing = evolve(thing, runtime=self.to(side, thing.runtime), respond=respond, hold=hold)
        elif isinstance(thing, Delivery):
            crossing = Delivery(cast("Deliver", self.callable_on(side, thing._take)))
        return cast("T", crossing)

    def _holding(self, side: Home, hold: Function) -> Function:
        """What holds something open, callable on that side; what is given to it on asyncio is entered there."""
        hold = getattr(hold, _CARRIES, hold)
        if side == "trio":
            return hold

        async def held(thing: AbstractAsyncContextManager[object], *, name: str) -> object:
            return await cast("Hold", hold)(manager(thing), name=name)

        holding = self._crossing(side, "trio", held)
        setattr(holding, _CARRIES, hold)
        return holding

    def handing_over(self, function: Function, side: Home) -> Function:
        """The function of that side, with what is handed to it made callable there."""

        def called(*args: object, **kwargs: object) -> object:
            given = {name: self.to(side, value) for name, value in kwargs.items()}
            return function(*(self.to(side, value) for value in args), **given)

        return called

    def callable_on(self, side: Home, function: Function) -> Function:
        """The function, callable on that side whichever it lives on."""
        function = getattr(function, _CARRIES, function)
        lives = home(function)
        return function if lives == side else self._crossing(side, lives, function)

    def _crossing(self, side: Home, lives: Home, function: Function) -> Function:
        handing_over = self.handing_over(function, lives)

        @wraps(function)
        def crossing(*args: object, **kwargs: object) -> object:
            result = handing_over(*args, **kwargs)
            if inspect.isawaitable(result):
                return self._across(side, result, function)
            return self.to(side, result)

        crossing.runs_on = side  # type: ignore[attr-defined]
        setattr(crossing, _CARRIES, function)
        return crossing

    def from_asyncio(self, function: Function) -> Function:
        """A function of trio's, to be called by asyncio whatever its home is said to be."""
        return self._crossing("asyncio", "trio", getattr(function, _CARRIES, function))

    async def _across(self, side: Home, awaitable: Awaitable[object], function: Function) -> object:
        across = self._on_trio(awaitable) if side == "asyncio" else self._on_asyncio(awaitable, function)
        return self.to(side, await across)

    def _facade(self, side: Home, inner: object) -> "Facade":
        key = (id(inner), side)
        if (facade := self._facades.get(key)) is None:
            facade = self._facades[key] = Facade(inner, partial(self.callable_on, side))
        return facade


class Facade:
    """An object as the other side sees it: the same, but that what it can do can be called from there."""

    __slots__ = ("__weakref__", "_callable", "_inner")

    _inner: object
    _callable: Callable[[Function], Function]

    def __init__(self, inner: object, callable_here: Callable[[Function], Function]) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "_callable", callable_here)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._inner)

    def __getattr__(self, name: str) -> object:
        value = getattr(self._inner, name)
        if inspect.isroutine(value) or isinstance(value, partial):
            return self._callable(cast("Function", value))
        return value

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._inner, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._inner, name)

    def __dir__(self) -> list[str]:
        return dir(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    def __eq__(self, other: object) -> bool:
        return bool(self._inner == unwrapped(other))

    def __hash__(self) -> int:
        return hash(self._inner)


def unwrapped(thing: T) -> T:
    """The thing itself, where this is what stands for it on the other side."""
    return cast("T", cast("Facade", thing)._inner) if type(thing) is Facade else thing


_needing: "WeakKeyDictionary[type, dict[Home, bool]]" = WeakKeyDictionary()


def _needs_facade(kind: type, side: Home) -> bool:
    """Whether anything that objects of this class can do lives on the other side."""
    known = _needing.setdefault(kind, {})
    if side not in known:
        known[side] = any(home(function, kind) != side for function in _functions(kind))
    return known[side]


def _functions(kind: type) -> Iterator[object]:
    for name in dir(kind):
        found = inspect.getattr_static(kind, name)
        function = getattr(found, "__func__", found)
        if not name.startswith("__") and inspect.isroutine(function):
            yield function
