"""What no scenario can play or tell: its driver opens at once, its harness is never entered, and its outcome holds
neither the reasons on a trace nor the words in which a call is refused. `by_hand` says which mutants each is for."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import pytest
import trio

from rollout_fsm import (
    ProviderError,
    Rollout,
    RolloutLimits,
    RolloutTimeouts,
    RuntimeLifetimeError,
    TurnRefused,
    open_engine,
)
from tests.world import ScriptedHarness, ScriptedSession, World, error_types, mint, play, raises, returns, warnings


def path(transitions: object) -> list[tuple[str, str, str]]:
    return [(taken.trigger, taken.source, taken.target) for taken in transitions]  # type: ignore[attr-defined]


async def test_a_failure_reported_before_open_fails_the_rollout() -> None:
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, World())
        rollout.fail(ValueError("the row is broken"))
        assert rollout.state == "failing"
        assert not await rollout.step("go on")
        trace = await rollout.close()
    assert (trace.stop_condition, error_types(trace)) == ("error", ["ValueError"])
    assert path(trace.transitions) == [
        ("errored", "created", "failing"),
        ("close", "failing", "discarding"),
        ("released", "discarding", "failed"),
    ]


def losing(then: Callable[[], Awaitable[object]]) -> type[ScriptedHarness]:
    """A harness that is entered, while the owner stops the borrowed runtime."""

    class Losing(ScriptedHarness):
        async def __aenter__(self) -> "Losing":
            assert self.world.runtime is not None
            self.world.runtime._stopped = True
            await trio.lowlevel.checkpoint()
            await then()
            return self

        async def __aexit__(self, *_: object) -> None:
            """It holds nothing."""

    return Losing


async def booted_on_a_stopped_box(then: Callable[[], Awaitable[object]], trigger: str) -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(
            engine, world, borrowed=True, harness=losing(then)(world), has_user=True, timeouts=RolloutTimeouts(boot=5)
        )
        with pytest.raises(RuntimeLifetimeError):
            await rollout.open()
        trace = rollout.trace
        assert (rollout.state, trace.stop_condition, trace.errors, warnings(trace)) == ("aborted", None, [], [])
        assert path(trace.transitions) == [
            ("open", "created", "booting"),
            (trigger, "booting", "aborting"),
            ("released", "aborting", "aborted"),
        ]


async def test_a_boot_that_fails_on_a_stopped_box_is_the_callers_bug() -> None:
    await booted_on_a_stopped_box(raises(OSError, "the box is gone"), "errored")


async def test_a_boot_that_outlives_its_bound_on_a_stopped_box_is_the_callers_bug() -> None:
    await booted_on_a_stopped_box(trio.sleep_forever, "timed_out")


SURVIVED = "the agent could not be killed; a live one is never finalized"


async def failed_because(trigger: str, world: World) -> None:
    """The agent survives the end of its segment, and that is why the rollout failed, whatever else is wrong."""
    world.script["runtime.kill"] = returns(False)
    trace = await play(world)
    assert world.state == "failed"
    ended = next(taken for taken in trace.transitions if taken.target == "failing")
    assert (ended.trigger, ended.reason) == (trigger, SURVIVED)


async def test_that_the_agent_survived_a_crash_is_the_reason_on_the_trace() -> None:
    await failed_because("errored", World({"segment": raises(OSError, "crashed")}))


async def test_that_the_agent_survived_a_failed_call_is_the_reason_on_the_trace() -> None:
    await failed_because("segment_ended", World({"model": raises(ProviderError, "down")}))


async def refusals(world: World, *moments: str, **settings: Any) -> list[str]:
    """In which words a model call is refused at each of these moments, and after all of them."""
    said: list[str] = []
    sessions: list[ScriptedSession] = []

    async def late() -> None:
        with pytest.raises(TurnRefused) as refused:
            await sessions[0].turn("one more")
        said.append(str(refused.value))

    async def act() -> float:
        await late()
        return 1.0

    async def driven(rollout: Rollout) -> None:
        await rollout.open()
        assert world.session is not None
        sessions.append(world.session)
        await rollout.step()
        await late()  # stopped, or failing
        await rollout.close()
        await late()  # final

    world.script.update(dict.fromkeys(moments, act))
    async with open_engine(gateway=False) as engine:
        await driven(mint(engine, world, **settings))
    return said


async def test_a_call_after_a_stopped_exchange_is_told_that_the_rollout_is_concluded() -> None:
    moments = ("session.close", "finalize", "score.good", "harness.cleanup")
    limits = RolloutLimits(max_turns=0)
    assert await refusals(World(), *moments, limits=limits) == ["rollout concluded"] * 6


async def test_a_call_after_a_failed_exchange_is_told_that_the_rollout_is_concluded() -> None:
    world = World({"model": raises(ProviderError, "down")})
    assert await refusals(world, "session.close", "harness.cleanup") == ["rollout concluded"] * 4


async def test_a_call_after_a_refused_one_is_told_what_stopped_the_exchange() -> None:
    world, said = World(), []

    async def twice() -> None:
        assert world.session is not None
        for _ in range(2):
            with pytest.raises(TurnRefused) as refused:
                await world.session.turn()
            said.append((str(refused.value), refused.value.condition))

    world.script["segment"] = twice
    trace = await play(world, limits=RolloutLimits(max_turns=0))
    assert trace.stop_condition == "max_turns"
    assert said == [("rollout stopped: max_turns", "max_turns")] * 2


Test: TypeAlias = Callable[[], Awaitable[None]]

by_hand: Mapping[tuple[str, str | None], Test] = {
    ("created", "errored"): test_a_failure_reported_before_open_fails_the_rollout,
    ("booting", "errored"): test_a_boot_that_fails_on_a_stopped_box_is_the_callers_bug,
    ("booting", "timed_out"): test_a_boot_that_outlives_its_bound_on_a_stopped_box_is_the_callers_bug,
    ("stepping", "errored"): test_that_the_agent_survived_a_crash_is_the_reason_on_the_trace,
    ("stepping", "segment_ended"): test_that_the_agent_survived_a_failed_call_is_the_reason_on_the_trace,
    ("stopping", None): test_a_call_after_a_refused_one_is_told_what_stopped_the_exchange,
    **dict.fromkeys(
        [(name, None) for name in ("stopped", "closing", "finalizing", "scoring", "releasing")],
        test_a_call_after_a_stopped_exchange_is_told_that_the_rollout_is_concluded,
    ),
    ("failing", None): test_a_call_after_a_failed_exchange_is_told_that_the_rollout_is_concluded,
}
"""The test that is asked about the rows of a state and trigger, or, with none, about the state itself."""
