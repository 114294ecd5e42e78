"""A cancellation at every step of a call: how many steps there are is counted once, then it comes at each of them.

On trio every task's steps count, those of the tasks that the call starts, too; what runs on asyncio counts its own. A
call of very many steps is cancelled at some of them, evenly spread.
"""

from collections.abc import Awaitable, Callable, Generator, Iterator
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import trio
from attrs import define, field

from rollout_fsm.attempt import Attempt, attempt
from rollout_fsm.errors import leaves, text
from rollout_fsm.foreign import HOST, call
from rollout_fsm.testing.expecting import ContractError

__all__ = ["Strike", "sweep"]

T = TypeVar("T")
P = ParamSpec("P")

SHOWN = 3
"""How many of the innermost functions a message names."""


@define(eq=False)
class Strike(trio.abc.Instrument):
    """A cancellation of one call, at its step number `point`; None: it never comes, and the steps are counted."""

    point: int | None = None
    steps: int = field(default=0, init=False)
    where: str = field(default="", init=False)
    """In which function it came; empty until it does."""
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)

    @property
    def came(self) -> bool:
        """Whether the call was cancelled before it had ended."""
        return bool(self.where)

    async def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> Attempt[T]:
        """Call a function of the implementation's, cancel it on its way, and return what it came to.

        Raises what the call raised by itself, and a `ContractError` where a cancellation came out as something else.
        """
        struck = function if HOST.get() is None else self._counted(function)
        with self._scope:
            trio.lowlevel.add_instrument(self)
            try:
                ended = await attempt(partial(call, struck, *args, **kwargs))
            finally:
                trio.lowlevel.remove_instrument(self)
        try:
            if ended.error is None or (self.came and _only_cancelled(ended.error)):
                return ended
            if not self.came:
                raise ended.error
            said = "; ".join(text(leaf) for leaf in leaves(ended.error))
            raise ContractError(f"the call raised {said}", "clean up, and let the cancellation pass")
        finally:
            del ended  # a frame that keeps an exception which it raises is kept by it

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Trio has run a task to its next checkpoint."""
        self.step(lambda: [frame.f_code.co_name for frame, _ in task.iter_await_frames()])

    def step(self, functions: Callable[[], list[str]]) -> None:
        """Something has come to its next checkpoint; in the last of these functions it waits there."""
        self.steps += 1
        if self.steps == self.point:
            self.where = " > ".join(functions()[-SHOWN:]) or "its last step"
            self._scope.cancel()

    def _counted(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        @wraps(function)
        async def counted(*args: P.args, **kwargs: P.kwargs) -> T:
            return await _Counted(function(*args, **kwargs), self)

        return counted


async def sweep(life: Callable[[Strike], Awaitable[None]], points: int) -> None:
    """Live a life once to count the steps of its call, then once for each step at which that is cancelled, at most
    `points` times. Raises the first `ContractError`, which then says where the cancellation came."""
    counting = Strike()
    await life(counting)
    for point in _spread(counting.steps, points):
        strike = Strike(point)
        try:
            await life(strike)
        except ContractError as breach:
            if not strike.came:
                raise
            where = f"at step {point} of {counting.steps}, in {strike.where}"
            raise ContractError(f"cancelled {where}: {breach.came}", breach.change) from None


def _spread(steps: int, points: int) -> Iterator[int]:
    """Which of so many steps are cancelled."""
    number = min(steps, points)
    return (1 + index * steps // number for index in range(number))


def _only_cancelled(error: BaseException) -> bool:
    return all(isinstance(leaf, trio.Cancelled) for leaf in leaves(error))


class _Counted(Generator[Any, Any, T]):
    """What is awaited, with each of its steps counted, whichever loop drives it."""

    def __init__(self, awaitable: Awaitable[T], strike: Strike) -> None:
        self._strike = strike
        self._name = getattr(awaitable, "__qualname__", type(awaitable).__qualname__)
        self._inner = awaitable.__await__()

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: Any) -> Any:
        return self._asked(self._inner.send(value))

    def throw(self, *raised: Any) -> Any:
        return self._asked(self._inner.throw(*raised))

    def _asked(self, asked: Any) -> Any:
        self._strike.step(lambda: [self._name])
        return asked
