"""A process that the agent left behind calls the gateway when nobody should: it is told so, and changes nothing (L13,
L24, L58)."""

import pytest
import trio

from rollout_fsm import (
    LocalRuntime,
    Request,
    RolloutLimits,
    Runtime,
    ScriptedModel,
    Task,
    Trace,
    open_engine,
    reward,
    trace_to_json,
)
from tests.end_to_end.agents import QUICK, agent
from tests.end_to_end.endings import ABORTED, COMPLETED, Ending, ending
from tests.end_to_end.leftovers import Place
from tests.end_to_end.puppet import PUPPET, Strings, strings

pytestmark = pytest.mark.real_time

TALKS = """
with open(os.environ["ROLLOUT_CONVERSATION"]) as file:
    messages = json.load(file)
ask(messages)
"""
LEAVES_A_PUPPET = PUPPET + TALKS + "if len(messages) == 2: leave_a_puppet()"
"""Leaves one behind after the first turn of all."""

NO_SEGMENT = (400, "no segment is running")
CONCLUDED = (400, "rollout concluded")


async def told(held: Strings) -> tuple[int, object]:
    status, error = await held.call()
    return status, error["message"]


def echo(request: Request) -> str:
    return f"to {request.messages[-1].text}"


async def test_between_segments_no_call_is_admitted_and_after_the_end_none_is_either(place: Place) -> None:
    runtime = LocalRuntime("lent", grace=0.05)
    await runtime.start()
    try:
        async with strings() as held, open_engine() as engine:
            async with engine.interaction(
                Task(),
                harness=agent(LEAVES_A_PUPPET, env=held.env, multi_turn=True),
                model=ScriptedModel(echo),
                runtime=runtime,
            ) as interaction:
                assert (await interaction.turn("one")).last_reply == "to one"
                before = len(interaction.trace.calls)
                assert await told(held) == NO_SEGMENT
                assert await told(held) == NO_SEGMENT
                assert len(interaction.trace.calls) == before
                assert (await interaction.turn("two")).last_reply == "to two"
                assert await told(held) == NO_SEGMENT
            trace = interaction.trace
            written = trace_to_json(trace)
            assert await told(held) == CONCLUDED
            another = await engine.run(
                Task(prompt="go"), harness=agent(PUPPET + TALKS), model=ScriptedModel(echo), runtime=runtime
            )
            assert await told(held) == CONCLUDED
            assert trace_to_json(trace) == written
            await runtime.stop()
            await held.gone()
        assert ending(trace) == Ending(True, "user_closed")
        assert [node.message.text for node in trace.nodes] == ["one", "to one", "two", "to two"]
        assert ending(another) == COMPLETED
        assert [node.message.text for node in another.nodes] == ["go", "to go"]
    finally:
        await runtime.stop()
    assert place.processes() == []


async def test_while_its_rollout_is_finalized_and_scored_it_is_told_that_it_is_over(place: Place) -> None:
    got: dict[str, tuple[int, object]] = {}

    async with strings() as held, open_engine() as engine:

        class Asking(Task):
            async def finalize(self, trace: Trace, runtime: Runtime) -> None:
                got["finalize"] = await told(held)

            @reward
            async def late(self) -> float:
                got["scoring"] = await told(held)
                return 1.0

        trace = await engine.run(
            Asking(prompt="go"),
            harness=agent(LEAVES_A_PUPPET, env=held.env),
            model=ScriptedModel(echo),
            runtime=QUICK,
        )
        await held.gone()  # it lived until the box stopped, and not beyond
        assert place.processes() == []
    assert got == {"finalize": CONCLUDED, "scoring": CONCLUDED}
    assert ending(trace) == COMPLETED
    assert (trace.num_turns, len(trace.calls)) == (1, 1)


async def test_in_the_next_segment_what_was_left_behind_is_a_part_of_the_agent(place: Place) -> None:
    """It calls while the agent waits for the model, and both count; once a turn was refused, it is refused too."""
    arrived, go_on = trio.Event(), trio.Event()

    async def reply(request: Request) -> str:
        if request.messages[-1].text == "two":
            arrived.set()
            await go_on.wait()
        return echo(request)

    async with strings() as held, open_engine() as engine:
        async with engine.interaction(
            Task(),
            harness=agent(LEAVES_A_PUPPET, env=held.env, multi_turn=True),
            model=ScriptedModel(reply),
            runtime=QUICK,
            limits=RolloutLimits(max_turns=3),
        ) as interaction:
            await interaction.turn("one")

            async def meanwhile() -> None:
                await arrived.wait()
                status, document = await held.call("from behind")
                assert (status, document["object"]) == (200, "chat.completion")
                assert await told(held) == (400, "rollout stopped: max_turns")
                go_on.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(meanwhile)
                segment = await interaction.turn("two")
            assert (segment.last_reply, segment.terminated) == ("to two", True)
            assert await told(held) == CONCLUDED
        await held.gone()
    trace = interaction.trace
    assert ending(trace) == Ending(True, "max_turns")
    assert trace.num_turns == 3
    assert [[node.message.text for node in branch] for branch in trace.branches] == [
        ["from behind", "to from behind"],
        ["one", "to one", "two", "to two"],
    ]
    assert place.processes() == []


async def test_when_a_later_segment_is_left_early_what_earlier_ones_left_goes_too(place: Place) -> None:
    """The agent is all of its processes (L13); the box is borrowed, so that nothing else ends them."""
    asked = trio.Event()

    async def reply(request: Request) -> str:
        if request.messages[-1].text == "two":
            asked.set()
            await trio.sleep_forever()
        return echo(request)

    runtime = LocalRuntime("lent", grace=0.05)
    await runtime.start()
    try:
        async with (
            strings() as held,
            open_engine() as engine,
            engine.interaction(
                Task(),
                harness=agent(LEAVES_A_PUPPET, env=held.env, multi_turn=True),
                model=ScriptedModel(reply),
                runtime=runtime,
            ) as interaction,
        ):
            await interaction.turn("one")
            await held.there()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(interaction.turn, "two")
                await asked.wait()
                await interaction.rollout.cancel()
            assert place.processes() == []
            await held.gone()
            assert await runtime.alive()
        assert ending(interaction.trace) == ABORTED
    finally:
        await runtime.stop()
