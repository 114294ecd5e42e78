"""One piece of trio work that asyncio waits for: it runs in a trio task, under a cancel scope of its own.

A cancellation of the waiting asyncio task cancels the work and waits until that has unwound, shielded release and all;
only then it goes on. Everything else that the work raises reaches whoever waits, KeyboardInterrupt and SystemExit too.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Generic, TypeVar, cast

import trio
from attrs import define, field

from rollout_fsm.aio.latch import Latch
from rollout_fsm.errors import leaves

T = TypeVar("T")


@define(eq=False)
class Work(Generic[T]):
    """A call of an async function of trio's."""

    loop: asyncio.AbstractEventLoop = field(repr=False)
    _function: Callable[..., Awaitable[T]]
    _args: tuple[object, ...]
    _cut_off: Callable[[], BaseException] | None = field(repr=False)
    """What is said where the run ends under the work; None: that is left to the run's end."""
    _at_the_end: list[Callable[[], object]] = field(factory=list, init=False, repr=False)
    context: Context = field(factory=copy_context, init=False, repr=False)
    """The submitter's context variables, as `asyncio.create_task` has it."""
    scope: trio.CancelScope = field(factory=trio.CancelScope, init=False, repr=False)
    ended: Latch = field(init=False, repr=False)
    value: T | None = field(default=None, init=False)
    returned: bool = field(default=False, init=False)
    """Whether there is a value."""
    _error: BaseException | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.ended = Latch(self.loop)

    def start_in(self, nursery: trio.Nursery) -> None:
        """Start it, in a task of this nursery."""
        self.context.run(lambda: nursery.start_soon(self._run, name=getattr(self._function, "__qualname__", None)))

    def at_the_end(self, call: Callable[[], object]) -> None:
        """Have something called when the work has ended."""
        self._at_the_end.append(call)

    def cancel(self) -> None:
        """Cancel the work; to be called in the loop's thread."""
        if not self.ended.is_set and not self.loop.is_closed():
            self.scope.cancel()

    def end(self, error: BaseException | None) -> None:
        """The work has ended, with this error if it has no value; once more changes nothing."""
        if not self.ended.is_set:
            self._error = error
            self.ended.set()
            calls, self._at_the_end = self._at_the_end, []
            for call in calls:
                call()

    async def result(self) -> T:
        """Wait for it, from asyncio. Returns its value, raises what it raised, or the CancelledError that struck the
        waiting task, also where the work has come to a value all the same (L71)."""
        if asyncio.current_task() is None:
            raise RuntimeError(
                "this is to be awaited by an asyncio task; code that runs on trio uses what the trio engine gave it"
            )
        said = await self.ended.wait(self.cancel)
        error = self.take_error()
        try:
            if error is not None:
                raise error
            if said is not None or not self.returned:
                raise asyncio.CancelledError(*(said or ()))
            return cast("T", self.value)
        finally:
            del error  # a frame that keeps an exception which it raises is kept by it

    def take_error(self) -> BaseException | None:
        """What it raised, once: who holds an exception that it raises is kept by it."""
        error, self._error = self._error, None
        return error

    async def _run(self) -> None:
        try:
            with self.scope:
                self.value = await self._function(*self._args)
                self.returned = True
        except BaseException as error:
            if any(not isinstance(leaf, trio.Cancelled) for leaf in leaves(error)):
                self.end(error)  # it is raised where the work is waited for
                return
            if self._cut_off is not None:  # at once: the run's end may have to wait for whoever waits here
                self.end(self._cut_off())
            raise
        else:
            self.end(None)
