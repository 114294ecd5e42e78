"""What a harness on asyncio has the engine hold open is entered and left on asyncio; what is trio's stays there."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import sniffio
import trio

from rollout_fsm import ChatHarness, Exchange, HarnessSession, Message, ScriptedModel, Task, aio
from rollout_fsm.aio import on_trio
from rollout_fsm.harness import Harness
from tests.aio.conftest import Host, host, loop_factory
from tests.harnesses.runs import ending
from tests.toolsets.rollouts import model
from tests.toolsets.test_in_asyncio import Async

__all__ = ["host", "loop_factory"]


class Holding(Harness):
    """Holds asyncio's own from segment to segment; leaves one thing and forgets the other."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @asynccontextmanager
    async def thing(self, name: str) -> AsyncIterator[str]:
        entered_by = asyncio.current_task()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            waiting = group.create_task(asyncio.Event().wait())
            yield name
            waiting.cancel()
        assert asyncio.current_task() is entered_by
        self.log.append(f"{name} left")

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        await exchange.hold(self.thing("forgotten"), name="the forgotten thing")
        return _Session(self, exchange)


class _Session(HarnessSession):
    def __init__(self, harness: Holding, exchange: Exchange) -> None:
        self.harness, self.exchange = harness, exchange

    async def run(self, messages: Sequence[Message] | None) -> None:
        held = await self.exchange.hold(self.harness.thing("kept"), name="the kept thing")
        assert (held.value, held.ended) == ("kept", False)
        await held.leave()
        assert held.ended

    async def close(self) -> None:
        self.harness.log.append("closed")


def test_a_context_manager_of_asyncios_is_entered_and_left_by_one_asyncio_task(host: Host) -> None:
    async def main() -> None:
        harness = Holding()
        async with aio.open_engine(gateway=False) as engine:
            trace = await engine.run(Task(prompt="x"), harness=harness, model=ScriptedModel([]))
            assert (trace.ok, trace.errors, trace.warnings) == (True, [], [])
            assert harness.log == ["kept left", "closed", "forgotten left"]

    host(main)


class Chatting(ChatHarness):
    """Opens the session of its base, which lives on trio and holds connections there."""

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        assert asyncio.current_task() is not None
        return await on_trio(super().open_session, exchange)


def test_what_goes_back_to_trio_holds_what_is_trios(host: Host) -> None:
    async def main() -> None:
        async with aio.open_engine() as engine:
            trace = await engine.run(
                Task(prompt="x"), harness=Chatting(), model=model(("double", {"number": 4})), tools=[Async]
            )
            assert (ending(trace), trace.last_reply) == ((True, "agent_completed", [], []), "8")

    host(main)


class OnTrio(Harness):
    """Written for trio."""

    runs_on = "trio"

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        held = await exchange.hold(trios(), name="it")
        assert held.value == "trio"
        await held.leave()
        return _Nothing()


@asynccontextmanager
async def trios() -> AsyncIterator[str]:
    async with trio.open_nursery():
        yield sniffio.current_async_library()


class _Nothing(HarnessSession):
    runs_on = "trio"

    async def run(self, messages: Sequence[Message] | None) -> None:
        await trio.lowlevel.checkpoint()


def test_a_harness_on_trio_holds_what_is_trios(host: Host) -> None:
    async def main() -> None:
        async with aio.open_engine(gateway=False) as engine:
            trace = await engine.run(Task(prompt="x"), harness=OnTrio(), model=ScriptedModel([]))
            assert (trace.ok, trace.errors, trace.warnings) == (True, [], [])

    host(main)
