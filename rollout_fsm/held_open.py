"""What a harness session has the engine hold open for it: entered and left by tasks of the engine.

A session's calls are different tasks, and a nursery must not be entered in one and left in another. What the session
does not leave, the engine leaves when the session is closed. A session sees nothing of what else the engine holds.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar, cast

from attrs import define, field, frozen

from rollout_fsm.attempt import attempt
from rollout_fsm.hosting import Hosted, Hosting

T = TypeVar("T")


@frozen(eq=False, repr=False)
class HeldOpen(Generic[T]):
    """A context manager that was entered for a harness session."""

    _hosted: Hosted[T]

    @property
    def value(self) -> T:
        """What entering it gave. Raises `RuntimeError` once it is left."""
        return self._hosted.value

    @property
    def ended(self) -> bool:
        """Whether it is left, or crashed."""
        return self._hosted.ended

    async def leave(self) -> None:
        """Leave it, and wait until it is left; once more changes nothing.

        Raises what leaving it raised, or what it crashed with before. A cancellation cancels the leaving and waits for
        its end.
        """
        await self._hosted.leave()

    def __repr__(self) -> str:
        return f"<HeldOpen {self._hosted.name}>"


class Conclusion(Protocol):
    """Whoever knows when an exchange ends."""

    @property
    def concluded(self) -> bool:
        """Whether the exchange is over."""
        ...


class Hold(Protocol):
    """Whoever holds something open."""

    async def __call__(self, manager: AbstractAsyncContextManager[T], *, name: str) -> HeldOpen[T]:
        """Have it entered."""
        ...


async def nobody_holds(manager: AbstractAsyncContextManager[T], *, name: str) -> HeldOpen[T]:
    """Outside of an engine."""
    raise RuntimeError(f"{name} needs an engine that holds it open, and this exchange has none")


@define(eq=False)
class SessionHolds:
    """All that is held open for one session."""

    _hosting: Hosting
    _exchange: Conclusion
    """Once it is over, nothing is held any more."""
    on_first: Callable[[Callable[[], Awaitable[None]]], None] | None = field(default=None, init=False, repr=False)
    """Called once, with what leaves it all, when something is held that has to be left."""
    _open: tuple[Hosted[object], ...] = field(default=(), init=False)
    """Oldest first; what was left is dropped in time."""

    async def hold(self, manager: AbstractAsyncContextManager[T], *, name: str) -> HeldOpen[T]:
        """Have it entered, until it is left or the session is closed.

        Raises what entering it raised, and `RuntimeError` once the exchange is over; if it ended meanwhile, what was
        entered is left again. A cancellation undoes the entering, and waits for that (L8).
        """
        self._refuse_if_concluded(name)
        hosted = await self._hosting.enter(manager, name=name)
        if self._exchange.concluded:
            await hosted.leave()
            self._refuse_if_concluded(name)
        self._open = (*(one for one in self._open if not one.ended), cast("Hosted[object]", hosted))
        if self.on_first is not None:
            self.on_first(self.close)
            self.on_first = None
        return HeldOpen(hosted)

    async def close(self) -> None:
        """Leave what is open, the newest first, each whatever became of the others.

        Raises what leaving raised, as a group. A cancellation cancels the leaving of all that is left.
        """
        left = [await attempt(one.leave) for one in reversed(self._open) if not one.ended]
        self._open = ()
        failures = [one.error for one in left if one.error is not None]
        try:
            if failures:
                raise BaseExceptionGroup("what was held open for the session could not be left", failures)
        finally:
            del left, failures  # a frame that keeps an exception which it raises is kept by it

    def _refuse_if_concluded(self, name: str) -> None:
        if self._exchange.concluded:
            raise RuntimeError(f"{name} cannot be held open any more: the exchange is over")
