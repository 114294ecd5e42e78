"""An exchange whose user is the caller (L6, L10, L43, L53, L70)."""

from typing import Any

import pytest
import trio
import trio.testing

from rollout_fsm import (
    AssistantMessage,
    Interaction,
    RolloutBusyError,
    RolloutLimits,
    RolloutTimeouts,
    TurnRefused,
    UserMessage,
    check_trace,
    open_engine,
)
from rollout_fsm.engine import Engine
from tests.world import (
    EchoModel,
    ScriptedHarness,
    ScriptedRuntime,
    World,
    error_types,
    raises,
    returns,
    sleeps,
    world_task,
)


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


# ---- what can be said


SAID: list[tuple[Any, tuple[Any, ...]]] = [
    ("one", (UserMessage("one"),)),
    (UserMessage("one"), (UserMessage("one"),)),
    (["one", UserMessage("two")], (UserMessage("one"), UserMessage("two"))),
    ({"role": "user", "content": "one"}, (UserMessage("one"),)),
    ([{"role": "user", "content": "one"}, "two"], (UserMessage("one"), UserMessage("two"))),
    ("", (UserMessage(""),)),
]


@pytest.mark.parametrize("prompt", [None, "hello"])
@pytest.mark.parametrize(("said", "messages"), SAID)
async def test_a_turn_says_text_messages_or_plain_dicts(
    said: Any, messages: tuple[Any, ...], prompt: str | None
) -> None:
    async with open_engine(gateway=False) as engine, begin(engine, World(), prompt=prompt) as interaction:
        segment = await interaction.turn(said)
    opening = () if prompt is None else (UserMessage("hello"),)
    assert segment.messages == (*opening, *messages, AssistantMessage("reply"))
    assert segment.last_reply == "reply"


async def test_a_generator_is_said_once() -> None:
    async with open_engine(gateway=False) as engine, begin(engine, World()) as interaction:
        segment = await interaction.turn(text for text in ("one", "two"))
    assert segment.messages[:2] == (UserMessage("one"), UserMessage("two"))


WRONG: list[tuple[Any, type[Exception], str]] = [
    ((), TypeError, "there is nothing to say: the task's prompt was taken, or it has none; pass messages"),
    (None, TypeError, "there is nothing to say"),
    (3, TypeError, "expected text, a message, or a dict"),
    (b"hi", TypeError, "decode them first"),
    ({"role": "user"}, ValueError, "the dict is no message: content: missing"),
    ({"role": "usr", "content": "hi"}, ValueError, "role is assistant, system, tool, user, not 'usr'"),
    (["hi", {"role": "user", "contnet": "hi"}], ValueError, r"messages\[1\] is no message"),
]


@pytest.mark.parametrize(("said", "kind", "words"), WRONG)
async def test_what_cannot_be_said_is_refused_with_what_to_do_and_nothing_has_changed(
    said: Any, kind: type[Exception], words: str
) -> None:
    world = World()
    async with open_engine(gateway=False) as engine, begin(engine, world) as interaction:
        with pytest.raises(kind, match=words):
            await interaction.turn(said)
        assert interaction.rollout.state == "waiting"
        assert (interaction.trace.nodes, interaction.trace.errors) == ([], [])
        assert not (await interaction.turn("hello")).terminated
    assert (interaction.trace.ok, interaction.trace.num_turns) == (True, 1)
    assert check_trace(interaction.trace) == []


# ---- alternation, and wrong use


async def test_a_second_turn_while_one_goes_on_is_told_to_wait_and_disturbs_nothing() -> None:
    world = World(script={"model": sleeps(5)})
    async with open_engine(gateway=False) as engine, begin(engine, world) as interaction:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interaction.turn, "one")
            await trio.sleep(1)
            with pytest.raises(RolloutBusyError, match="user and agent speak in turns") as refused:
                await interaction.turn("two")
            assert "Await that turn, then say what comes next" in str(refused.value)
        assert (await interaction.turn("three")).messages[0] == UserMessage("three")
    assert [node.message.text for node in interaction.trace.nodes] == ["one", "reply", "three", "reply"]
    assert (interaction.trace.ok, interaction.trace.errors) == (True, [])


