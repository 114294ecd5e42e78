"""What a rollout may spend: the caps before each turn, parallel calls, unknown usage, and what settings are accepted
(L2, L15)."""

import math
from typing import Any

import pytest
import trio

from rollout_fsm import (
    AssistantMessage,
    ProviderError,
    Request,
    Response,
    RolloutLimits,
    RolloutPolicy,
    RolloutTimeouts,
    TurnRefused,
    Usage,
)
from rollout_fsm.limits import Bounds
from tests.world import Act, World, error_types, play, raises, sleeps, warnings, world_task


def growing(world: World) -> Act:
    """A model whose n-th call has a prompt of 6n + 4 tokens and answers with 5: each prompt adds one token."""

    async def model() -> Response:
        await trio.lowlevel.checkpoint()
        usage = Usage(prompt_tokens=4 + 6 * len(world.seen), completion_tokens=5)
        return Response(message=AssistantMessage(f"reply {len(world.seen)}"), usage=usage)

    return model


@pytest.mark.parametrize(
    ("limits", "turns", "condition"),
    [
        ({"max_turns": 0}, 0, "max_turns"),
        ({"max_turns": 1}, 1, "max_turns"),
        ({"max_turns": 3}, 3, "max_turns"),
        ({"max_turns": 4}, 4, None),
        ({"max_input_tokens": 0}, 0, "max_input_tokens"),
        ({"max_input_tokens": 10}, 1, "max_input_tokens"),
        ({"max_input_tokens": 11}, 2, "max_input_tokens"),
        ({"max_output_tokens": 0}, 0, "max_output_tokens"),
        ({"max_output_tokens": 5}, 1, "max_output_tokens"),
        ({"max_output_tokens": 6}, 2, "max_output_tokens"),
        ({"max_total_tokens": 0}, 0, "max_total_tokens"),
        ({"max_total_tokens": 15}, 1, "max_total_tokens"),
        ({"max_total_tokens": 16}, 2, "max_total_tokens"),
        ({"max_total_tokens": 1000}, 4, None),
        ({}, 4, None),
        ({"max_turns": 2, "max_input_tokens": 11, "max_output_tokens": 10, "max_total_tokens": 21}, 2, "max_turns"),
        ({"max_input_tokens": 11, "max_output_tokens": 10, "max_total_tokens": 21}, 2, "max_input_tokens"),
        ({"max_output_tokens": 10, "max_total_tokens": 21}, 2, "max_output_tokens"),
    ],
)
async def test_a_cap_that_is_met_refuses_the_next_turn(
    limits: dict[str, int], turns: int, condition: str | None
) -> None:
    world = World(turns=4)
    world.script["model"] = growing(world)
    trace = await play(world, limits=RolloutLimits(**limits))
    assert (trace.num_turns, len(world.seen)) == (turns, turns)
    assert trace.stop_condition == (condition or "agent_completed")
    assert (trace.ok, trace.reward) == (True, 1.0)
    assert trace.warnings == []
    if turns:
        assert trace.num_input_tokens == 10 + (turns - 1)
        assert trace.num_output_tokens == 5 * turns
        assert trace.num_total_tokens == 6 * turns + 4 + 5


async def ask(world: World, told: list[str]) -> None:
    try:
        await world.exchange.respond(Request(messages=world.exchange.prompt))
        told.append("reply")
    except TurnRefused as refused:
        told.append(refused.condition or str(refused))
    except ProviderError:
        told.append("failed")


@pytest.mark.parametrize("cap", range(7))
async def test_parallel_calls_never_pass_the_cap(cap: int) -> None:
    told: list[str] = []

    async def segment() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask, world, told)

    world = World(script={"segment": segment, "model": sleeps(1)})
    trace = await play(world, limits=RolloutLimits(max_turns=cap))
    assert sorted(told) == ["max_turns"] * max(0, 5 - cap) + ["reply"] * min(5, cap)
    assert trace.num_turns == len(world.seen) == min(5, cap)


async def test_token_caps_are_soft_by_the_turns_in_flight() -> None:
    told: list[str] = []

    async def segment() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask, world, told)
        await ask(world, told)

    world = World(script={"segment": segment, "model": sleeps(1)})
    trace = await play(world, limits=RolloutLimits(max_output_tokens=1))
    assert told == ["reply"] * 3 + ["max_output_tokens"]
    assert trace.num_output_tokens == 15


async def test_a_call_that_fails_gives_its_place_back() -> None:
    told: list[str] = []

    async def segment() -> None:
        for _ in range(4):
            await ask(world, told)
            world.script.pop("model", None)

    world = World(script={"segment": segment, "model": raises(ProviderError, "down")})
    trace = await play(world, limits=RolloutLimits(max_turns=2))
    assert told == ["failed", "reply", "reply", "max_turns"]
    assert trace.num_turns == 2


async def test_a_call_in_flight_holds_its_place_and_a_refusal_stands_when_it_fails() -> None:
    told: list[str] = []

    async def fails_late() -> None:
        await trio.sleep(1)
        raise ProviderError("down")

    async def segment() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ask, world, told)
        await ask(world, told)

    world = World(script={"segment": segment, "model": fails_late})
    trace = await play(world, limits=RolloutLimits(max_turns=1))
    assert told == ["max_turns", "failed", "max_turns"]
    assert (trace.num_turns, trace.stop_condition, trace.ok) == (0, "max_turns", True)


