"""A borrowed runtime that its owner stops too early is the caller's bug: raised to the caller by the call that meets
it, the rollout aborted, nothing blamed on the trace (L3)."""

from collections.abc import Callable, Sequence

import pytest
import trio
from attrs import define

from rollout_fsm import ProviderError, Rollout, RolloutTimeouts, RuntimeLifetimeError, Trace, check_trace, open_engine
from tests.world import Act, ScriptedHarness, ScriptedRuntime, World, error_types, events, kinds, mint, whole

BOUNDS = RolloutTimeouts(boot=5, setup=5, agent=5, finalize=5, scoring=5, close=5, release=5, drain=5)


def lost(world: World, then: Callable[[], object] | None = None, *, hang: bool = False, refuse: bool = False) -> Act:
    """The owner stops the runtime; then something is raised, or nothing returns, or all is well."""

    async def act() -> object:
        if refuse:
            world.rollout.stop("enough")
            assert world.session is not None
            with pytest.raises(Exception, match="enough"):
                await world.session.turn()
        assert world.runtime is not None
        world.runtime._stopped = True
        await trio.lowlevel.checkpoint()
        if hang:
            await trio.sleep_forever()
        return then() if then is not None else None

    return act


@define(eq=False)
class Played:
    """What became of a rollout whose runtime was lost."""

    rollout: Rollout
    world: World
    raised_by: str | None

    @property
    def trace(self) -> Trace:
        return self.rollout.trace


async def drive(world: World, calls: Sequence[str], before: str | None = None) -> Played:
    """Make the calls in order until one raises; `before` says before which the owner stops the runtime."""
    raised_by, said = None, "the runtime 'box'"
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world, borrowed=True, has_user=True, timeouts=BOUNDS)
        for at, call in enumerate(calls):
            if before == f"{call}{calls[:at].count(call) or ''}":
                assert world.runtime is not None
                world.runtime._stopped = True
            try:
                await (rollout.step(f"say {at}") if call == "step" else getattr(rollout, call)())
            except RuntimeLifetimeError as error:
                raised_by, said = call, str(error)
                break
        assert rollout.is_final
        assert await rollout.close() is rollout.trace  # told once, to the call that met it
    assert "'box'" in said
    assert check_trace(rollout.trace) == []
    return Played(rollout, world, raised_by)


CALLS = ("open", "step", "step", "close")


@pytest.mark.parametrize(
    ("before", "met_by", "never"),
    [
        ("open", "open", ("harness.setup", "runtime.prepare_execution")),
        ("step", "step", ("segment",)),
        ("step1", "step", ()),
        ("close", "close", ("finalize", "score.good")),
    ],
)
async def test_stopped_between_calls_the_next_call_raises(before: str, met_by: str, never: tuple[str, ...]) -> None:
    world = World()
    played = await drive(world, CALLS, before)
    assert (played.raised_by, played.rollout.state) == (met_by, "aborted")
    assert (played.trace.errors, played.trace.ok) == ([], False)
    assert events(world, *never) == []
    assert events(world, "runtime.start", "runtime.stop") == []
    assert world.began.count("segment") == (before == "step1") + 2 * (before == "close")


def boom() -> object:
    raise ValueError("the box is gone")


POINTS = (
    "task.setup",
    "harness.setup",
    "runtime.prepare_execution",
    "session.open",
    "segment",
    "finalize",
    "score.good",
)
MET_BY = dict.fromkeys(POINTS[:4], "open") | {"segment": "step", "finalize": "close", "score.good": "close"}


@pytest.mark.parametrize("hang", [False, True], ids=["raises", "times out"])
@pytest.mark.parametrize("event", POINTS)
async def test_a_failure_while_the_runtime_is_lost_is_the_callers_bug(event: str, hang: bool) -> None:
    world = World()
    world.script[event] = lost(world, boom, hang=hang)
    played = await drive(world, CALLS)
    assert (played.raised_by, played.rollout.state) == (MET_BY[event], "aborted")
    assert played.trace.errors == []
    assert world.began.count("harness.cleanup") == world.began.count("harness.setup")


@pytest.mark.parametrize("hang", [False, True], ids=["raises", "is cut off"])
async def test_a_refused_segment_that_fails_while_the_runtime_is_lost_is_the_callers_bug(hang: bool) -> None:
    world = World()
    world.script["segment"] = lost(world, boom, hang=hang, refuse=True)
    played = await drive(world, CALLS)
    assert (played.raised_by, played.rollout.state) == ("step", "aborted")
    assert played.trace.errors == []
    assert played.trace.stop_condition == "enough"


@pytest.mark.parametrize(
    ("event", "met_by"),
    [
        ("task.setup", "step"),
        ("harness.setup", "step"),
        ("session.open", "step"),
        ("model", "step"),
        ("session.close", "close"),
        ("finalize", "close"),
    ],
)
async def test_an_activity_that_ends_well_leaves_it_to_the_next_that_would_begin(event: str, met_by: str) -> None:
    world = World()
    world.script[event] = lost(world)
    played = await drive(world, CALLS)
    assert (played.raised_by, played.rollout.state) == (met_by, "aborted")
    assert played.trace.errors == []
    if event == "model":
        assert played.trace.num_turns == 1
    if event == "session.close":
        assert "finalize" not in world.began
    if event == "finalize":
        assert "score.good" not in world.began


@pytest.mark.parametrize("event", ["score.steps", "score.good", "harness.cleanup"])
async def test_a_run_that_scored_well_is_complete_whatever_became_of_the_runtime(event: str) -> None:
    world = World()
    world.script[event] = lost(world)
    played = await drive(world, CALLS)
    assert (played.raised_by, played.rollout.state, played.trace.reward) == (None, "completed", 1.0)


async def test_a_failed_model_call_stays_the_models() -> None:
    def down() -> object:
        raise ProviderError("down", status_code=503)

    world = World()
    world.script["model"] = lost(world, down)
    played = await drive(world, CALLS)
    assert (played.raised_by, played.rollout.state) == (None, "failed")
    assert error_types(played.trace) == ["ProviderError"]


async def test_a_harness_that_cannot_be_entered_on_a_lost_runtime_is_the_callers_bug() -> None:
    class Entered(ScriptedHarness):
        async def __aenter__(self) -> "Entered":
            await lost(self.world, boom)()
            return self

        async def __aexit__(self, *_: object) -> None:
            raise AssertionError("never entered")

    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world, borrowed=True, harness=Entered(world))
        with pytest.raises(RuntimeLifetimeError):
            await rollout.open()
        assert (rollout.state, rollout.trace.errors) == ("aborted", [])
    assert world.began == []


async def test_leaving_the_block_raises_it_too() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        with pytest.raises(RuntimeLifetimeError):  # noqa: PT012
            async with mint(engine, world, borrowed=True) as rollout:
                await rollout.open()
                assert world.runtime is not None
                world.runtime._stopped = True
        assert rollout.state == "aborted"


async def test_a_borrowed_runtime_is_neither_started_nor_stopped() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        runtime = ScriptedRuntime(world)
        for _ in range(2):
            rollout = mint(engine, world, runtime=runtime)
            await whole(rollout)
            assert rollout.ok
            assert rollout.trace.agent.runtime is not None
            assert rollout.trace.agent.runtime["borrowed"] is True
    assert events(world, "runtime.start", "runtime.stop", "runtime.prepare_setup") == []
    assert kinds(rollout.trace) == []


async def test_an_owned_runtime_is_named_after_the_trace() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world, id="abc")
        await rollout.open()
        assert world.runtime is not None
        assert world.runtime.name == "abc"