async def test_a_second_turn_while_one_waits_for_its_permit_is_told_to_wait_too() -> None:
    world, other = World(script={"model": sleeps(5)}), World(script={"model": sleeps(5)})
    async with (
        open_engine(gateway=False, max_active_segments=1) as engine,
        begin(engine, world) as first,
        begin(engine, other) as second,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(first.turn, "one")
        await trio.sleep(1)
        nursery.start_soon(second.turn, "one")
        await trio.sleep(1)
        assert second.rollout.state == "waiting"
        with pytest.raises(RolloutBusyError, match="speak in turns"):
            await second.turn("two")
    assert [node.message.text for node in second.trace.nodes] == ["one", "reply"]


async def test_after_a_turn_that_was_cancelled_or_refused_another_may_be_tried() -> None:
    world = World()
    async with open_engine(gateway=False) as engine, begin(engine, world) as interaction:
        for _ in range(2):
            with pytest.raises(TypeError):
                await interaction.turn()
        with trio.move_on_after(1):
            world.script["model"] = trio.sleep_forever
            await interaction.turn("one")
        segment = await interaction.turn("two")
    assert (segment.messages, segment.last_reply, segment.terminated) == ((), None, True)
    assert interaction.rollout.state == "aborted"


async def test_a_turn_before_and_after_the_block_says_which_and_what_to_write() -> None:
    async with open_engine(gateway=False) as engine:
        interaction = begin(engine, World())
        with pytest.raises(RuntimeError, match=r"before the block; write: async with engine\.interaction"):
            await interaction.turn("hello")
        async with interaction:
            await interaction.turn("hello")
        with pytest.raises(RuntimeError, match=r"after the block: the interaction .* is over, .* open another"):
            await interaction.turn("hello")
    assert interaction.trace.num_turns == 1


async def test_an_interaction_is_entered_once_and_entering_it_again_does_it_no_harm() -> None:
    async with open_engine(gateway=False) as engine:
        interaction = begin(engine, World())
        async with interaction:
            await interaction.turn("one")
            with pytest.raises(RuntimeError, match="entered once"):
                await interaction.__aenter__()
            assert not (await interaction.turn("two")).terminated
        with pytest.raises(RuntimeError, match="entered once"):
            await interaction.__aenter__()
    assert (interaction.trace.ok, interaction.trace.num_turns) == (True, 2)


@pytest.mark.parametrize("wrong", [3, {"role": "user"}])
async def test_even_a_terminated_interaction_refuses_what_cannot_be_said(wrong: Any) -> None:
    async with open_engine(gateway=False) as engine:  # noqa: SIM117
        async with begin(engine, World(), limits=RolloutLimits(max_turns=0)) as interaction:
            assert (await interaction.turn("one")).terminated
            with pytest.raises((TypeError, ValueError)):
                await interaction.turn(wrong)
            assert (await interaction.turn()).terminated  # nothing is said, and nothing would be done with it


# ---- leaving


async def test_breaking_off_closes_as_the_user_and_scores() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        async with begin(engine, world) as interaction:
            for text in ("one", "two", "three"):
                await interaction.turn(text)
                if text == "two":
                    break
        assert interaction.rollout.state == "completed"
    assert (interaction.trace.stop_condition, interaction.trace.reward) == ("user_closed", 1.0)
    assert world.unreleased() == []


async def test_leaving_without_a_word_closes_as_the_user_too() -> None:
    async with open_engine(gateway=False) as engine, begin(engine, World()) as interaction:
        pass
    assert (interaction.trace.ok, interaction.trace.stop_condition) == (True, "user_closed")
    assert interaction.trace.num_turns == 0


async def test_an_exception_while_the_agent_speaks_is_the_owners_failure_once_the_turn_has_ended() -> None:
    world = World(script={"model": sleeps(5)})
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        with pytest.raises(MineError):  # noqa: PT012
            async with begin(engine, world) as interaction:
                nursery.start_soon(interaction.turn, "one")
                await trio.sleep(1)
                raise MineError("oops")
        assert trio.current_time() >= 5
        assert interaction.rollout.state == "failed"
    assert error_types(interaction.trace) == ["MineError"]
    assert interaction.trace.num_turns == 1
    assert world.unreleased() == []


async def test_an_exception_after_the_exchange_has_ended_fails_it_too() -> None:
    async with open_engine(gateway=False) as engine:
        with pytest.raises(MineError):  # noqa: PT012
            async with begin(engine, World(), limits=RolloutLimits(max_turns=0)) as interaction:
                assert (await interaction.turn("one")).terminated
                raise MineError
    assert (error_types(interaction.trace), interaction.trace.ok) == (["MineError"], False)
    assert interaction.trace.stop_condition == "max_turns"


# ---- two that talk to each other


async def talk(first: Interaction, second: Interaction, rounds: int) -> None:
    said: str | None = "hello"
    for _ in range(rounds):
        for speaker in (first, second):
            segment = await speaker.turn(said)
            assert not segment.terminated
            said = segment.last_reply


@pytest.mark.parametrize("permits", [None, 1])
async def test_two_that_talk_to_each_other_burn_only_their_own_budgets(permits: int | None) -> None:
    quick, slow = World(script={"model": sleeps(2)}), World(script={"model": sleeps(5)})
    bounds = {"timeouts": RolloutTimeouts(agent=21)}
    async with (
        open_engine(gateway=False, max_active_segments=permits) as engine,
        begin(engine, quick, **bounds) as first,
        begin(engine, slow, **bounds) as second,
    ):
        await talk(first, second, 4)
        assert first.rollout.time_remaining == pytest.approx(21 - 4 * 2)
        assert second.rollout.time_remaining == pytest.approx(21 - 4 * 5)
        assert trio.current_time() >= 28
        await trio.sleep(1000)  # nor does the user's thinking
        assert not (await first.turn("still there?")).terminated
    assert [one.trace.ok for one in (first, second)] == [True, True]
    assert [check_trace(one.trace) for one in (first, second)] == [[], []]


@pytest.mark.parametrize("permits", [None, 1])
async def test_one_whose_agent_asks_the_other_burns_its_own_budget_meanwhile_and_comes_back(
    permits: int | None,
) -> None:
    world, other = World(), World(script={"model": sleeps(3)})
    async with (
        open_engine(gateway=False, max_active_segments=permits) as engine,
        begin(engine, other, timeouts=RolloutTimeouts(agent=10)) as expert,
        begin(engine, world, timeouts=RolloutTimeouts(agent=10)) as asker,
    ):

        async def ask() -> str:
            return str((await expert.turn("what now?")).last_reply)

        world.script["model"] = ask
        assert (await asker.turn("go")).last_reply == "reply"
        assert asker.rollout.time_remaining == pytest.approx(7)
        assert expert.rollout.time_remaining == pytest.approx(7)
    assert [one.trace.ok for one in (asker, expert)] == [True, True]


@pytest.mark.parametrize("permits", [None, 1])
async def test_one_that_runs_out_of_its_budget_ends_alone(permits: int | None) -> None:
    quick, slow = World(script={"model": sleeps(2)}), World(script={"model": sleeps(5)})
    bounds = {"timeouts": RolloutTimeouts(agent=8)}
    async with (
        open_engine(gateway=False, max_active_segments=permits) as engine,
        begin(engine, quick, **bounds) as first,
        begin(engine, slow, **bounds) as second,
    ):
        await talk(first, second, 1)
        assert not (await first.turn("two")).terminated
        assert (await second.turn("two")).terminated
        assert not (await first.turn("three")).terminated
    assert (first.trace.ok, second.trace.ok) == (True, False)
    assert error_types(second.trace) == ["HarnessError"]
    assert second.trace.errors[0].message.startswith("agent timeout")


async def test_two_that_wait_for_each_other_through_tasks_of_their_own_go_on_with_one_permit() -> None:
    worlds = [World(script={"model": sleeps(1)}), World(script={"model": sleeps(1)})]
    to_first, first_hears = trio.open_memory_channel[str](1)
    to_second, second_hears = trio.open_memory_channel[str](1)
    turns = 0

    async def side(
        interaction: Interaction, hears: trio.MemoryReceiveChannel[str], says: trio.MemorySendChannel[str]
    ) -> None:
        nonlocal turns
        async with hears, says:
            for _ in range(5):
                segment = await interaction.turn(await hears.receive())
                turns += 1
                if turns < 10:
                    await says.send(str(segment.last_reply))

    async with (
        open_engine(gateway=False, max_active_segments=1) as engine,
        begin(engine, worlds[0]) as first,
        begin(engine, worlds[1]) as second,
        trio.open_nursery() as nursery,
    ):
        to_first.send_nowait("hello")
        nursery.start_soon(side, first, first_hears, to_second.clone())
        nursery.start_soon(side, second, second_hears, to_first.clone())
        to_first.close()
        to_second.close()
    assert turns == 10
    assert [one.trace.num_turns for one in (first, second)] == [5, 5]
