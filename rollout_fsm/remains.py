"""What a dead process left standing: removed, or taken over by the rollout that goes on (L73).

Runtimes are foreign code, and so is what their leases name. What cannot be removed is said by name and stays in the
journal, for the next who comes.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from rollout_fsm.attempt import Attempt, attempt
from rollout_fsm.errors import SandboxError, text
from rollout_fsm.foreign import call
from rollout_fsm.limits import DEFAULT_BOUNDS
from rollout_fsm.outcome import bare, interrupts, nobodys, pass_on, plain
from rollout_fsm.overdue import Overdue
from rollout_fsm.runtime import Runtime, runtime_class

if TYPE_CHECKING:
    from rollout_fsm.journal import Journal, Lease

T = TypeVar("T")

log = logging.getLogger("rollout_fsm")

AT_ONCE = 16
"""How many boxes are removed at once."""


async def remove_all(leases: "Iterable[Lease]", journal: "Journal", overdue: Overdue) -> None:
    """Remove what the leases name, each within `timeouts.release`. Raises only a cancellation: an interrupt comes out
    bare (L70)."""
    places, left = trio.CapacityLimiter(AT_ONCE), list(leases)

    async def one(lease: "Lease") -> None:
        async with places:
            await remove(lease, journal, overdue)
        left.remove(lease)

    async def all_of_them() -> None:
        async with trio.open_nursery() as nursery:
            for lease in tuple(left):
                nursery.start_soon(one, lease)

    ended = await attempt(all_of_them)
    try:
        if plain(ended.error) or interrupts(ended.error):
            assert ended.error is not None
            raise bare(ended.error)
    finally:
        del ended  # a frame that keeps an exception which it raises is kept by it
    await trio.lowlevel.checkpoint_if_cancelled()
    for lease in left:
        _say(lease, "removed", "its removal, or another one, cancelled them all")


async def remove(lease: "Lease", journal: "Journal", overdue: Overdue) -> None:
    """Remove what the lease names; what will not go is said, and left for another time."""

    async def reclaim() -> None:
        await call(runtime_class(lease.owner).reclaim, lease.data)

    if await _asked(reclaim, lease, overdue, bound=DEFAULT_BOUNDS.release, to_be="removed") is not None:
        journal.released(lease.number)
        log.info("the %s %s, which a process that died had left, was removed", lease.kind, lease.name)


async def take(lease: "Lease", overdue: Overdue, *, bound: float) -> Runtime | None:
    """The box that the lease names, as it stands, within so many seconds; None where it does not stand any more, and
    where it cannot be had, which is said."""

    async def adopt() -> Runtime | None:
        found: object = await call(runtime_class(lease.owner).adopt, lease.name, lease.data)
        if found is None:
            return None
        if not isinstance(found, Runtime):
            raise TypeError(f"adopt() returned {type(found).__name__}; it returns the box as a runtime, or None")
        if not isinstance(name := found.name, str):
            raise TypeError(f"the name of {type(found).__name__} is of type {type(name).__name__}; a name is text")
        return found

    found = await _asked(adopt, lease, overdue, bound=bound, to_be="taken over")
    return None if found is None else found.value


async def _asked(
    ask: Callable[[], Awaitable[T]], lease: "Lease", overdue: Overdue, *, bound: float, to_be: str
) -> Attempt[T] | None:
    """What foreign code answered about a box in time; None where something went wrong, which is said. Raises only a
    cancellation."""
    done = await overdue.attempt(ask, bound, rollout=lease.name, doing=partial(_doing, lease))
    try:
        failures = [text(leaf) for leaf in plain(done.came.error)]
        why = [*([] if done.in_time else [f"it took more than {bound:g} s"]), *failures]
        if why:
            _say(lease, to_be, "; ".join(why))
        pass_on(done.came.error)
        await trio.lowlevel.checkpoint_if_cancelled()
        if done.came.error is None and done.in_time:
            return done.came
        if not why:
            _say(lease, to_be, text(nobodys(SandboxError, f"asking for {_doing(lease)}")))
        return None
    finally:
        del done  # a frame that keeps an exception which it raises is kept by it


def _say(lease: "Lease", to_be: str, why: str) -> None:
    log.error("the %s %s, which a process that died had left, could not be %s: %s", lease.kind, lease.name, to_be, why)


def _doing(lease: "Lease") -> str:
    return f"the {lease.kind} that a process that died had left"