async def test_a_call_that_the_harness_gave_up_gives_its_place_back() -> None:
    told: list[str] = []

    async def segment() -> None:
        with trio.move_on_after(1):
            await ask(world, told)
        del world.script["model"]
        await ask(world, told)

    world = World(script={"segment": segment, "model": trio.sleep_forever})
    trace = await play(world, limits=RolloutLimits(max_turns=1))
    assert told == ["reply"]
    assert trace.stop_condition == "agent_completed"


# ---- unknown usage


def silent(world: World) -> Act:
    async def model() -> Response:
        await trio.lowlevel.checkpoint()
        return Response(message=AssistantMessage(f"reply {len(world.seen)}"))

    return model


TOKEN_CAPS = ("max_input_tokens", "max_output_tokens", "max_total_tokens")


@pytest.mark.parametrize("cap", TOKEN_CAPS)
async def test_a_reply_without_usage_under_a_token_cap_is_said_once(cap: str) -> None:
    world = World(turns=3)
    world.script["model"] = silent(world)
    trace = await play(world, limits=RolloutLimits(**{cap: 1}))
    assert (trace.ok, trace.num_turns, trace.usage) == (True, 3, None)
    assert len(warnings(trace)) == len(warnings(trace, "unknown_usage")) == 1
    assert "'echo'" in warnings(trace)[0]


@pytest.mark.parametrize("cap", TOKEN_CAPS)
async def test_a_reply_without_usage_fails_its_call_where_the_policy_says_so(cap: str) -> None:
    world = World()
    world.script["model"] = silent(world)
    trace = await play(world, limits=RolloutLimits(**{cap: 1}), policy=RolloutPolicy(unknown_usage="fail"))
    assert error_types(trace) == ["ProviderError"]
    assert "no usage" in trace.errors[0].message
    assert (trace.num_turns, trace.warnings) == (0, [])


@pytest.mark.parametrize("policy", ["warn", "fail"])
@pytest.mark.parametrize("limits", [RolloutLimits(), RolloutLimits(max_turns=5)])
async def test_without_a_token_cap_nothing_is_said(limits: RolloutLimits, policy: Any) -> None:
    world = World()
    world.script["model"] = silent(world)
    trace = await play(world, limits=limits, policy=RolloutPolicy(unknown_usage=policy))
    assert (trace.ok, trace.warnings, trace.num_turns) == (True, [], 1)


# ---- settings


@pytest.mark.parametrize("name", ["max_turns", *TOKEN_CAPS])
@pytest.mark.parametrize("value", [-1, 1.0, True, "3", math.inf, math.nan])
def test_a_cap_is_a_whole_number(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        RolloutLimits(**{name: value})


NAMES = ("boot", "setup", "agent", "finalize", "scoring", "hook", "drain", "close", "release")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-1, -0.1, True, "3", math.nan, -math.inf])
def test_a_timeout_is_a_number_of_seconds(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        RolloutTimeouts(**{name: value})


@pytest.mark.parametrize("name", NAMES)
def test_only_the_agent_may_have_no_bound(name: str) -> None:
    if name == "agent":
        assert Bounds.settle(RolloutTimeouts(agent=math.inf), None).agent == math.inf
        return
    with pytest.raises(ValueError, match=name):
        RolloutTimeouts(**{name: math.inf})


@pytest.mark.parametrize("name", ["agent_expiry", "no_progress", "unknown_usage"])
def test_a_policy_is_one_of_its_words(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RolloutPolicy(**{name: "sometimes"})  # type: ignore[arg-type]


def test_the_defaults_are_those_of_the_contract() -> None:
    bounds = Bounds.settle(None, None)
    assert [getattr(bounds, name) for name in NAMES] == [600, 600, math.inf, 300, 600, 60, 30, 60, 60]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("run", "task", "settled"), [(1, 2, 1), (1, None, 1), (None, 2, 2), (0, 2, 0), (0.5, None, 0.5)]
)
def test_a_bound_is_the_runs_where_set_else_the_tasks(name: str, run: Any, task: Any, settled: float) -> None:
    bounds = Bounds.settle(RolloutTimeouts(**{name: run}), RolloutTimeouts(**{name: task}))
    assert getattr(bounds, name) == settled
    others = Bounds.settle(None, None)
    assert all(getattr(bounds, other) == getattr(others, other) for other in NAMES if other != name)


async def test_the_tasks_own_bounds_hold_where_the_run_sets_none() -> None:
    world = World(script={"task.setup": trio.sleep_forever})
    trace = await play(world, task=world_task(world, timeouts=RolloutTimeouts(setup=3)))
    assert "timeouts.setup = 3 s" in trace.errors[0].message


def test_a_bound_is_settled_as_it_was_given_whatever_equal_one_was_settled_before() -> None:
    given = [60.0, 60, 60.0]
    settled = [Bounds.settle(RolloutTimeouts(setup=seconds), RolloutTimeouts(setup=7)).setup for seconds in given]
    assert list(map(repr, settled)) == list(map(repr, given))
