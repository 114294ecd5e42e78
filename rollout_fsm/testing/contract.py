"""What the contracts' test classes have in common: how a test is run, bounded, skipped, and told of when it fails.

A subclass says how its implementation is made; pytest collects it like any class of tests. No module here needs pytest:
a test is a plain method that runs an event loop of its own, so no plugin, marker or configuration matters to it.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import ClassVar, Literal, NoReturn, TypeVar
from unittest import SkipTest

import trio

from rollout_fsm.errors import leaves, text
from rollout_fsm.testing.expecting import ContractError
from rollout_fsm.testing.loops import Main, run_on_asyncio, run_on_trio

__all__ = ["Contract", "check"]

AnyContract = TypeVar("AnyContract", bound="Contract")

HUNG = "find what is waited for (a cancellation has to end any wait), or raise `timeout` if it is only slow"
RAISED = "nothing in this test may raise that: see where it came from"


class Contract:
    """A contract, as a class of tests. Its attributes say what an implementation offers, and how long it may take."""

    runs_on: ClassVar[Literal["trio", "asyncio"]] = "trio"
    """Where the implementation's coroutines run; with "asyncio" they are run as `rollout_fsm.aio` runs them."""
    timeout: ClassVar[float] = 120.0
    """Seconds after which a test is taken for hung."""
    patience: ClassVar[float] = 10.0
    """Seconds that something may take which is to come at once."""
    points: ClassVar[int] = 40
    """At how many of its steps a call is cancelled at most, where it is cancelled at each."""

    def run(self, main: Main) -> None:
        """Run an async function to its end. Override it for another loop or clock."""
        (run_on_asyncio if self.runs_on == "asyncio" else run_on_trio)(main)

    def leftovers(self) -> Collection[str]:
        """What there is, at this moment, of anything that was made: folders, containers, processes. Override it so that
        what is left behind is seen."""
        return ()

    def unfinished(self, what: str, makes: str) -> NoReturn:
        """Fail where a subclass has not been told how its implementation is made."""
        raise ContractError(f"{type(self).__name__} has no {what}", f"define it: it returns {makes}")

    @contextmanager
    def nothing_left(self, change: str) -> Iterator[None]:
        """A block that leaves no more behind than was there before it."""
        before = frozenset(self.leftovers())
        yield
        if left := sorted(frozenset(self.leftovers()) - before):
            raise ContractError(f"this was left behind: {', '.join(left)}", change)

    @contextmanager
    def in_time(self, doing: str, change: str) -> Iterator[None]:
        """A block that ends within `patience`."""
        with trio.move_on_after(self.patience) as bound:
            yield
        if bound.cancelled_caught:
            raise ContractError(
                f"{doing} had not ended after {self.patience:g} s", f"{change} (`patience` is how long)"
            )

    def skip(self, why: str) -> NoReturn:
        """End a test that does not apply."""
        raise SkipTest(why)

    def prove(self, asks: str, body: Main) -> None:
        """Run one test. Raises a `ContractError` that has the sentence of the test for whatever goes wrong in it."""
        __tracebackhide__ = True

        async def bounded() -> None:
            with trio.move_on_after(self.timeout) as bound:
                await body()
            if bound.cancelled_caught:
                raise ContractError(f"the test had not ended after {self.timeout:g} s", HUNG)

        try:
            self.run(bounded)
        except BaseException as raised:  # noqa: BLE001  (what is raised instead says what it means)
            found = _found(raised)
            if isinstance(found, ContractError):
                found.asks = asks
            raise found from found.__cause__


def check(test: Callable[[AnyContract], Awaitable[None]]) -> Callable[[AnyContract], None]:
    """Makes an async method a test. Its docstring is what the contract asks."""
    asks = " ".join(inspect.cleandoc(test.__doc__ or "").split())

    @wraps(test)
    def checked(self: AnyContract) -> None:
        __tracebackhide__ = True
        self.prove(asks, partial(test, self))

    return checked


def _found(raised: BaseException) -> BaseException:
    """What is to be told: the breach that was found, else an exit or a skip as it is, else a breach that says what was
    raised."""
    each = list(leaves(raised))
    for leaf in each:
        if isinstance(leaf, ContractError | SkipTest):
            return leaf
    for leaf in each:
        if not isinstance(leaf, Exception | trio.Cancelled):
            return leaf
    breach = ContractError("; ".join(f"{text(leaf)} was raised" for leaf in each), RAISED)
    breach.__cause__ = each[0].__cause__
    return breach.with_traceback(each[0].__traceback__)
