"""Real time that a test can put on: it runs as fast as the wall clock's, and jumps where a test says so.

With it a budget that is far too long to wait for runs out at the very moment that a test is about.
"""

from collections.abc import Awaitable, Callable

import trio
from trio.testing import MockClock

PATIENCE = 10_000.0
"""Seconds, jumps included, after which a test is taken for hung."""


def with_a_clock(test: Callable[[MockClock], Awaitable[None]]) -> None:
    """Run a test under trio with a clock that it can put on."""
    clock = MockClock(rate=1.0)

    async def main() -> None:
        with trio.fail_after(PATIENCE):
            await test(clock)

    trio.run(main, clock=clock)
