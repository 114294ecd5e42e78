"""What an engine holds open from call to call: async context managers, each entered and left by one task of the engine.

`open` and `close` of a rollout are different calls, and a nursery or a cancel scope must not be entered in one and left
in the other. So whatever lives in between gets a task that enters it, says so, waits, and leaves it. What it crashes
with ends that task, is logged and told to who leaves; it never reaches the engine, but for an interrupt.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar, cast

import trio
from attrs import define, field

from rollout_fsm.attempt import attempt
from rollout_fsm.errors import leaves, text

T = TypeVar("T")

log = logging.getLogger("rollout_fsm")

LEAVING = 60.0
"""Seconds that something has to let go of what it holds when the engine ends."""

ENDED = "the engine has ended"


@define(eq=False, repr=False)
class Hosted(Generic[T]):
    """A context manager that a task of the engine holds open."""

    name: str
    """What the log calls it."""
    _manager: AbstractAsyncContextManager[T]
    _key: object = None
    """What it is shared as, kept alive for its identity."""
    _users: int = field(default=0, init=False)
    """How many have it lent."""
    _kept: bool = field(default=False, init=False)
    """Whether it stays open until the engine ends, whoever has it lent."""
    _life: trio.CancelScope = field(factory=lambda: trio.CancelScope(shield=True), init=False)
    """Around all of it: the engine's own end is announced by `_leaving`, since a scope inside of the manager's could
    not be left after it, and a shield inside would hide the manager's crash."""
    _settled: trio.Event = field(factory=trio.Event, init=False)
    """Set when it is entered, or could not be."""
    _leaving: trio.Event = field(factory=trio.Event, init=False)
    _ended: trio.Event = field(factory=trio.Event, init=False)
    _values: list[T] = field(factory=list, init=False)
    """What entering it gave, until it is left."""
    _error: BaseException | None = field(default=None, init=False)

    @property
    def value(self) -> T:
        """What entering it gave. Raises `RuntimeError` once it is left."""
        if not self._values:
            raise RuntimeError(f"{self.name} is not open any more")
        return self._values[0]

    @property
    def ended(self) -> bool:
        """Whether it is left, or crashed."""
        return self._ended.is_set()

    async def leave(self) -> None:
        """Leave it, and wait until it is left; once more changes nothing.

        Raises what leaving it raised, or what it crashed with before. A cancellation cancels the leaving and waits for
        its end.
        """
        self._leaving.set()
        try:
            await self._ended.wait()
        except BaseException:
            await self._give_up()
            raise
        error, self._error = self._error, None
        try:
            if error is not None and any(True for _ in _plain(error)):
                raise error
        finally:
            del error  # a frame that keeps an exception which it raises is kept by it

    def _failure(self) -> BaseException | None:
        """What keeps it from being used, for each who waited for it."""
        return self._error or RuntimeError(f"{self.name} ended at once") if self.ended else None

    async def _give_up(self) -> None:
        self._life.cancel()
        with trio.CancelScope(shield=True):
            await self._ended.wait()

    async def _hold(self) -> None:
        async with self._manager as value:
            self._values.append(value)
            self._settled.set()
            await self._leaving.wait()

    def __repr__(self) -> str:
        state = "ended" if self.ended else "open" if self._values else "opening"
        return f"<Hosted {self.name} {state}>"


