"""What the tests of a tool server have in common: how it is started and asked, and what may be declared of it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import httpx2
from attrs import frozen

from rollout_fsm.engine import Engine, open_engine
from rollout_fsm.errors import text
from rollout_fsm.harness import Exchange, Harness, HarnessSession
from rollout_fsm.limits import RolloutTimeouts
from rollout_fsm.messages import JSON, Message
from rollout_fsm.models.scripted import ScriptedModel
from rollout_fsm.rollout import Rollout
from rollout_fsm.runtime import Runtime
from rollout_fsm.runtimes import LocalRuntime
from rollout_fsm.task import Task
from rollout_fsm.testing.contract import Contract
from rollout_fsm.testing.expecting import ContractError, expect
from rollout_fsm.tool_client import ToolClient, http_tool_client
from rollout_fsm.toolset import Toolset

if TYPE_CHECKING:
    import mcp_types

__all__ = ["Call", "Served", "ToolsetChecks", "answers", "called", "settled", "unwarned"]

Call: TypeAlias = tuple[str, Mapping[str, JSON]]
"""A tool, and what it is given."""

QUIET = 0.1
"""Seconds without a step of any task, after which a call is taken to have reached its tool."""

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "rollout-fsm-kit", "version": "1"},
    },
}
"""What a client of a tool server says first."""


class Listener(Harness):
    """A harness that only tells what exchange it was given."""

    def __init__(self) -> None:
        self.exchange: Exchange | None = None

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        """A session that says nothing."""
        self.exchange = exchange
        return _Silence()


class _Silence(HarnessSession):
    async def run(self, messages: Sequence[Message] | None) -> None:
        """Nothing."""


@frozen(eq=False)
class Served:
    """A tool server that runs, in a rollout of its own."""

    url: str
    rollout: Rollout

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ToolClient]:
        """A client of it, for a block."""
        async with http_tool_client(self.url) as client:
            yield client


class ToolsetChecks(Contract):
    """The part that a subclass fills in. What is declared absent is skipped, and says so."""

    works: ClassVar[Call]
    """A call that comes to a result, at once."""
    result: ClassVar[str] = ""
    """What the text of that result has in it."""
    fails: ClassVar[Call | None] = None
    """A call in which the tool fails."""
    waits: ClassVar[Call | None] = None
    """A call that does not end by itself, or not soon."""
    writes: ClassVar[Call | None] = None
    """A call that changes what `reads` reads, in this rollout."""
    reads: ClassVar[Call | None] = None
    """A call whose result shows what `writes` has changed."""

    def make(self) -> Toolset:
        """A tool server, as `task.toolsets()` makes it for one rollout."""
        self.unfinished("make(self)", "your toolset")

    def make_failing(self) -> Toolset | None:
        """A tool server whose `start` fails. None: the test of that is skipped."""
        return None

    def runtime(self, name: str) -> Runtime:
        """The box of the rollout, for tool servers that use it."""
        return LocalRuntime(name)

    def settings(self, toolset: Toolset | None = None) -> dict[str, Any]:
        """What a rollout is opened with."""
        served = toolset or self.make()
        return {
            "harness": Listener(),
            "model": ScriptedModel(["done"]),
            "tools": [lambda: served],
            "runtime": self.runtime,
            "timeouts": RolloutTimeouts(
                boot=self.timeout, setup=self.timeout, close=self.patience, release=self.patience
            ),
        }

    @asynccontextmanager
    async def served(self, engine: Engine | None = None) -> AsyncIterator[Served]:
        """A tool server, served to a rollout for a block. Raises a `ContractError` where it does not start."""
        async with open_engine() if engine is None else nullcontext(engine) as within:
            settings = self.settings()
            async with within.rollout(Task(), has_user=True, **settings) as rollout:
                await rollout.open()
                if (exchange := settings["harness"].exchange) is None:
                    why = "; ".join(f"{error.type}: {error.message}" for error in rollout.trace.errors)
                    raise ContractError(f"the rollout could not be opened: {why}", "serve the tools in start()")
                (url,) = exchange.local_tool_urls.values()
                yield Served(url, rollout)


async def called(client: ToolClient, call: Call) -> "mcp_types.CallToolResult":
    """What a call comes to. Raises a `ContractError` where that is no result."""
    try:
        return await client.call_tool(*call)
    except Exception as error:
        raise ContractError(f"the call {call!r} raised {text(error)}", "answer every call with a result") from error


async def settled() -> None:
    """Wait until a call that was made has reached its tool."""
    from trio.testing import wait_all_tasks_blocked  # loads pytest, where there is one

    await wait_all_tasks_blocked(QUIET)


async def answers(url: str) -> bool:
    """Whether a tool server answers under a URL."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        try:
            accept = {"Accept": "application/json, text/event-stream"}
            async with client.stream("POST", url, json=HELLO, headers=accept) as answer:
                return bool(answer.is_success)
        except httpx2.RequestError:
            return False


def unwarned(rollout: Rollout, change: str) -> None:
    """Expect no warning on the trace of a rollout that is over."""
    warnings = [f"{warning.kind}: {warning.message}" for warning in rollout.trace.warnings]
    expect(not warnings, f"the release of the rollout warned: {'; '.join(warnings)}", change)
