"""Each test of the harness's contract fails by the harness that breaks just this of it."""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar, TypeVar

import mcp.client.streamable_http  # noqa: F401  (what the first client of a tool server would import, in a second)
import pytest
import trio
from attrs import define, field

from rollout_fsm.errors import HarnessError, ProviderError, TurnRefused
from rollout_fsm.harness import Exchange, Harness, HarnessSession
from rollout_fsm.messages import Message, Request, Response, SystemMessage, Tool, ToolMessage
from rollout_fsm.runtime import Runtime
from rollout_fsm.strict_json import parse_json
from rollout_fsm.testing import HarnessContract
from rollout_fsm.testing.expecting import ContractError
from rollout_fsm.tool_client import ToolClient, http_tool_client, text_of
from rollout_fsm.trace import Trace
from tests.testing.memory_box import MemoryBox
from tests.testing.running import failures, in_virtual_time, names, outcome, said_in_full

USES_TOOLS = "test_the_model_is_shown_the_tools_and_its_calls_are_run"
GOES_ON = "test_a_conversation_goes_on_with_the_users_messages"
EVERYWHERE = "test_a_rollout_that_is_cancelled_anywhere_is_released"
OPEN: set[int] = set()
"""The sessions that are open."""


class Talker(Harness):
    """A harness in this process, which talks until the model calls no tool."""

    session: ClassVar[type["Talk"]]

    def __init__(self) -> None:
        self.memory: list[Message] = []

    async def setup(self, runtime: Runtime) -> None:
        await runtime.write("ready", "yes")

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        await trio.lowlevel.checkpoint()
        session = self.session(self, exchange, self.opening(exchange))
        OPEN.add(id(session))
        return session

    def opening(self, exchange: Exchange) -> list[Message]:
        system = exchange.system_prompt
        return [*([SystemMessage(system)] if system else []), *exchange.prompt]

    async def cleanup(self, trace: Trace, runtime: Runtime) -> None:
        await trio.lowlevel.checkpoint()


@define(eq=False)
class Talk(HarnessSession):
    harness: Talker
    exchange: Exchange
    said: list[Message]
    segments: int = field(default=0, init=False)

    async def run(self, messages: Sequence[Message] | None) -> None:
        self.segments += 1
        self.said += self.heard(messages or ())
        async with self.tools() as (client, tools):
            while (calls := (await self.turn(tools)).message.tool_calls) and client is not None:
                for call in calls:
                    arguments = parse_json(call.arguments)
                    assert isinstance(arguments, dict)
                    result = self.result(text_of(await client.call_tool(call.name, arguments)))
                    self.said.append(ToolMessage(result, tool_call_id=call.id))

    def heard(self, messages: Sequence[Message]) -> Sequence[Message]:
        return messages

    def result(self, text: str) -> str:
        return text

    @asynccontextmanager
    async def tools(self) -> AsyncIterator[tuple[ToolClient | None, Sequence[Tool]]]:
        for url in self.exchange.local_tool_urls.values():
            async with http_tool_client(url) as client:
                listed = await client.list_tools()
                yield client, [Tool(name=each.name, parameters=each.input_schema) for each in listed]
                return
        yield None, []

    async def turn(self, tools: Sequence[Tool]) -> Response:
        response = await self.exchange.respond(Request(messages=self.said, tools=tools))
        self.said.append(response.message)
        return response

    async def close(self) -> None:
        OPEN.discard(id(self))


Talker.session = Talk


class InMemory(HarnessContract):
    kind: ClassVar[type[Talker]] = Talker
    current: str

    def make(self) -> Talker:
        return self.kind()

    def runtime(self, name: str) -> MemoryBox:
        return MemoryBox(name)

    def leftovers(self) -> list[str]:
        return [str(number) for number in OPEN]

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        (trio.run if self.current == USES_TOOLS else in_virtual_time)(main)


BROKEN: defaultdict[str, list[type[Talker]]] = defaultdict(list)
ALSO: dict[type[Talker], set[str]] = {}
"""What else fails, since it asks for the same and more."""
Kind = TypeVar("Kind", bound=type[Talker] | type[Talk])


def breaks(test: str, *also: str) -> Callable[[Kind], Kind]:
    """Says which test finds it."""

    def found(kind: Kind) -> Kind:
        harness = kind if issubclass(kind, Talker) else type(kind.__name__, (Talker,), {"session": kind})
        BROKEN[test].append(harness)
        ALSO[harness] = set(also)
        return kind

    return found


@breaks("test_a_harness_has_a_name")
class Nameless(Talker):
    name = ""


@breaks(
    "test_the_prompt_reaches_the_model",
    GOES_ON,
    "test_rollouts_at_once_do_not_mix",
    "test_rollouts_one_after_the_other_do_not_mix",
)
class DropsThePrompt(Talker):
    def opening(self, exchange: Exchange) -> list[Message]:
        return super().opening(exchange)[:1]


