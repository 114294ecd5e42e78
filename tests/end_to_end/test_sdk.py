"""The official SDK, unmodified, is a harness: in a box, through the gateway, with a real upstream behind it (L15, L16,
L20, L24, L81)."""

from collections import Counter
from pathlib import Path

import pytest
import trio

from rollout_fsm import Harness, Model, OpenAIModel, ProgramHarness, RolloutLimits, Trace, open_engine
from tests.end_to_end.agents import Telling
from tests.end_to_end.endings import COMPLETED, Ending, ending
from tests.end_to_end.upstream import all_gone, complaint
from tests.models.misbehaving import Heard, answers, chunk, completion, in_turn, serving, streams

pytestmark = pytest.mark.real_time

AGENT = Path(__file__).with_name("sdk_agent.py")


def sdk(what: str) -> Harness:
    return ProgramHarness(["{python}", "-I", "agent.py", what, "{prompt}"], files={"agent.py": AGENT}, name="sdk")


async def run(what: str, model: Model, **limits: int) -> Trace:
    async with open_engine() as engine:
        trace = await engine.run(Telling(prompt="go"), harness=sdk(what), model=model, limits=RolloutLimits(**limits))
    assert trace.is_completed
    return trace


async def test_the_sdk_talks_streams_and_does_not_try_a_refused_turn_again() -> None:
    upstream = in_turn(
        answers(completion("one", prompt_tokens=1, completion_tokens=1)),
        answers(completion("two", prompt_tokens=4, completion_tokens=1)),
    )
    async with serving(upstream) as server:
        trace = await run("talk", OpenAIModel("m", base_url=server.base_url), max_turns=2)
        await all_gone(server)
    assert ending(trace) == Ending(True, "max_turns")
    refusal = [400, "max_turns", "rollout stopped: max_turns"]
    assert trace.info["told"] == ["one", "two", 5, refusal, refusal]
    assert [(node.message.role, node.message.text) for node in trace.nodes] == [
        ("user", "go"),
        ("assistant", "one"),
        ("user", "more"),
        ("assistant", "two"),
    ]
    assert len(trace.branches) == 1
    assert (trace.num_turns, trace.num_input_tokens, trace.num_output_tokens, trace.num_total_tokens) == (2, 3, 2, 5)
    assert len(server.heard) == len(trace.calls) == 2


async def test_the_sdk_tries_again_after_the_upstreams_429_which_counts_as_one_turn() -> None:
    upstream = in_turn(
        answers(complaint("slow down"), status=429),
        streams(chunk("yes", finish="stop")),
    )
    async with serving(upstream) as server:
        trace = await run("once", OpenAIModel("m", base_url=server.base_url), max_turns=1)
        await all_gone(server)
    assert ending(trace) == COMPLETED
    assert trace.info["told"] == "yes"
    failed, answered = trace.calls
    assert (failed.node, failed.error and failed.error.status_code) == (None, 429)
    assert (answered.node, answered.error) == (1, None)
    assert trace.num_turns == 1


async def test_the_sdk_in_many_threads_never_passes_a_limit() -> None:
    """The upstream answers none of them before all that may be in flight are, so that they really are at once."""
    allowed, together = 5, trio.Event()

    async def hold(stream: trio.SocketStream, request: Heard) -> None:
        if len(server.heard) == allowed:
            together.set()
        await together.wait()
        await answers(completion("yes"))(stream, request)

    async with serving(hold) as server:
        trace = await run("parallel", OpenAIModel("m", base_url=server.base_url), max_turns=allowed)
        await all_gone(server)
    assert ending(trace) == Ending(True, "max_turns")
    told = trace.info["told"]
    assert isinstance(told, list)
    assert Counter(map(str, told)) == {"yes": allowed, "[400, 'max_turns', 'rollout stopped: max_turns']": 7}
    assert len(server.heard) == len(trace.calls) == trace.num_turns == allowed
    assert len(trace.branches) == allowed
