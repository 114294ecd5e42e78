"""An exchange whose user is the caller (L6, L10, L43, L53, L70)."""

from typing import Any

import pytest
import trio
import trio.testing

from rollout_fsm import (
    AssistantMessage,
    Interaction,
    RolloutLimits,
    TurnRefused,
    UserMessage,
    check_trace,
    open_engine,
)
from rollout_fsm.engine import Engine
from tests.world import EchoModel, ScriptedHarness, ScriptedRuntime, World, error_types, raises, returns, world_task


class MineError(Exception):
    """The body's own."""


def begin(engine: Engine, world: World, *, prompt: str | None = None, **settings: Any) -> Interaction:
    defaults: dict[str, Any] = {
        "harness": ScriptedHarness(world),
        "model": EchoModel(world),
        "runtime": lambda name: ScriptedRuntime(world, name),
    }
    return engine.interaction(world_task(world, prompt=prompt), **{**defaults, **settings})


async def test_each_turn_gives_what_the_exchange_gained() -> None:
    world = World()
    async with open_engine(gateway=False) as engine, begin(engine, world) as interaction:
        first = await interaction.turn("one")
        assert (first.messages, first.last_reply, first.terminated) == (
            (UserMessage("one"), AssistantMessage("reply")), "reply", False,
        )  # fmt: skip
        world.script["model"] = returns("other")
        second = await interaction.turn(["two", UserMessage("three")])
        assert second.messages == (UserMessage("two"), UserMessage("three"), AssistantMessage("other"))
        assert second.last_reply == "other"
    trace = interaction.trace
    assert (trace.ok, trace.stop_condition, trace.reward, trace.num_turns) == (True, "user_closed", 1.0, 2)
    assert check_trace(trace) == []


async def test_the_first_turn_of_a_task_with_a_prompt_needs_no_words() -> None:
    world = World()
    async with open_engine(gateway=False) as engine, begin(engine, world, prompt="hello") as interaction:
        segment = await interaction.turn()
        assert segment.messages == (UserMessage("hello"), AssistantMessage("reply"))
        with pytest.raises(TypeError, match="pass messages"):
            await interaction.turn()
        assert interaction.rollout.state == "waiting"


async def test_without_a_prompt_the_user_opens_the_conversation() -> None:
    async with open_engine(gateway=False) as engine, begin(engine, World()) as interaction:
        with pytest.raises(TypeError):
            await interaction.turn()
        assert not (await interaction.turn("hello")).terminated


async def test_a_turn_after_the_end_is_terminated_and_does_nothing() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:  # noqa: SIM117
        async with begin(engine, world, limits=RolloutLimits(max_turns=1)) as interaction:
            assert not (await interaction.turn("one")).terminated
            second = await interaction.turn("two")
            assert (second.messages, second.last_reply, second.terminated) == ((), None, True)
            segments = world.began.count("segment")
            third = await interaction.turn("three")
            assert (third.messages, third.last_reply, third.terminated) == ((), None, True)
            assert world.began.count("segment") == segments
    assert (interaction.trace.ok, interaction.trace.stop_condition) == (True, "max_turns")


@pytest.mark.parametrize("event", ["runtime.start", "task.setup", "session.open"])
async def test_a_failure_to_open_is_data_and_the_first_turn_is_terminated(event: str) -> None:
    world = World(script={event: raises(ValueError)})
    async with open_engine(gateway=False) as engine, begin(engine, world) as interaction:
        segment = await interaction.turn("hello")
        assert (segment.messages, segment.last_reply, segment.terminated) == ((), None, True)
    assert (interaction.trace.ok, len(interaction.trace.errors)) == (False, 1)
    assert world.unreleased() == []


async def test_a_turn_that_fails_is_terminated() -> None:
    world = World(script={"model": raises(ValueError)})
    async with open_engine(gateway=False) as engine, begin(engine, world) as interaction:
        assert (await interaction.turn("hello")).terminated
    assert error_types(interaction.trace) == ["ProviderError"]


async def test_an_exception_of_the_body_is_recorded_under_its_own_type_and_comes_out_bare() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        with pytest.raises(MineError) as raised:  # noqa: PT012
            async with begin(engine, world) as interaction:
                await interaction.turn("one")
                raise MineError("oops")
        assert raised.value.args == ("oops",)
        assert interaction.rollout.state == "failed"
    assert [(error.type, error.message) for error in interaction.trace.errors] == [("MineError", "oops")]
    assert interaction.trace.reward is None
    assert world.unreleased() == []


@pytest.mark.parametrize("during", ["a turn", "the body", "opening"])
async def test_a_cancellation_aborts(during: str) -> None:
    world = World()
    if during == "opening":
        world.script["task.setup"] = trio.sleep_forever
    async with open_engine(gateway=False) as engine:
        with trio.move_on_after(2) as scope:
            interaction = begin(engine, world)
            async with interaction:
                await interaction.turn("one")
                world.script["model"] = trio.sleep_forever
                if during == "a turn":
                    await interaction.turn("two")
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert interaction.rollout.state == "aborted"
    assert (interaction.trace.stop_condition, interaction.trace.errors) == ("cancelled", [])
    assert world.unreleased() == []


async def test_a_turn_outside_of_the_block_is_a_runtime_error() -> None:
    async with open_engine(gateway=False) as engine:
        interaction = begin(engine, World())
        with pytest.raises(RuntimeError, match="async with"):
            await interaction.turn("hello")
        async with interaction:
            pass
        with pytest.raises(RuntimeError, match="async with"):
            await interaction.turn("hello")
    assert interaction.trace.ok


async def test_a_call_between_two_turns_finds_no_segment_running() -> None:
    world = World()
    async with open_engine(gateway=False) as engine, begin(engine, world) as interaction:
        await interaction.turn("one")
        assert world.session is not None
        with pytest.raises(TurnRefused, match="no segment is running"):
            await world.session.turn()
        assert interaction.rollout.time_remaining == float("inf")
    assert interaction.trace.num_turns == 1


async def test_the_caller_may_stop_it_between_two_turns() -> None:
    world = World()
    async with open_engine(gateway=False) as engine, begin(engine, world) as interaction:
        await interaction.turn("one")
        interaction.rollout.stop("solved")
        assert (await interaction.turn("two")).terminated
    assert (interaction.trace.ok, interaction.trace.stop_condition) == (True, "solved")
