"""Many rollouts share one gateway, and none of them ever sees anything of another's (L24, L42, L58)."""

import re
from collections.abc import Callable, Mapping, Sequence

import pytest
import trio

from rollout_fsm import (
    ChatHarness,
    Exchange,
    Harness,
    HarnessSession,
    Message,
    Request,
    ScriptedModel,
    Task,
    Trace,
    UserMessage,
    open_engine,
)
from tests.end_to_end.agents import agent
from tests.end_to_end.endings import COMPLETED, ending
from tests.gateway.raw import Raw, body_of, post

pytestmark = pytest.mark.real_time

AT_ONCE = 64
TURNS = 3

THREE_TURNS = """
mine = sys.argv[1]
messages = [{"role": "user", "content": mine}]
for turn in range(3):
    if turn:
        messages.append({"role": "user", "content": f"{mine} goes on {turn}"})
    said = ask(messages)
    if said != f"to {mine}: {turn}":
        sys.exit(f"{mine} was told {said!r}")
"""
"""An agent that knows what it is to be told."""


class ThreeTurns(ChatHarness):
    """The same in this process."""

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        chat = await super().open_session(exchange)
        mine = exchange.prompt[0].text

        class Session(HarnessSession):
            async def run(self, messages: Sequence[Message] | None) -> None:
                for turn in range(TURNS):
                    await chat.run([UserMessage(f"{mine} goes on {turn}")] if turn else None)
                    assert exchange.trace.last_reply == f"to {mine}: {turn}"

        return Session()


HARNESSES: Mapping[str, Callable[[], Harness]] = {"program": lambda: agent(THREE_TURNS), "in process": ThreeTurns}


class Meeting:
    """A model that answers nobody's turn before everybody has asked for theirs, and answers the last one first."""

    def __init__(self) -> None:
        self._waiting: list[trio.Event] = []
        self.most = 0
        self.model = ScriptedModel(self._reply)

    async def _reply(self, request: Request) -> str:
        place = len(request.messages) // 2
        mine = request.messages[0].text
        turn = trio.Event()
        self._waiting.append(turn)
        self.most = max(self.most, len(self._waiting))
        if len(self._waiting) == AT_ONCE:
            waiting, self._waiting = self._waiting, []
            for other in reversed(waiting):
                other.set()
        await turn.wait()
        return f"to {mine}: {place}"


def names(trace: Trace) -> set[str]:
    """Whose words are on the trace."""
    return {name for node in trace.nodes for name in re.findall(r"rollout-\d+", node.message.text)}


@pytest.mark.parametrize("harness", HARNESSES.values(), ids=HARNESSES)
async def test_rollouts_at_once_never_see_each_others_conversation(harness: Callable[[], Harness]) -> None:
    meeting = Meeting()
    prompts = [f"rollout-{number:03}" for number in range(AT_ONCE)]
    async with (
        open_engine() as engine,
        engine.run_all(
            [Task(prompt=prompt) for prompt in prompts], harness=harness(), model=meeting.model, max_concurrent=AT_ONCE
        ) as traces,
    ):
        finished = {str(trace.task.data["prompt"]): trace async for trace in traces}
    assert meeting.most == AT_ONCE
    assert sorted(finished) == prompts
    for prompt, trace in finished.items():
        assert ending(trace) == COMPLETED, trace.errors
        assert names(trace) == {prompt}
        assert [node.message.text for node in trace.nodes if node.sampled] == [f"to {prompt}: {n}" for n in range(3)]
        assert len(trace.branches) == 1
        assert (trace.num_turns, len(trace.calls)) == (TURNS, TURNS)


class HandsOut(Harness):
    """A harness whose agent is the test: it hands out the way to the model, and yields when it is told to."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.all_there = trio.Event()
        self.done = trio.Event()

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        harness = self

        class Session(HarnessSession):
            async def run(self, messages: Sequence[Message] | None) -> None:
                harness.exchanges.append(exchange)
                if len(harness.exchanges) == AT_ONCE:
                    harness.all_there.set()
                await harness.done.wait()

        return Session()


async def test_one_connection_that_speaks_for_every_rollout_in_turn_mixes_nothing_up() -> None:
    def reply(request: Request) -> str:
        return f"to {request.messages[0].text}"

    harness = HandsOut()
    prompts = [f"rollout-{number:03}" for number in range(AT_ONCE)]
    finished: dict[str, Trace] = {}
    async with open_engine() as engine, trio.open_nursery() as nursery:

        async def collect() -> None:
            tasks = [Task(prompt=prompt) for prompt in prompts]
            async with engine.run_all(tasks, harness=harness, model=ScriptedModel(reply)) as traces:
                async for trace in traces:
                    finished[str(trace.task.data["prompt"])] = trace

        nursery.start_soon(collect)
        await harness.all_there.wait()
        assert len({exchange.secret for exchange in harness.exchanges}) == AT_ONCE
        host, port = engine.url.removeprefix("http://").removesuffix("/v1").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            connection = Raw(stream)
            for turn in range(2):
                for exchange in harness.exchanges if turn else reversed(harness.exchanges):
                    mine = exchange.prompt[0].text
                    answer = await connection.ask(post(exchange.secret, body_of(f"{mine} says {turn}")))
                    said = answer.document["choices"][0]["message"]["content"]
                    assert (answer.status, said) == (200, f"to {mine} says {turn}")
        harness.done.set()
    assert sorted(finished) == prompts
    for prompt, trace in finished.items():
        assert ending(trace) == COMPLETED
        assert names(trace) == {prompt}
        assert trace.num_turns == 2
