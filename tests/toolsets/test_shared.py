"""A toolset that many rollouts share: one start, one end, and a credential for each of them."""

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

from rollout_fsm import RolloutContext, SharedToolset, StdioToolset, Toolset, tool
from rollout_fsm.errors import leaves
from rollout_fsm.tool_client import http_tool_client
from tests.toolsets.rollouts import context, said, servers

pytestmark = pytest.mark.real_time

SERVER = Path(__file__).with_name("stdio_server.py")


class Library(Toolset, AbstractAsyncContextManager[None]):
    """Counts its readers, and says when it is opened and closed."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.waiting, self.cancelled = trio.Event(), trio.Event()

    async def __aenter__(self) -> None:
        self.log.append("opened")

    async def __aexit__(self, *error: object) -> None:
        self.log.append("closed")

    @tool
    def read(self, state: dict[str, Any]) -> str:
        state["read"] = state.get("read", 0) + 1
        self.log.append("read")
        return f"page {state['read']}"

    @tool
    async def wait(self) -> None:
        self.waiting.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()


async def test_it_is_opened_for_the_first_rollout_and_closed_with_the_engine_and_each_has_its_own_state() -> None:
    library = Library()
    shared = SharedToolset(library)
    rollouts = [context("one"), context("two")]
    async with servers() as engine:
        assert library.log == []
        for rollout in rollouts:
            server = await engine.serve(shared, rollout)
            async with http_tool_client(server.url) as client:
                assert [await said(client, "read"), await said(client, "read")] == ["page 1", "page 2"]
            await server.stop()
        assert library.log == ["opened", *["read"] * 4]
    assert library.log[-1] == "closed"
    assert [rollout.trace.state for rollout in rollouts] == [{"read": 2}] * 2


async def test_stopping_one_rollouts_server_leaves_the_others_alone() -> None:
    library = Library()
    shared = SharedToolset(library)
    async with servers() as engine:
        first, second = await engine.serve(shared), await engine.serve(shared)
        assert first.url != second.url
        async with http_tool_client(second.url) as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "wait", {})
            await library.waiting.wait()
            await first.stop()
            assert await said(client, "read") == "page 1"
            assert not library.cancelled.is_set()
            nursery.cancel_scope.cancel()


async def test_one_program_serves_all_rollouts_and_is_started_again_when_it_has_ended() -> None:
    shared = SharedToolset(StdioToolset([sys.executable, "-I", str(SERVER)]), name="tools")
    pids: list[str] = []
    async with servers() as engine:

        async def ask(*names: str) -> None:
            server = await engine.serve(shared)
            async with http_tool_client(server.url) as client:
                pids.append(await said(client, "pids"))
                for name in names:
                    assert (await said(client, name)).startswith("failed: Error: ")
            await server.stop()

        await ask()
        await ask("exit", "echo")
        await ask()
    assert pids[0] == pids[1] != pids[2]


async def test_a_program_that_is_shared_is_told_of_no_rollouts_state() -> None:
    rollout = context()
    known = RolloutContext(
        task=rollout.task, trace=rollout.trace, runtime=rollout.runtime, state_url="http://x/state", state_secret="s"
    )
    toolset = StdioToolset([sys.executable, "-I", str(SERVER)])
    told = []
    async with servers() as engine:
        for one in (SharedToolset(toolset), toolset):
            async with http_tool_client((await engine.serve(one, known)).url) as client:
                told.append(await said(client, "environment", name="ROLLOUT_STATE_SECRET"))
    assert told == ["none", "s"]


async def test_one_that_cannot_be_started_fails_each_rollout_and_is_tried_again() -> None:
    shared = SharedToolset(StdioToolset([sys.executable, "-I", str(SERVER), "dies"]))
    async with servers() as engine:
        for _ in range(2):
            with pytest.raises(ExceptionGroup) as raised:
                await engine.serve(shared)
            assert ["status 3" in str(error) for error in leaves(raised.value)] == [True]


class Starting(Library):
    async def start(self, context: RolloutContext) -> str:
        return "http://elsewhere"


class Stopping(Library):
    async def stop(self) -> None: ...


@pytest.mark.parametrize("toolset", [Starting, Stopping])
def test_what_starts_or_stops_by_itself_is_one_rollouts_and_cannot_be_shared(toolset: type[Library]) -> None:
    with pytest.raises(TypeError, match=rf"{toolset.__name__} has a start\(\) or stop\(\) of its own"):
        SharedToolset(toolset())


@pytest.mark.parametrize("shared", [Library, SharedToolset(Library()), None])
def test_what_is_no_toolset_cannot_be_shared(shared: Any) -> None:
    with pytest.raises(TypeError, match="what is shared is a Toolset, not a"):
        SharedToolset(shared)


def test_it_has_the_name_of_what_it_shares_unless_it_is_given_another() -> None:
    assert [SharedToolset(Library()).name, SharedToolset(Library(), name="books").name] == ["Library", "books"]
