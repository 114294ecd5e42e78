"""Calling foreign code: what it returned or raised, as a value. What that means is for whoever asked.

A frame that keeps an exception which was raised through it keeps itself alive. The exceptions that come out of here
were raised through frames that are gone, so holding one is harmless; who raises it again must let go of it.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, ParamSpec, TypeVar

import trio
from attrs import frozen

T = TypeVar("T")
P = ParamSpec("P")


@frozen(eq=False)
class Attempt(Generic[T]):
    """What a call came to: a value, or what was raised."""

    value: T | None = None
    error: BaseException | None = None


async def attempt(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> Attempt[T]:
    """Call and await. Everything that is raised is returned.

    But for a GeneratorExit that closes this very task: nothing may be awaited after that. One that foreign code raised
    itself comes while the task is running.
    """
    task = trio.lowlevel.current_task()
    try:
        return Attempt(value=await call(*args, **kwargs))
    except BaseException as raised:
        if closes(raised, task):
            raise
        return Attempt(error=raised)


def closes(raised: BaseException, task: trio.lowlevel.Task) -> bool:
    """Whether this was raised by whoever closes the task, which does not run then."""
    if not isinstance(raised, GeneratorExit):
        return False
    try:
        return trio.lowlevel.current_task() is not task
    except RuntimeError:
        return True


@trio.lowlevel.disable_ki_protection
async def strikeable(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call foreign code that hands nothing over which would have to be released: Ctrl-C may strike anywhere in it."""
    return await call(*args, **kwargs)
