"""What is held and what is blamed when a step on the way fails, hangs, is cancelled or swallows its interruption
(L4-L9, L14, L40)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from attrs import frozen

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
    ScriptedRuntime,
    World,
    error_types,
    events,
    kinds,
    mint,
    play,
    raises,
    sleeps,
    stray,
    swallows,
    whole,
    world_task,
)

BOUNDS = RolloutTimeouts(boot=5, setup=7, agent=11, finalize=13, scoring=17, hook=60, close=60, release=60)


@frozen
class Step:
    """A step, in the words of its errors."""

    event: str
    error: str
    says: str
    setting: str
    seconds: float


STEPS = (
    Step("runtime.start", "SandboxError", "starting the runtime", "boot", 5),
    Step("runtime.prepare_setup", "SandboxError", "preparing the runtime for setup", "boot", 5),
    Step("task.setup", "TaskError", "task setup", "setup", 7),
    Step("harness.setup", "HarnessError", "harness setup", "setup", 7),
    Step("tools.start:a", "ToolsetError", "starting tool server 'a'", "setup", 7),
    Step("tools.start:b", "ToolsetError", "starting tool server 'b'", "setup", 7),
    Step("runtime.prepare_execution", "SandboxError", "applying the network policy", "setup", 7),
    Step("intercept", "TaskError", "prompt interception", "setup", 7),
    Step("session.open", "HarnessError", "opening the harness session", "setup", 7),
)
LATER = (
    Step("segment", "HarnessError", "segment", "agent", 11),
    Step("finalize", "TaskError", "finalize", "finalize", 13),
    Step("score.good", "TaskError", "reward 'good'", "scoring", 17),
    Step("score.steps", "TaskError", "metric 'steps'", "scoring", 17),
)
by_event = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.event)
all_by_event = pytest.mark.parametrize("step", [*STEPS, *LATER], ids=lambda step: step.event)


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
    order = [step.event for step in STEPS]
    return not events(world, *order[order.index(event) + 1 :], "segment", "finalize", "score.good")


async def test_the_order_of_setup() -> None:
    world = World()
    await played(world)
    assert events(world, *(step.event for step in STEPS)) == [step.event for step in STEPS]


@all_by_event
async def test_a_step_that_hangs_times_out_and_is_named(step: Step) -> None:
    world = World(script={step.event: trio.sleep_forever})
    started = trio.current_time()
    trace = await played(world)
    assert trio.current_time() - started == step.seconds
    assert (world.state, error_types(trace)) == ("failed", [step.error])
    assert trace.stop_condition == (
        "agent_completed" if step.event in ("finalize", "score.good", "score.steps") else "error"
    )
    message = trace.errors[0].message
    assert f"timeouts.{step.setting} = {step.seconds:g} s" in message
    assert f"{step.seconds:g} s" in message
    if step.event == "segment":
        assert message.startswith("agent timeout: ")
    else:
        assert "timed out after" in message
        assert step.says in message


@by_event
async def test_a_step_in_setup_that_hangs_says_that_the_budget_is_shared(step: Step) -> None:
    trace = await played(World(script={step.event: trio.sleep_forever}))
    assert ("shared setup budget" in trace.errors[0].message) is (step.setting == "setup")
    assert ("harness setup had not started" in trace.errors[0].message) is (step.event == "task.setup")


async def test_task_and_harness_setup_share_one_deadline_that_starts_when_booting_has_ended() -> None:
    world = World(
        script={"runtime.start": sleeps(4), "task.setup": sleeps(5), "harness.setup": sleeps(3), "segment": sleeps(99)}
    )
    started = trio.current_time()
    trace = await played(world)
    assert trio.current_time() - started == 4 + 7
    assert error_types(trace) == ["HarnessError"]
    assert "harness setup timed out after 7 s" in trace.errors[0].message


@pytest.mark.parametrize("kind", [TimeoutError, trio.TooSlowError])
@all_by_event
async def test_a_timeout_that_foreign_code_raises_by_itself_is_an_ordinary_failure(
    step: Step, kind: type[Exception]
) -> None:
    trace = await played(World(script={step.event: raises(kind, "of my own")}))
    assert error_types(trace) == [step.error]
    message = trace.errors[0].message
    assert f"{kind.__name__}: of my own" in message
    assert "timeouts." not in message
    assert "timed_out" not in [taken.trigger for taken in trace.transitions]


@all_by_event
async def test_an_exception_is_attributed_to_its_boundary_with_its_type_and_text(step: Step) -> None:
    trace = await played(World(script={step.event: raises(KeyError, "lost")}))
    assert error_types(trace) == [step.error]
    words = "watch" if step.event == "intercept" else step.says
    assert words in trace.errors[0].message
    assert trace.errors[0].message.endswith("KeyError: 'lost'")
    assert trace.errors[0].traceback is not None
    assert "KeyError" in trace.errors[0].traceback


@pytest.mark.parametrize("kind", [TaskError, HarnessError, ToolsetError, SandboxError, ProviderError])
@all_by_event
async def test_an_error_that_is_already_typed_passes_unchanged(step: Step, kind: type[Exception]) -> None:
    trace = await played(World(script={step.event: raises(kind, "mine")}))
    assert [(error.type, error.message) for error in trace.errors] == [(kind.__name__, "mine")]


@all_by_event
async def test_a_cancelled_of_nobodys_is_an_ordinary_failure(step: Step) -> None:
    trace = await played(World(script={step.event: stray}))
    assert trace.transitions[-1].target == "failed"
    assert error_types(trace) == [step.error]
    assert "Cancelled" in trace.errors[0].message


@pytest.mark.parametrize("step", [each for each in STEPS if each.event != "intercept"], ids=lambda step: step.event)
async def test_an_exception_group_counts_as_its_leaves_in_order(step: Step) -> None:
    async def group() -> None:
        kept: list[BaseException] = []
        try:
            await stray()
        except trio.Cancelled as cancelled:
            kept.append(cancelled)
        inner = ExceptionGroup("inner", [SandboxError("typed"), KeyError("second")])
        raise BaseExceptionGroup("several", [ValueError("first"), *kept, inner])

    trace = await played(World(script={step.event: group}))
    assert error_types(trace) == [step.error, "SandboxError", step.error]
    assert [error.message.rpartition(": ")[2] for error in trace.errors] == ["first", "typed", "'second'"]


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
WAYS: dict[str, Callable[[], Awaitable[object]]] = {
    "fails": raises(ValueError, "wrong"),
    "hangs": trio.sleep_forever,
    "swallows the timeout": swallows,
}


@pytest.mark.parametrize("way", WAYS)
@by_event
async def test_what_was_started_is_released_newest_first_and_nothing_else(step: Step, way: str) -> None:
    world = World(script={step.event: WAYS[way]})
    trace = await played(world)
    assert world.state == "failed"
    assert events(world, *RELEASES) == had(world)
    assert begun_before(world, step.event)
    assert error_types(trace) == [step.error]
    assert kinds(trace) == []
    if step.event != "intercept" and way != "swallows the timeout":
        acquired = {"tools.start:a": "tools.stop:a", "tools.start:b": "tools.stop:b", "session.open": "session.close"}
        assert acquired.get(step.event) not in world.began  # it undid itself
    if step.event == "task.setup":
        assert "harness.cleanup" not in world.began


@pytest.mark.parametrize("swallowed", [False, True], ids=["passed on", "swallowed"])
@pytest.mark.parametrize("means", ["scope", "cancel"])
@by_event
async def test_a_cancellation_takes_effect_at_once_and_releases_what_was_started(
    step: Step, means: str, swallowed: bool
) -> None:
    world = World(script={step.event: swallows if swallowed else trio.sleep_forever})
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
    assert begun_before(world, step.event)
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


class Nameless:
    """What is no runtime, no session and no toolset."""


async def test_a_factory_that_makes_no_runtime_is_a_sandbox_error() -> None:
    trace = await play(World(), runtime=lambda name: Nameless())
    assert error_types(trace) == ["SandboxError"]
    assert "Nameless" in trace.errors[0].message


async def test_a_factory_that_raises_is_a_sandbox_error_and_leaves_nothing_to_stop() -> None:
    def factory(name: str) -> ScriptedRuntime:
        raise OSError("no boxes left")

    world = World()
    trace = await play(world, runtime=factory)
    assert error_types(trace) == ["SandboxError"]
    assert "no boxes left" in trace.errors[0].message
    assert world.began == []


async def test_a_harness_that_opens_no_session_is_a_harness_error() -> None:
    class Wrong(ScriptedHarness):
        async def open_session(self, exchange: object) -> object:  # type: ignore[override]
            return Nameless()

    world = World()
    trace = await play(world, harness=Wrong(world))
    assert error_types(trace) == ["HarnessError"]
    assert "Nameless" in trace.errors[0].message


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
