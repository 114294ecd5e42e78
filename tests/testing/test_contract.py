"""How a test of the kit is run and told of: in time, in one sentence, whatever comes."""

from collections.abc import Awaitable, Callable
from unittest import SkipTest

import pytest
import trio
from trio.testing import MockClock

from rollout_fsm.testing.contract import Contract, check
from rollout_fsm.testing.expecting import ContractError, expect, raised_by, said
from rollout_fsm.testing.site import open_site
from rollout_fsm.testing.sweep import Strike, sweep


class Sample(Contract):
    """Checks of this and that."""

    left: tuple[str, ...] = ("of others",)

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        trio.run(main, clock=MockClock(autojump_threshold=0))

    def leftovers(self) -> tuple[str, ...]:
        return self.left

    @check
    async def hang(self) -> None:
        """This
        ends (L1)."""
        await trio.sleep_forever()

    @check
    async def fail_in_a_nursery(self) -> None:
        """This does not fail."""

        async def fail() -> None:
            expect(False, "it failed", "let it not")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail)

    @check
    async def raise_two(self) -> None:
        """Nothing is raised here."""
        raise ExceptionGroup("two", [ValueError("one"), ExceptionGroup("more", [KeyError("two")])])

    @check
    async def divide(self) -> None:
        """This can be divided."""
        raise ZeroDivisionError("division by zero") from KeyError("zero")

    @check
    async def skip_in_a_nursery(self) -> None:
        """This may be skipped."""
        async with trio.open_nursery():
            self.skip("it does not apply")

    @check
    async def interrupt(self) -> None:
        """Whoever presses Ctrl-C is heard."""
        async with trio.open_nursery():
            raise KeyboardInterrupt

    @check
    async def leave_something(self) -> None:
        """Nothing is left."""
        with self.nothing_left("remove it"):
            self.left += ("a folder", "a box")

    @check
    async def be_late(self) -> None:
        """This is quick."""
        with self.in_time("the sleep", "wake up"):
            await trio.sleep(self.patience + 1)


@pytest.mark.parametrize(
    ("test", "asks", "came", "change"),
    [
        (Sample.hang, "This ends (L1).", "the test had not ended after 120 s", "find what is waited for"),
        (Sample.fail_in_a_nursery, "This does not fail.", "it failed", "let it not"),
        (Sample.raise_two, "Nothing is raised here.", "ValueError: one was raised; KeyError: 'two' was raised", "see"),
        (Sample.leave_something, "Nothing is left.", "this was left behind: a box, a folder", "remove it"),
        (Sample.be_late, "This is quick.", "the sleep had not ended after 10 s", "wake up (`patience` is how long)"),
    ],
)
def test_a_failure_says_what_was_asked_what_came_and_what_to_change(
    test: Callable[[Sample], None], asks: str, came: str, change: str
) -> None:
    with pytest.raises(ContractError) as caught:
        test(Sample())
    assert (caught.value.asks, caught.value.came) == (asks, came)
    assert change in caught.value.change
    assert str(caught.value).startswith(f"\nthe contract: {asks}\nwhat came:    {came}\nto change:    ")


def test_what_was_raised_is_shown_where_it_came_from() -> None:
    with pytest.raises(ContractError, match="ZeroDivisionError: division by zero was raised") as caught:
        Sample.divide(Sample())
    assert caught.traceback[-1].name == "divide"
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_skip_and_an_interrupt_pass_as_they_are() -> None:
    with pytest.raises(SkipTest, match="it does not apply"):
        Sample.skip_in_a_nursery(Sample())
    with pytest.raises(KeyboardInterrupt):
        Sample.interrupt(Sample())


async def test_a_sweep_cancels_a_call_at_each_of_its_steps() -> None:
    steps: list[str] = []

    async def call() -> str:
        for number in range(4):
            steps.append(str(number))
            await trio.lowlevel.checkpoint()
        return "done"

    async def life(strike: Strike) -> None:
        ended = await strike.call(call)
        steps.append("cancelled" if ended.error else f"{ended.value}")

    await sweep(life, 100)
    lives = " ".join(steps).replace("cancelled", "cancelled|").replace("done", "done|").split("|")
    assert {life.strip() for life in lives if life} >= {
        "0 1 2 3 done",
        "0 cancelled",
        "0 1 cancelled",
        "0 1 2 cancelled",
    }
    lives.clear()
    steps.clear()
    await sweep(life, 2)
    assert sum(step in ("done", "cancelled") for step in steps) == 3


async def test_a_cancellation_that_becomes_something_else_is_told_with_its_place() -> None:
    async def call() -> None:
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            raise ValueError("interrupted") from None

    async def life(strike: Strike) -> None:
        await strike.call(call)

    came = await raised_by(sweep(life, 100))
    assert isinstance(came, ContractError)
    assert came.came.startswith("cancelled at step 1 of ")
    assert came.came.endswith(": the call raised ValueError: interrupted")


async def test_what_a_call_raises_by_itself_passes_a_sweep() -> None:
    async def call() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("no")

    async def life(strike: Strike) -> None:
        await strike.call(call)

    assert said(await raised_by(sweep(life, 100))) == "raised KeyError: 'no'"


async def test_what_a_call_came_to_is_said() -> None:
    async def returns() -> None:
        await trio.lowlevel.checkpoint()

    assert said(await raised_by(returns())) == "returned"


@pytest.mark.real_time
async def test_the_site_serves_its_page_and_notices_who_hangs_up() -> None:
    async with open_site() as site:
        port = int(site.url.rpartition(":")[2])
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET /page HTTP/1.1\r\n\r\n")
            assert b"".join([piece async for piece in stream]).endswith(site.page.encode())
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET /endless HTTP/1.1\r\n\r\n")
            await site.held.wait()
            assert not site.hung_up.is_set()
        await site.hung_up.wait()
        async with await trio.open_tcp_stream("127.0.0.1", port):
            pass
        assert (site.route, site.endless) == (f"{site.url}/page", f"{site.url}/endless")
