"""Tool servers of an engine inside asyncio: the embedder's tools run on asyncio, whatever serves and calls them does
not."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rollout_fsm import (
    ChatHarness,
    RolloutContext,
    Runtime,
    SharedToolset,
    StdioToolset,
    Task,
    Toolset,
    Trace,
    aio,
    tool,
)
from rollout_fsm.aio.calling import on_trio
from tests.aio.conftest import Host, host, loop_factory
from tests.harnesses.runs import Ending, ending
from tests.toolsets.rollouts import model
from tests.toolsets.test_in_rollouts import HTTP, held

__all__ = ["host", "loop_factory"]

SERVER = Path(__file__).with_name("stdio_server.py")
COMPLETED: Ending = (True, "agent_completed", [], [])


class Async(Toolset):
    """Uses asyncio's own primitives, and what it is given of its rollout."""

    @tool
    async def double(self, number: int, state: dict[str, Any]) -> int:
        """Twice the number."""
        doubled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(doubled.set_result, 2 * number)
        await asyncio.sleep(0)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(0, "done"))
        state[await task] = number
        return await doubled

    @tool
    async def look(self, runtime: Runtime, trace: Trace) -> str:
        await runtime.write("seen.txt", trace.id)
        return (await runtime.run(["cat", "seen.txt"])).stdout

    @tool
    def plain(self) -> str:
        return "plain"

    @tool
    async def fail(self) -> None:
        await asyncio.wait_for(asyncio.Event().wait(), 0)


class Overriding(Async):
    """Serves itself, from asyncio."""

    name = "overriding"  # type: ignore[assignment]

    def __init__(self, by_super: bool) -> None:
        self.by_super = by_super
        self.stopped = False

    async def start(self, context: RolloutContext) -> str:
        await asyncio.sleep(0)
        return await (on_trio(super().start, context) if self.by_super else context.serve(self))

    async def stop(self) -> None:
        await asyncio.sleep(0)
        self.stopped = True


CALLS: Sequence[tuple[str, dict[str, object]]] = (
    ("double", {"number": 4}),
    ("look", {}),
    ("plain", {}),
    ("fail", {}),
)
ANSWERS = "8\nthe-trace\nplain\nError: TimeoutError"


def test_tools_run_on_asyncio(host: Host) -> None:
    async def main() -> None:
        async with aio.open_engine() as engine:
            trace = await engine.run(
                Task(prompt="x"), harness=ChatHarness(), model=model(*CALLS), tools=[Async], id="the-trace"
            )
            assert (ending(trace), trace.last_reply, trace.state) == (COMPLETED, ANSWERS, {"done": 4})

    host(main)


def test_a_start_on_asyncio_has_the_engine_serve(host: Host) -> None:
    async def main() -> None:
        async with aio.open_engine() as engine:
            for by_super in (True, False):
                toolset = Overriding(by_super)
                trace = await engine.run(
                    Task(prompt="x"),
                    harness=ChatHarness(),
                    model=model(*CALLS),
                    tools=[lambda toolset=toolset: toolset],  # type: ignore[misc]
                    id="the-trace",
                )
                assert (ending(trace), trace.last_reply, toolset.stopped) == (COMPLETED, ANSWERS, True)
            assert held(engine._inner) == HTTP

    host(main)


class Library(Async, contextlib.AbstractAsyncContextManager[None]):
    """Held open by one asyncio task."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def __aenter__(self) -> None:
        self.task = asyncio.current_task()
        self.log.append("opened")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.sleep(0)
        self.log.append("closed by the task that opened it" if asyncio.current_task() is self.task else "closed")


def test_a_shared_toolset_and_a_program_in_one_rollout(host: Host) -> None:
    async def main() -> None:
        library = Library()
        shared = SharedToolset(library)
        async with aio.open_engine() as engine:
            for _ in range(2):
                trace = await engine.run(
                    Task(prompt="x"),
                    harness=ChatHarness(),
                    model=model(("double", {"number": 2}), ("echo", {"text": "hi"}), ("count", {})),
                    tools=[lambda: shared, lambda: StdioToolset([sys.executable, "-I", str(SERVER)], name="tools")],
                )
                assert (ending(trace), trace.last_reply) == (COMPLETED, "4\nhi\n1")
                assert trace.state == {"done": 2, "count": 1}
            assert library.log == ["opened"]
        assert library.log == ["opened", "closed by the task that opened it"]

    host(main)


def test_a_cancelled_rollout_cancels_its_running_tool_and_leaves_nothing(host: Host) -> None:
    async def main() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        class Waiting(Toolset):
            @tool
            async def wait(self) -> None:
                begun.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.set()
                    raise

        async with aio.open_engine() as engine:
            rollout = asyncio.create_task(
                engine.run(Task(prompt="x"), harness=ChatHarness(), model=model(("wait", {})), tools=[Waiting])
            )
            await begun.wait()
            rollout.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await rollout
            assert (rollout.cancelled(), cancelled.is_set(), held(engine._inner)) == (True, True, HTTP)

    host(main)