@define(eq=False)
class Hosting:
    """What one engine holds open, in its nursery."""

    _nursery: trio.Nursery = field(repr=False)
    _open: set[Hosted[object]] = field(factory=set, init=False)
    _shared: dict[int, Hosted[object]] = field(factory=dict, init=False)
    _closed: bool = field(default=False, init=False)

    async def enter(self, manager: AbstractAsyncContextManager[T], *, name: str) -> Hosted[T]:
        """Have it entered, and return it once it is. Whoever enters it leaves it; the engine's end leaves what is left.

        Raises what entering it raised. A cancellation undoes the entering, and waits for that (L8).
        """
        hosted = self._start(manager, name)
        try:
            await hosted._settled.wait()
        except BaseException:
            await hosted._give_up()
            raise
        error = hosted._failure()
        try:
            if error is not None:
                raise error.with_traceback(None)
            return hosted
        finally:
            del error, hosted  # a frame that keeps an exception which it raises is kept by it

    async def share(self, key: object, make: Callable[[], AbstractAsyncContextManager[T]], *, name: str) -> T:
        """What entering `make()` gave: entered once for all who ask with this key, and left when the engine ends.

        Entering goes on whoever waits for it and is cancelled. Raises what it raised to each who waits; who asks later
        has it entered again, and so has who asks when it has crashed.
        """
        hosted = await self._known(key, make, name)
        hosted._kept = True
        try:
            return await self._settled(hosted)
        finally:
            del hosted  # it keeps what it failed with, which would keep this frame

    @asynccontextmanager
    async def lend(
        self, key: object, make: Callable[[], AbstractAsyncContextManager[T]], *, name: str
    ) -> AsyncIterator[T]:
        """What entering `make()` gave, for a block: entered once for all whose blocks overlap, and left, in a task of
        the engine, after the last of them; or with the engine, where it is shared too.

        Raises what entering it raised. How it was left is said in the log.
        """
        hosted = await self._known(key, make, name)
        hosted._users += 1
        try:
            yield await self._settled(hosted)
        finally:
            hosted._users -= 1
            if not (hosted._users or hosted._kept):
                self._let_go(hosted)
            del hosted  # it keeps what it failed with, which would keep this frame

    async def _known(self, key: object, make: Callable[[], AbstractAsyncContextManager[T]], name: str) -> Hosted[T]:
        """What is hosted as this, once what was hosted as it before is left."""
        while True:
            hosted = cast("Hosted[T] | None", self._shared.get(id(key)))
            if hosted is None:
                return self._start(make(), name, key)
            if not hosted._leaving.is_set():
                return hosted
            await hosted._ended.wait()

    @staticmethod
    async def _settled(hosted: Hosted[T]) -> T:
        await hosted._settled.wait()
        error = hosted._failure()
        try:
            if error is not None:
                raise error.with_traceback(None)
            return hosted.value
        finally:
            del error, hosted  # a frame that keeps an exception which it raises is kept by it

    @staticmethod
    def _let_go(hosted: Hosted[T]) -> None:
        hosted._leaving.set()
        hosted._life.deadline = min(hosted._life.deadline, trio.current_time() + LEAVING)
        if not hosted._settled.is_set():
            hosted._life.cancel()

    async def end(self) -> None:
        """Leave everything, each within `LEAVING` seconds, and wait; what cannot be left is said in the log."""
        self._closed = True
        going = tuple(self._open)
        for hosted in going:
            self._let_go(hosted)
        for hosted in going:
            await hosted._ended.wait()

    def _start(self, manager: AbstractAsyncContextManager[T], name: str, key: object = None) -> Hosted[T]:
        if self._closed:
            raise RuntimeError(ENDED)
        hosted = Hosted(name, manager, key)
        anything = cast("Hosted[object]", hosted)
        self._nursery.start_soon(self._live, anything, name=f"hosting {name}")
        self._open.add(anything)
        if key is not None:
            self._shared[id(key)] = anything
        return hosted

    async def _live(self, hosted: Hosted[object]) -> None:
        with hosted._life:
            error = (await attempt(hosted._hold)).error
        entered, asked = bool(hosted._values), hosted._leaving.is_set()
        hosted._values.clear()
        self._open.discard(hosted)
        if self._shared.get(id(hosted._key)) is hosted:
            del self._shared[id(hosted._key)]
        if entered and asked and (self._closed or hosted._key is not None):
            self._say_how_it_was_left(hosted, error)
        else:
            hosted._error = None if error is None else error.with_traceback(None)
        if entered and not asked:
            why = "; ".join(map(text, _plain(error))) or "it ended by itself"
            log.error("%s crashed: %s", hosted.name, why)
        hosted._settled.set()
        hosted._ended.set()
        try:
            if error is not None and _interrupts(error):
                raise error
        finally:
            del error  # a frame that keeps an exception which it raises is kept by it

    @staticmethod
    def _say_how_it_was_left(hosted: Hosted[object], error: BaseException | None) -> None:
        if trio.current_time() >= hosted._life.deadline:
            log.warning("leaving %s took more than %g s and was given up", hosted.name, LEAVING)
        for leaf in _plain(error):
            log.warning("leaving %s failed: %s", hosted.name, text(leaf))


def _interrupts(error: BaseException) -> bool:
    """Whether an exit or a Ctrl-C is in it: that is the engine's, whatever was hosted."""
    return any(isinstance(leaf, KeyboardInterrupt | SystemExit) for leaf in leaves(error))


def _plain(error: BaseException | None) -> Iterator[BaseException]:
    """What was raised, leaf by leaf, without what only passes an interruption on."""
    if error is not None:
        for leaf in leaves(error):
            if not isinstance(leaf, trio.Cancelled | KeyboardInterrupt | SystemExit):
                yield leaf
