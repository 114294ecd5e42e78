"""Tests inside asyncio are plain functions that run their own loop: each on asyncio's and on uvloop's."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import pytest
import uvloop

T = TypeVar("T")
LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
Host: TypeAlias = Callable[[Callable[[], Awaitable[None]]], None]

HANG = 30.0
"""Seconds after which a test is taken for hung."""


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory:
    """What makes the loop."""
    factory: LoopFactory = request.param
    return factory


@pytest.fixture
def host(loop_factory: LoopFactory) -> Host:
    """Runs an asyncio program; afterwards no task of it is left."""

    def run(main: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(HANG):
                await main()
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(bounded())

    return run
