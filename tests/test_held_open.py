"""What a harness session has the engine hold open: left by the session, or after it by the engine."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

from rollout_fsm import (
    Exchange,
    Harness,
    HarnessSession,
    Message,
    RolloutTimeouts,
    ScriptedModel,
    Task,
    Trace,
    check_trace,
    open_engine,
)
from rollout_fsm.held_open import nobody_holds
from tests.harnesses.runs import run


class Holding(Harness):
    """Holds one thing from its opening on, another from its segment on, and notes what becomes of them."""

    def __init__(self, *, leaves: bool = False, opens: bool = True, ending: Callable[[], object] | None = None) -> None:
        self.leaves, self.opens = leaves, opens
        self.ending = ending
        """What leaving something comes to, else than well."""
        self.log: list[str] = []
        self.tasks: list[trio.lowlevel.Task] = []

    @asynccontextmanager
    async def thing(self, name: str) -> AsyncIterator[str]:
        self.tasks.append(trio.lowlevel.current_task())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            self.log.append(f"{name} entered")
            yield name
            nursery.cancel_scope.cancel()
        assert trio.lowlevel.current_task() in self.tasks
        self.log.append(f"{name} left")
        if self.ending is not None:
            await trio.lowlevel.checkpoint()
            ended = self.ending()
            if isinstance(ended, BaseException):
                raise ended
            await trio.sleep_forever()

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        first = await exchange.hold(self.thing("first"), name="the first thing")
        if not self.opens:
            raise ValueError("no session")
        return _Session(self, exchange, [first])


class _Session(HarnessSession):
    def __init__(self, harness: Holding, exchange: Exchange, held: list[object]) -> None:
        self.harness, self.exchange, self.held = harness, exchange, held

    async def run(self, messages: Sequence[Message] | None) -> None:
        second = await self.exchange.hold(self.harness.thing("second"), name="the second thing")
        assert (second.value, second.ended) == ("second", False)
        if self.harness.leaves:
            await second.leave()
            await second.leave()
            assert second.ended
            with pytest.raises(RuntimeError, match="the second thing is not open any more"):
                second.value  # noqa: B018  (it raises)

    async def close(self) -> None:
        self.harness.log.append("closed")
        with pytest.raises(RuntimeError, match="it cannot be held open any more: the exchange is over"):
            await self.exchange.hold(self.harness.thing("third"), name="it")


async def rollout(harness: Holding, *, close: float = 60) -> Trace:
    """One whose engine holds nothing after it."""
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(
            Task(prompt="x"), harness=harness, model=ScriptedModel([]), timeouts=RolloutTimeouts(close=close)
        )
        assert engine._register is not None
        assert engine._register.services.hosting._open == set()
    assert check_trace(trace) == []
    return trace


async def test_what_the_session_forgot_is_left_after_its_close_the_newest_first() -> None:
    harness = Holding()
    trace = await rollout(harness)
    assert (trace.ok, trace.warnings) == (True, [])
    assert harness.log == ["first entered", "second entered", "closed", "second left", "first left"]


async def test_what_the_session_left_is_not_left_again() -> None:
    harness = Holding(leaves=True)
    trace = await rollout(harness)
    assert (trace.ok, trace.warnings) == (True, [])
    assert harness.log == ["first entered", "second entered", "second left", "closed", "first left"]


async def test_what_an_open_that_failed_forgot_is_left() -> None:
    harness = Holding(opens=False)
    trace = await rollout(harness)
    assert [error.type for error in trace.errors] == ["HarnessError"]
    assert trace.warnings == []
    assert harness.log == ["first entered", "first left"]


async def test_what_cannot_be_left_is_a_warning_and_keeps_nothing_else_open() -> None:
    harness = Holding(ending=lambda: ValueError("it sticks"))
    trace = await rollout(harness)
    assert trace.ok
    (warning,) = trace.warnings
    assert warning.kind == "close"
    assert warning.message == (
        "things that the harness session held open did not close: ValueError: it sticks; ValueError: it sticks"
    )
    assert harness.log[-2:] == ["second left", "first left"]


async def test_what_is_not_left_in_time_is_given_up_and_named() -> None:
    harness = Holding(ending=lambda: None)
    trace = await rollout(harness, close=2)
    assert trace.ok
    (warning,) = trace.warnings
    assert re.fullmatch(
        r"things that the harness session held open did not close: within 2 s \(timeouts.close\), 2(\.\d+)? s passed",
        warning.message,
    )


async def test_a_session_that_holds_nothing_has_nothing_to_be_left() -> None:
    class Idle(Harness):
        async def open_session(self, exchange: Exchange) -> HarnessSession:
            return _Idle()

    class _Idle(HarnessSession):
        async def run(self, messages: Sequence[Message] | None) -> None:
            """Nothing."""

    assert (await run(Idle(), ScriptedModel([]), Task(prompt="x"))).ok


class Late(Harness):
    """Has something entered by a task that goes on when the segment has ended; it is entered when `go` is set."""

    def __init__(self, nursery: trio.Nursery, *, closing: bool) -> None:
        self.nursery, self.closing = nursery, closing
        self.entering, self.go, self.refused = trio.Event(), trio.Event(), trio.Event()
        self.log: list[str] = []

    @asynccontextmanager
    async def slow(self) -> AsyncIterator[None]:
        self.entering.set()
        await self.go.wait()
        self.log.append("entered")
        yield
        self.log.append("left")

    async def hold(self, exchange: Exchange) -> None:
        with pytest.raises(RuntimeError, match="it cannot be held open any more: the exchange is over"):
            await exchange.hold(self.slow(), name="it")
        self.log.append("refused")
        self.refused.set()

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        return _LateSession(self, exchange)


class _LateSession(HarnessSession):
    def __init__(self, harness: Late, exchange: Exchange) -> None:
        self.harness, self.exchange = harness, exchange

    async def run(self, messages: Sequence[Message] | None) -> None:
        self.harness.nursery.start_soon(self.harness.hold, self.exchange)
        await self.harness.entering.wait()

    async def close(self) -> None:
        if self.harness.closing:
            self.harness.go.set()
            await self.harness.refused.wait()
        self.harness.log.append("closed")


@pytest.mark.parametrize("closing", [True, False])
async def test_what_is_entered_when_the_exchange_is_over_already_is_left_again_and_refused(closing: bool) -> None:
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        harness = Late(nursery, closing=closing)
        trace = await engine.run(Task(prompt="x"), harness=harness, model=ScriptedModel([]))
        harness.go.set()
        await harness.refused.wait()
        assert engine._register is not None
        assert engine._register.services.hosting._open == set()
    assert (trace.ok, trace.warnings) == (True, [])
    late = ["entered", "left", "refused"]
    assert harness.log == ([*late, "closed"] if closing else ["closed", *late])


async def test_outside_of_an_engine_nothing_is_held() -> None:
    with pytest.raises(RuntimeError, match="it needs an engine that holds it open, and this exchange has none"):
        await nobody_holds(trio.open_nursery(), name="it")
