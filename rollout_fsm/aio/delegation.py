"""What an object for asyncio has in common with the object on trio that it stands for: one line a name.

- `run = verb(Engine.run)`: an async method, awaited from asyncio and run on trio
- `resume = plain(Engine.resume)`: a plain one, called inline, since both loops share the thread
- `url = read(Engine.url)`: a property
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

import trio
from attrs import define, frozen

from rollout_fsm.aio.border import unwrapped
from rollout_fsm.aio.guest import EngineClosed
from rollout_fsm.aio.work import Work
from rollout_fsm.errors import text

P = ParamSpec("P")
T = TypeVar("T")
X = TypeVar("X")
Exit = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], Awaitable[object]]

log = logging.getLogger("rollout_fsm")


class Caller(Protocol):
    """Who has work done on trio; one engine's."""

    def submit(self, function: Callable[..., Awaitable[T]], *args: object) -> Work[T]:
        """Begin work. Raises `EngineClosed` where it cannot be done any more."""
        ...


@define(eq=False, repr=False)
class StandsFor(Generic[X]):
    """An object for asyncio that stands for one on trio."""

    _inner: X
    _caller: Caller

    async def _call(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        return await self._caller.submit(function, *args).result()

    async def _enter(self, enter: Callable[[], Awaitable[object]], undo: Callable[[], Awaitable[object]]) -> None:
        """Enter the block of the object on trio. What a cancellation meets entered is undone: nobody will leave it."""
        work = self._caller.submit(enter)
        try:
            await work.result()
        except asyncio.CancelledError:
            if work.returned:
                with suppress(EngineClosed):  # then the engine has ended it
                    await self._caller.submit(_unattended, undo).ended.wait()  # whatever strikes meanwhile
            raise

    async def _leave(
        self, leave: Exit, error: BaseException | None, *, abandon: Callable[[], Awaitable[object]]
    ) -> None:
        """Leave the block of the object on trio: by a cancellation, in a scope that is cancelled already.

        `abandon` is what is done, later, where nothing may be awaited any more.
        """
        if isinstance(error, GeneratorExit):
            try:
                self._caller.submit(_unattended, abandon)
            except EngineClosed:  # then the engine has ended it
                log.debug("left by GeneratorExit after the engine: %r", self)
            return
        work = self._caller.submit(leave, None if error is None else type(error), error, None)
        if not isinstance(error, asyncio.CancelledError):
            await work.result()
            return
        work.cancel()
        try:
            await work.result()
        except asyncio.CancelledError:
            return  # that of the block goes on

    def __repr__(self) -> str:
        return repr(self._inner)


def verb(method: Callable[Concatenate[Any, P], Awaitable[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """An async method, for asyncio."""

    @wraps(method)
    async def called(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return cast("T", await self._call(_bound(self, method, args, kwargs)))

    return cast("Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]", called)


def plain(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A plain method. Where what it returns can be awaited, it can be from asyncio."""

    @wraps(method)
    def called(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        result = _bound(self, method, args, kwargs)()
        return cast("T", AwaitedOnTrio(self._caller, result)) if isinstance(result, Awaitable) else result

    return cast("Callable[Concatenate[Any, P], T]", called)


class read(Generic[T]):  # noqa: N801  (read as a word: url = read(Engine.url))
    """A property."""

    def __init__(self, given: Callable[[Any], T]) -> None:
        self._get = cast("property", given).fget or given
        self.__doc__ = given.__doc__

    def __get__(self, stands: StandsFor[Any], owner: type) -> T:
        return cast("T", self._get(stands._inner))


@frozen(eq=False)
class AwaitedOnTrio(Awaitable[T]):
    """What takes effect at once and may be awaited, for asyncio."""

    _caller: Caller
    _awaitable: Awaitable[T]

    def __await__(self) -> Generator[Any, Any, T]:
        return self._caller.submit(_awaited, self._awaitable).result().__await__()


def _bound(
    stands: StandsFor[object], method: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> Callable[[], T]:
    given = {name: unwrapped(value) for name, value in kwargs.items()}
    return partial(method, stands._inner, *map(unwrapped, args), **given)


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _unattended(call: Callable[[], Awaitable[object]]) -> None:
    """Nobody waits for this any more: what goes wrong is said in the log."""
    try:
        await call()
    except trio.Cancelled:
        raise
    except Exception as error:  # noqa: BLE001
        log.error("ending what nobody will leave failed: %s", text(error))
