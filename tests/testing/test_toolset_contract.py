"""Each test of the tool server's contract fails by the one that breaks just this of it, which passes the plain ones."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import ClassVar, TypeVar

import mcp.client.streamable_http  # noqa: F401  (what the first client of a tool server would import, in a second)
import pytest
import trio
from mcp_types import CallToolResult, TextContent, Tool
from trio.testing import wait_all_tasks_blocked

from rollout_fsm.hosting import Hosting
from rollout_fsm.messages import JSON
from rollout_fsm.testing import ToolsetContract
from rollout_fsm.testing.expecting import ContractError
from rollout_fsm.toolset import RolloutContext
from rollout_fsm.toolsets.serving import ToolServers
from rollout_fsm.toolsets.source import SourcedToolset, ToolSource
from tests.testing.running import failures, names, outcome, said_in_full

PATIENCE = 0.5
"""Seconds after which one that does not come to its end is given up."""
OPEN: set[int] = set()
"""The tool servers that are open."""


class Notebook(SourcedToolset):
    """Tools to keep a note, to read it, to fail and to wait."""

    def __init__(self, *, cannot_start: bool = False) -> None:
        self.cannot_start = cannot_start

    async def start(self, context: RolloutContext) -> str:
        if self.cannot_start:
            raise OSError("no port is free")
        return await super().start(context)

    @asynccontextmanager
    async def source(self, context: RolloutContext | None) -> AsyncIterator[ToolSource]:
        OPEN.add(id(self))
        try:
            await trio.lowlevel.checkpoint()
            yield self
        finally:
            OPEN.discard(id(self))

    async def list_tools(self) -> Sequence[Tool]:
        return [Tool(name=name, input_schema={"type": "object"}) for name in ("note", "recall", "fail", "wait")]

    async def call_tool(self, name: str, arguments: dict[str, JSON], context: RolloutContext) -> CallToolResult:
        await trio.lowlevel.checkpoint()
        match name:
            case "note":
                self.notes(context)["note"] = arguments["text"]
                return told("kept")
            case "recall":
                return told(str(self.notes(context).get("note")))
            case "wait":
                return await self.wait()
            case "fail":
                return told("it failed", is_error=True)
        return self.unknown(name)

    async def wait(self) -> CallToolResult:
        await trio.sleep_forever()

    def unknown(self, name: str) -> CallToolResult:
        return told(f"there is no tool {name}", is_error=True)

    def notes(self, context: RolloutContext) -> dict[str, object]:
        return context.trace.state


def told(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=is_error)


class Own(ToolsetContract):
    kind: ClassVar[type[Notebook]] = Notebook
    works = "note", {"text": "plum"}
    result = "kept"
    fails = "fail", {}
    waits = "wait", {}
    writes = "note", {"text": "plum"}
    reads = "recall", {}
    points = 5

    def make(self) -> Notebook:
        return self.kind()

    def make_failing(self) -> Notebook:
        return self.kind(cannot_start=True)

    def leftovers(self) -> list[str]:
        return [str(number) for number in OPEN]


PLAIN = {
    "test_a_tool_server_has_a_name",
    "test_the_tools_are_listed",
    "test_a_tool_is_called",
    "test_a_start_that_fails_undoes_itself",
}
"""The tests that each one is given beside its own: all of them would take a while."""

BROKEN: defaultdict[str, list[type[Notebook]]] = defaultdict(list)
ALSO: dict[type[Notebook], set[str]] = {}
"""Which of them fail, too, since they ask for the same and more."""
Kind = TypeVar("Kind", bound=type[Notebook])


def breaks(test: str, *also: str) -> Callable[[Kind], Kind]:
    """Says which test finds it."""

    def found(kind: Kind) -> Kind:
        BROKEN[test].append(kind)
        ALSO[kind] = set(also)
        return kind

    return found


async def own_server(toolset: Notebook, context: RolloutContext) -> str:
    """Serve tools for as long as this event loop lives, whatever becomes of the rollout."""
    hostings = list[Hosting]()
    ready = trio.Event()

    async def host() -> None:
        with suppress(trio.Cancelled):
            async with trio.open_nursery() as nursery:
                hostings.append(Hosting(nursery))
                ready.set()
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await hostings[0].end()

    trio.lowlevel.spawn_system_task(host)
    await ready.wait()
    return (await ToolServers(hostings[0]).serve(toolset, context)).url


@breaks("test_a_tool_server_has_a_name")
class Nameless(Notebook):
    name = ""


@breaks("test_start_returns_the_url_of_a_server", "test_the_tools_are_listed", "test_a_tool_is_called")
class NoUrl(Notebook):
    async def start(self, context: RolloutContext) -> str:
        return (await super().start(context)).removeprefix("http://")


@breaks("test_the_tools_are_listed")
class ListsNothing(Notebook):
    async def list_tools(self) -> Sequence[Tool]:
        return []


@breaks("test_the_tools_are_listed")
class ListsTwice(Notebook):
    async def list_tools(self) -> Sequence[Tool]:
        return [*await super().list_tools(), (await super().list_tools())[2]]


@breaks("test_a_tool_is_called")
class WarmsUp(Notebook):
    warm = False

    async def call_tool(self, name: str, arguments: dict[str, JSON], context: RolloutContext) -> CallToolResult:
        warm, self.warm = self.warm, True
        return await super().call_tool(name, arguments, context) if warm else told("one moment")


@breaks("test_many_calls_are_answered_at_once")
class OneAtATime(Notebook):
    busy = False

    async def call_tool(self, name: str, arguments: dict[str, JSON], context: RolloutContext) -> CallToolResult:
        if self.busy:
            return told("busy", is_error=True)
        self.busy = True
        await wait_all_tasks_blocked(0.01)
        try:
            return await super().call_tool(name, arguments, context)
        finally:
            self.busy = False


@breaks("test_a_tool_that_fails_is_an_error_result")
class HidesFailures(Notebook):
    async def call_tool(self, name: str, arguments: dict[str, JSON], context: RolloutContext) -> CallToolResult:
        came = await super().call_tool(name, arguments, context)
        return told("done") if name == "fail" else came


@breaks("test_a_tool_that_is_not_there_harms_no_other")
class DoesAnything(Notebook):
    def unknown(self, name: str) -> CallToolResult:
        return told("done")


@breaks("test_a_tool_that_is_not_there_harms_no_other")
class MindsOddCalls(Notebook):
    odd = False

    def unknown(self, name: str) -> CallToolResult:
        self.odd = True
        return super().unknown(name)

    def notes(self, context: RolloutContext) -> dict[str, object]:
        if self.odd:
            raise ValueError("that was odd")
        return super().notes(context)


@breaks("test_a_call_that_is_cancelled_harms_no_other")
class MindsCancellations(Notebook):
    cancelled = False

    async def wait(self) -> CallToolResult:
        try:
            return await super().wait()
        except trio.Cancelled:
            self.cancelled = True
            raise

    def notes(self, context: RolloutContext) -> dict[str, object]:
        if self.cancelled:
            raise ValueError("it was cancelled")
        return super().notes(context)


@breaks("test_a_model_uses_the_tools")
class ForNobodysTask(Notebook):
    async def call_tool(self, name: str, arguments: dict[str, JSON], context: RolloutContext) -> CallToolResult:
        return await super().call_tool(name, arguments, context) if context.task.prompt is None else told("no")


@breaks("test_the_server_ends_with_its_rollout")
class Endless(Notebook):
    async def start(self, context: RolloutContext) -> str:
        return await (super().start(context) if self.cannot_start else own_server(self, context))


@breaks("test_a_client_that_stays_does_not_hold_up_the_end")
class WaitsForClients(Notebook):
    waits = False

    async def list_tools(self) -> Sequence[Tool]:
        self.waits = True
        return await super().list_tools()

    async def stop(self) -> None:
        if self.waits:
            await trio.sleep_forever()


@breaks("test_a_call_that_runs_does_not_hold_up_the_end")
class FinishesCalls(Notebook):
    async def wait(self) -> CallToolResult:
        with trio.CancelScope(shield=True):
            await trio.sleep(2 * PATIENCE)
        return told("waited")


@breaks("test_rollouts_have_servers_of_their_own")
class OneForAll(Notebook):
    urls: ClassVar[dict[object, str]] = {}

    async def start(self, context: RolloutContext) -> str:
        loop = trio.lowlevel.current_root_task()
        if loop not in self.urls:
            self.urls[loop] = await super().start(context)
        return self.urls[loop]


@breaks("test_rollouts_do_not_share_what_they_write")
class OneNote(Notebook):
    all_notes: ClassVar[dict[str, object]] = {}

    def notes(self, context: RolloutContext) -> dict[str, object]:
        return self.all_notes


@breaks("test_a_start_that_fails_undoes_itself")
class LeavesHalfAStart(Notebook):
    async def start(self, context: RolloutContext) -> str:
        if self.cannot_start:
            OPEN.add(id(self))
        return await super().start(context)


@breaks("test_a_start_that_is_cancelled_anywhere_undoes_itself")
class LeavesACancelledStart(Notebook):
    async def start(self, context: RolloutContext) -> str:
        try:
            return await super().start(context)
        except trio.Cancelled:
            OPEN.add(id(self))
            raise


def test_a_tool_server_that_keeps_its_contract_passes() -> None:
    assert {name: str(error) for name, error in failures(Own).items()} == {}
    assert not OPEN


@pytest.mark.parametrize(
    ("test", "broken"), [pytest.param(test, kind, id=kind.__name__) for test in BROKEN for kind in BROKEN[test]]
)
def test_what_breaks_a_promise_fails_by_the_test_of_it(test: str, broken: type[Notebook]) -> None:
    class Broken(Own):
        kind = broken
        patience = PATIENCE if broken in (WaitsForClients, FinishesCalls) else Own.patience

    found = {name: outcome(Broken, name) for name in {test, *PLAIN} - ALSO[broken]}
    OPEN.clear()
    assert [name for name, error in found.items() if error is not None] == [test]
    error = found[test]
    assert isinstance(error, ContractError)
    assert said_in_full(error)


def test_there_is_a_broken_tool_server_for_each_test() -> None:
    assert sorted(BROKEN) == sorted(names(Own))
