"""What is lent is entered once for all whose blocks overlap, and left after the last, in a task of the engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from rollout_fsm import hosting
from rollout_fsm.hosting import Hosting


class Shared:
    """Opens what must not be opened twice."""

    def __init__(self, *, entering: float = 1.0, leaving: float = 1.0) -> None:
        self.events: list[str] = []
        self.entering, self.leaving = entering, leaving

    @asynccontextmanager
    async def made(self) -> AsyncIterator["Shared"]:
        try:
            await trio.sleep(self.entering)
            assert self.events.count("entered") == self.events.count("left")
            self.events.append("entered")
            yield self
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.leaving)
            self.events.append("left")


@asynccontextmanager
async def hosted() -> AsyncIterator[Hosting]:
    async with trio.open_nursery() as nursery:
        made = Hosting(nursery)
        try:
            yield made
        finally:
            with trio.CancelScope(shield=True):
                await made.end()


async def use(host: Hosting, shared: Shared, after: float, seconds: float) -> None:
    await trio.sleep(after)
    async with host.lend(shared, shared.made, name="shared") as value:
        assert value is shared
        assert shared.events[-1] == "entered"
        await trio.sleep(seconds)
        assert shared.events[-1] == "entered"


async def test_blocks_that_overlap_share_one_entering_and_the_last_leaves() -> None:
    shared = Shared()
    async with hosted() as host:
        async with trio.open_nursery() as nursery:
            for after in range(5):
                nursery.start_soon(use, host, shared, after, 3.5)
        assert shared.events == ["entered"]  # it is being left
        await trio.sleep(1.5)
        assert shared.events == ["entered", "left"]


async def test_who_comes_while_it_is_left_has_it_entered_anew() -> None:
    shared = Shared(leaving=5.0)
    async with hosted() as host:
        await use(host, shared, after=0, seconds=1)
        await use(host, shared, after=1, seconds=1)
        assert shared.events == ["entered", "left", "entered"]
    assert shared.events == ["entered", "left"] * 2


async def test_what_is_shared_too_stays_until_the_end() -> None:
    for first in ("shared", "lent"):
        shared = Shared()
        async with hosted() as host:
            if first == "shared":
                await host.share(shared, shared.made, name="shared")
            async with host.lend(shared, shared.made, name="shared"):
                await host.share(shared, shared.made, name="shared")
            await trio.sleep(5)
            assert shared.events == ["entered"]
        assert shared.events == ["entered", "left"]


async def test_a_block_that_is_cancelled_while_it_is_entered_takes_nothing_from_the_others() -> None:
    shared = Shared(entering=2.0)
    async with hosted() as host, trio.open_nursery() as nursery:
        nursery.start_soon(use, host, shared, 0.5, 5)
        with trio.move_on_after(1) as scope:
            await use(host, shared, after=0, seconds=5)
        assert scope.cancelled_caught
    assert shared.events == ["entered", "left"]


async def test_the_last_that_is_cancelled_while_it_is_entered_undoes_that() -> None:
    shared = Shared(entering=5.0)
    async with hosted() as host:
        with trio.move_on_after(1):
            await use(host, shared, after=0, seconds=5)
        await trio.sleep(1.5)
        assert shared.events == ["left"]


async def test_what_entering_raises_is_raised_to_each_and_leaving_that_fails_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise OSError("no socket")
        yield

    @asynccontextmanager
    async def sticky() -> AsyncIterator[None]:
        yield
        raise OSError("stuck")

    raised: list[Any] = []

    async def ask(host: Hosting) -> None:
        try:
            async with host.lend(raised, broken, name="broken"):
                raise AssertionError("it was never open")
        except OSError as error:
            raised.append(str(error))

    async with hosted() as host:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, host)
            nursery.start_soon(ask, host)
        assert raised == ["no socket"] * 2
        async with host.lend(caplog, sticky, name="sticky"):
            pass
        await trio.sleep(1)
        assert "leaving sticky failed: OSError: stuck" in caplog.text


async def test_leaving_has_its_bound(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        yield
        await trio.sleep_forever()

    async with hosted() as host:
        began = trio.current_time()
        async with host.lend(caplog, slow, name="slow"):
            pass
        await trio.sleep(hosting.LEAVING + 1)
        assert f"leaving slow took more than {hosting.LEAVING:g} s and was given up" in caplog.text
    assert trio.current_time() - began == hosting.LEAVING + 1