@breaks("test_the_system_prompt_reaches_the_model")
class DropsTheSystemPrompt(Talker):
    def opening(self, exchange: Exchange) -> list[Message]:
        return list(exchange.prompt)


@breaks("test_a_user_may_open_the_conversation")
class HearsTheUserLater(Talk):
    def heard(self, messages: Sequence[Message]) -> Sequence[Message]:
        return messages if self.segments > 1 else ()


@breaks(GOES_ON)
class Forgets(Talk):
    def heard(self, messages: Sequence[Message]) -> Sequence[Message]:
        if self.segments > 1:
            self.said.clear()
        return messages


@breaks(GOES_ON)
class Monologue(Talk):
    def heard(self, messages: Sequence[Message]) -> Sequence[Message]:
        return messages if self.segments == 1 else ()


@breaks("test_a_refused_turn_ends_the_harness_cleanly")
class MindsRefusals(Talk):
    async def turn(self, tools: Sequence[Tool]) -> Response:
        try:
            return await super().turn(tools)
        except TurnRefused as error:
            raise RuntimeError("the model does not answer") from error


@breaks("test_a_refused_turn_ends_the_harness_cleanly")
class AsksAgainWhenRefused(Talk):
    async def turn(self, tools: Sequence[Tool]) -> Response:
        while True:
            try:
                return await super().turn(tools)
            except TurnRefused:
                await trio.sleep(1)


@breaks("test_a_failure_of_the_model_stays_the_models")
class AsksAgainWhenFailed(Talk):
    async def turn(self, tools: Sequence[Tool]) -> Response:
        while True:
            try:
                return await super().turn(tools)
            except ProviderError:
                await trio.sleep(1)


@breaks("test_rollouts_at_once_do_not_mix")
class OneAtATime(Talker):
    """Keeps the conversation of the newest session on itself."""

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        session = await super().open_session(exchange)
        assert isinstance(session, Talk)
        self.memory[:] = session.said
        session.said = self.memory
        return session


@breaks("test_rollouts_one_after_the_other_do_not_mix")
class Remembers(Talk):
    async def close(self) -> None:
        self.harness.memory += self.said
        await super().close()

    def heard(self, messages: Sequence[Message]) -> Sequence[Message]:
        return [*self.harness.memory, *messages]


@breaks(USES_TOOLS)
class KeepsResults(Talk):
    def result(self, text: str) -> str:
        return "done"


@breaks(USES_TOOLS)
class ShowsNoTools(Talk):
    async def turn(self, tools: Sequence[Tool]) -> Response:
        return await super().turn(())


@breaks("test_a_session_that_never_ran_is_closed")
class ClosesWhatRan(Talk):
    async def close(self) -> None:
        await super().close()
        if not self.segments and self.exchange.trace.transitions[-1].target == "closing":
            raise HarnessError("it never ran")


@breaks("test_a_setup_that_fails_is_cleaned_up")
class CleansUpWhatWorked(Talker):
    async def cleanup(self, trace: Trace, runtime: Runtime) -> None:
        try:
            await runtime.read("ready")
        except FileNotFoundError:
            await super().cleanup(trace, runtime)


@breaks("test_a_cancellation_ends_a_segment_that_waits_for_the_model")
class Deaf(Talk):
    async def turn(self, tools: Sequence[Tool]) -> Response:
        try:
            return await super().turn(tools)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await trio.sleep(InMemory.patience + 1)
            raise


@breaks(EVERYWHERE)
class LeavesHalfASession(Talker):
    async def open_session(self, exchange: Exchange) -> HarnessSession:
        session = await super().open_session(exchange)
        await trio.lowlevel.checkpoint()
        return session


def test_a_harness_that_keeps_its_contract_passes() -> None:
    assert {name: str(error) for name, error in failures(InMemory).items()} == {}
    assert not OPEN


@pytest.mark.parametrize(
    ("test", "broken"), [pytest.param(test, kind, id=kind.__name__) for test in BROKEN for kind in BROKEN[test]]
)
def test_what_breaks_a_promise_fails_by_the_test_of_it(test: str, broken: type[Talker]) -> None:
    class Broken(InMemory):
        kind = broken
        points = InMemory.points if test == EVERYWHERE else 1

    found = failures(Broken)
    OPEN.clear()
    assert {name: str(error) for name, error in found.items() if name not in {test, *ALSO[broken]}} == {}
    assert said_in_full(found[test])


def test_there_is_a_broken_harness_for_each_test() -> None:
    assert sorted(BROKEN) == sorted(names(InMemory))


def test_a_harness_that_cannot_go_on_has_to_say_so() -> None:
    class SaysSo(Talk):
        async def run(self, messages: Sequence[Message] | None) -> None:
            if self.segments:
                raise HarnessError("this harness has one segment")
            await super().run(messages)

    class OneSegment(InMemory):
        resumes = False

    class Stops(OneSegment):
        kind = type("Stops", (Talker,), {"session": SaysSo})

    assert isinstance(outcome(OneSegment, GOES_ON), ContractError)
    assert outcome(Stops, GOES_ON) is None
