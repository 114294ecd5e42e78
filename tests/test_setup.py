"""The order of setup, its one deadline, what is held and what is blamed on the way (L4-L9, L14, L40). Every way in
which a step can fail is tried in tests/doors, every point at which it can be cancelled in tests/cancellation."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from rollout_fsm import (
    HarnessError,
    ProviderError,
    Request,
    Rollout,
    RolloutTimeouts,
    SandboxError,
    Task,
    TaskError,
    ToolsetError,
    Trace,
    intercept,
    open_engine,
)
from tests.world import (
    EchoModel,
    NoHooks,
    ScriptedHarness,
    World,
    error_types,
    events,
    mint,
    play,
    raises,
    sleeps,
    swallows,
    whole,
    world_task,
)

BOUNDS = RolloutTimeouts(boot=5, setup=7, agent=11, finalize=13, scoring=17, hook=60, close=60, release=60)

STEPS = (
    "runtime.start", "runtime.prepare_setup", "task.setup", "harness.setup", "tools.start:a", "tools.start:b",
    "runtime.prepare_execution", "intercept", "session.open",
)  # fmt: skip
"""In the order of L2 and L5."""


def task_of(world: World) -> Task:
    class Hooks(NoHooks):
        @intercept
        async def watch(self, request: Request) -> None:
            await world.act("intercept")

    return world_task(world, served=("a", "b"), hooks=Hooks)


async def played(world: World, drive: Callable[[Rollout], Awaitable[object]] = whole) -> Trace:
    return await play(world, task=task_of(world), timeouts=BOUNDS, drive=drive)


def begun_before(world: World, event: str) -> bool:
    """Whether nothing that follows the event in the order of L5 began."""
    return not events(world, *STEPS[STEPS.index(event) + 1 :], "segment", "finalize", "score.good")


async def test_the_order_of_setup() -> None:
    world = World()
    await played(world)
    assert events(world, *STEPS) == [*STEPS]


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_in_setup_that_hangs_says_that_the_budget_is_shared(step: str) -> None:
    trace = await played(World(script={step: trio.sleep_forever}))
    booting = step in ("runtime.start", "runtime.prepare_setup")
    assert ("shared setup budget" in trace.errors[0].message) is not booting
    assert ("harness setup had not started" in trace.errors[0].message) is (step == "task.setup")


async def test_an_interceptor_that_outlasts_what_is_left_of_the_setup_budget_is_blamed_on_the_task() -> None:
    trace = await played(World(script={"harness.setup": sleeps(5), "intercept": sleeps(3)}))
    assert error_types(trace) == ["TaskError"]
    assert "prompt interception timed out after 7 s (timeouts.setup = 7 s" in trace.errors[0].message


async def test_task_and_harness_setup_share_one_deadline_that_starts_when_booting_has_ended() -> None:
    world = World(
        script={"runtime.start": sleeps(4), "task.setup": sleeps(5), "harness.setup": sleeps(3), "segment": sleeps(99)}
    )
    started = trio.current_time()
    trace = await played(world)
    assert trio.current_time() - started == 4 + 7
    assert error_types(trace) == ["HarnessError"]
    assert "harness setup timed out after 7 s" in trace.errors[0].message


@pytest.mark.parametrize("kind", [TaskError, HarnessError, ToolsetError, SandboxError, ProviderError])
@pytest.mark.parametrize("event", ["task.setup", "session.open"])
async def test_an_error_that_is_already_typed_passes_unchanged(event: str, kind: type[Exception]) -> None:
    trace = await played(World(script={event: raises(kind, "mine")}))
    assert [(error.type, error.message) for error in trace.errors] == [(kind.__name__, "mine")]


def had(world: World) -> list[str]:
    """What must be released, newest first, read off what began and what was had (L8)."""
    steps = [
        ("session.close", "session.open" in world.ended),
        ("tools.stop:b", "tools.start:b" in world.ended),
        ("tools.stop:a", "tools.start:a" in world.ended),
        ("harness.cleanup", "harness.setup" in world.began),
        ("runtime.stop", "runtime.start" in world.began),
    ]
    return [release for release, held in steps if held]


RELEASES = ("session.close", "tools.stop:b", "tools.stop:a", "harness.cleanup", "runtime.stop")


@pytest.mark.parametrize("means", ["scope", "cancel"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_cancellation_that_a_step_swallows_takes_effect_at_once_all_the_same(step: str, means: str) -> None:
    world = World(script={step: swallows})
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        rollout = mint(engine, world, task=task_of(world), timeouts=BOUNDS)
        started = trio.current_time()
        with trio.CancelScope() as scope:

            async def strike() -> None:
                await trio.sleep(1)
                scope.cancel() if means == "scope" else await rollout.cancel()

            nursery.start_soon(strike)
            opened = await rollout.open()
            assert means == "cancel"
            assert opened is False
        assert scope.cancelled_caught is (means == "scope")
        assert rollout.state == "aborted"
        assert trio.current_time() - started == 1
    assert events(world, *RELEASES) == had(world)
    assert world.unreleased() == []
    assert begun_before(world, step)
    assert (rollout.trace.errors, rollout.trace.stop_condition) == ([], "cancelled")


async def test_the_third_of_five_tool_servers_fails_and_the_two_that_ran_are_stopped() -> None:
    world = World(script={"tools.start:c": raises(OSError, "no port")})
    trace = await play(world, task=world_task(world, served="abcde"))
    served = [event for event in world.began if event.startswith("tools.")]
    assert served == ["tools.start:a", "tools.start:b", "tools.start:c", "tools.stop:b", "tools.stop:a"]
    assert error_types(trace) == ["ToolsetError"]
    assert "'c'" in trace.errors[0].message


async def test_open_returns_false_on_a_failure_and_holds_everything_until_close() -> None:
    world = World(script={"session.open": raises(ValueError)})
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        assert await rollout.open() is False
        assert rollout.state == "failing"
        assert events(world, *RELEASES) == []
        await rollout.close()
        assert events(world, *RELEASES) == ["harness.cleanup", "runtime.stop"]


@pytest.mark.parametrize("served", [("a", "a")])
async def test_two_tool_servers_of_one_name_are_a_toolset_error(served: tuple[str, ...]) -> None:
    world = World()
    trace = await play(world, task=world_task(world, served=served))
    assert error_types(trace) == ["ToolsetError"]
    assert "'a'" in trace.errors[0].message
    assert "tools.start:a" not in world.began


async def test_tool_servers_of_the_run_come_after_those_of_the_task_and_all_urls_reach_the_harness() -> None:
    from tests.world import ScriptedToolset

    world = World()
    urls: dict[str, str] = {}

    async def segment() -> None:
        urls.update(world.exchange.tool_urls)
        assert world.session is not None
        await world.session.turn()

    world.script["segment"] = segment
    await play(world, task=world_task(world, served=("a",)), tools=[lambda: ScriptedToolset(world, "b")])
    assert urls == {"a": "http://tools/a", "b": "http://tools/b"}


@pytest.mark.parametrize("held", ["harness", "model"])
async def test_a_harness_or_model_that_cannot_be_entered_fails_every_rollout_that_needs_it(held: str) -> None:
    class Harness(ScriptedHarness):
        async def __aenter__(self) -> None:
            await trio.lowlevel.checkpoint()
            raise OSError("no licence")

        async def __aexit__(self, *_: object) -> None:
            raise AssertionError("never entered")

    class Model(EchoModel):
        __aenter__, __aexit__ = Harness.__aenter__, Harness.__aexit__

    world = World()
    given: dict[str, Any] = {held: Harness(world) if held == "harness" else Model(world)}
    async with open_engine(gateway=False) as engine:
        for _ in range(2):
            rollout = mint(engine, world, **given)
            await whole(rollout)
            assert error_types(rollout.trace) == ["HarnessError" if held == "harness" else "ProviderError"]
            assert "no licence" in rollout.trace.errors[0].message
    assert world.began == []
