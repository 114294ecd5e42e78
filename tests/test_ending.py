"""What `trace.ending` says of rollouts that the engine ran: read off the trace alone, set before anybody is told."""

from typing import Any

import pytest
import trio

from rollout_fsm import (
    HarnessError,
    Judge,
    Rollout,
    RolloutError,
    RolloutLimits,
    RolloutPolicy,
    RolloutTimeouts,
    SandboxError,
    Task,
    TaskError,
    Trace,
    check_trace,
    ending_of,
    open_engine,
    stop,
    trace_from_json,
    trace_to_json,
)
from rollout_fsm.ending import kinds_of, settle_endings
from rollout_fsm.errors import ErrorRecord, OverlongPromptError, ProviderError
from rollout_fsm.machine.endings import ENGINE_STOPS, Ending
from rollout_fsm.settings import reserved_conditions
from rollout_fsm.trace import Reward
from tests.world import Drive, ScriptedRuntime, World, mint, play, raises, sleeps, whole, world_task


class FlakyProviderError(ProviderError):
    """A kind of the embedder's own."""


class SaysDone:
    """A task's own stop."""

    @stop
    def said_done(self, trace: Trace) -> bool:
        return True


async def stops(rollout: Rollout) -> None:
    await rollout.open()
    rollout.stop("bored")
    await rollout.close()


async def closes_unopened(rollout: Rollout) -> None:
    await rollout.close()


async def reports(rollout: Rollout) -> None:
    await rollout.open()
    rollout.fail(ProviderError("another agent's model"))
    await rollout.close()


async def cancels(rollout: Rollout) -> None:
    await rollout.open()
    await rollout.cancel()


async def fails_and_cancels(rollout: Rollout) -> None:
    await rollout.open()
    await rollout.step()
    await rollout.cancel()


async def provider(status: int | None, kind: type[ProviderError] = ProviderError) -> None:
    await trio.lowlevel.checkpoint()
    raise kind("no", status_code=status)


def answers(status: int | None, kind: type[ProviderError] = ProviderError) -> World:
    return World(script={"model": lambda: provider(status, kind)})


def scripted(**script: Any) -> World:
    return World(script={name.replace("_", ".", 1): act for name, act in script.items()})


FAR = sleeps(10_000)
SHORT: dict[str, Any] = {
    "timeouts": RolloutTimeouts(boot=5, setup=5, agent=5, finalize=5, scoring=5),
}
OVER = {"policy": RolloutPolicy(agent_expiry="stop"), **SHORT}

ENDED: dict[str, tuple[World, Drive, dict[str, Any], str]] = {
    "ends by itself": (World(), whole, {}, "agent_completed agent graded counts"),
    "a cap": (World(turns=3), whole, {"limits": RolloutLimits(max_turns=1)}, "max_turns agent graded counts"),
    "its task's stop": (World(), whole, {"hooks": SaysDone}, "said_done task graded counts"),
    "its caller's stop": (World(), stops, {}, "bored caller graded counts"),
    "a user": (World(), stops, {"has_user": True}, "bored caller graded counts"),
    "no progress": (World(turns=0), whole, {}, "no_progress harness graded counts"),
    "no progress, by policy": (
        World(turns=0),
        whole,
        {"policy": RolloutPolicy(no_progress="fail")},
        "harness_error harness",
    ),
    "an overlong prompt": (answers(400, OverlongPromptError), whole, {}, "context_length agent graded counts"),
    "time is up": (scripted(segment=FAR), whole, SHORT, "agent_timeout agent"),
    "time is up, by policy": (scripted(segment=FAR), whole, OVER, "agent_timeout agent graded counts"),
    "boot hangs": (scripted(runtime_start=FAR), whole, SHORT, "boot_timeout sandbox retryable"),
    "boot fails": (scripted(runtime_start=raises(OSError)), whole, SHORT, "sandbox_error sandbox retryable"),
    "task setup hangs": (scripted(task_setup=FAR), whole, SHORT, "setup_timeout task retryable"),
    "harness setup hangs": (scripted(harness_setup=FAR), whole, SHORT, "setup_timeout harness retryable"),
    "task setup fails": (scripted(task_setup=raises(OSError)), whole, {}, "task_error task retryable"),
    "harness setup fails": (scripted(harness_setup=raises(OSError)), whole, {}, "harness_error harness retryable"),
    "a segment fails": (scripted(segment=raises(OSError)), whole, {}, "harness_error harness"),
    "finalize hangs": (World(script={"finalize": FAR}), whole, SHORT, "finalize_timeout task"),
    "finalize fails": (World(script={"finalize": raises(OSError)}), whole, SHORT, "task_error task"),
    "a reward hangs": (scripted(score_good=FAR), whole, SHORT, "scoring_timeout task"),
    "a reward fails": (scripted(score_good=raises(OSError)), whole, SHORT, "task_error task"),
    "a box dies in a reward": (scripted(score_good=raises(SandboxError)), whole, {}, "sandbox_error sandbox retryable"),
    "a model is busy": (answers(429), whole, {}, "provider_error provider retryable"),
    "a model is down": (answers(503), whole, {}, "provider_error provider retryable"),
    "a model is far": (answers(None), whole, {}, "provider_error provider retryable"),
    "a model is slow": (answers(408), whole, {}, "provider_error provider retryable"),
    "a key is wrong": (answers(401), whole, {}, "provider_rejected provider"),
    "a model is unknown": (answers(404), whole, {}, "provider_rejected provider"),
    "an error of one's own": (answers(503, FlakyProviderError), whole, {}, "provider_error provider retryable"),
    "nobody begins": (World(), whole, {"prompt": None}, "task_error task"),
    "its owner fails": (World(), reports, {}, "caller_error caller"),
    "never opened": (World(), closes_unopened, {}, "never_opened caller"),
    "cancelled": (World(), cancels, {}, "cancelled caller"),
    "cancelled after it failed": (answers(503), fails_and_cancels, {}, "cancelled caller"),
}


def said(ending: Ending | None) -> str:
    assert ending is not None
    flags = ("graded", "counts", "retryable")
    return " ".join([ending.name, ending.cause, *(flag for flag in flags if getattr(ending, flag))])


@pytest.mark.parametrize("what", ENDED)
async def test_a_rollout_ends_as_the_table_says(what: str) -> None:
    model, drive, settings, expected = ENDED[what]
    world = World(script=model.script, turns=model.turns)
    fields = {key: settings[key] for key in ("hooks", "prompt") if key in settings}
    settings = {key: value for key, value in settings.items() if key not in fields}
    trace = await play(world, drive=drive, task=world_task(world, **fields), **settings)
    assert said(trace.ending) == expected
    read = trace_from_json(trace_to_json(trace))
    assert read == trace
    names = {"said_done"} if "hooks" in fields else set()
    assert ending_of(read, stops=names) == trace.ending  # a function of what was written


async def test_a_lost_runtime_is_the_callers_doing() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        runtime = ScriptedRuntime(world)
        rollout = mint(engine, world, borrowed=True, runtime=runtime)
        await runtime.stop()
        with pytest.raises(Exception, match="stopped by its owner"):
            await rollout.open()
    assert said(rollout.trace.ending) == "runtime_lost caller"


async def test_an_exception_in_the_owners_block_is_the_owners() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)

        async def block() -> None:
            async with rollout:
                await rollout.open()
                raise KeyError("mine")

        with pytest.raises(KeyError):
            await block()
    assert said(rollout.trace.ending) == "caller_error caller"


async def test_a_completed_rollout_without_a_reward_is_graded_and_does_not_count() -> None:
    world = World()

    class Unmeasured:
        good = None  # an undecorated override removes the hook

    class Bare(Unmeasured, type(world_task(world))):  # type: ignore[misc]
        pass

    trace = await play(world, task=Bare(prompt="hello"))
    assert (trace.reward, said(trace.ending)) == (None, "agent_completed agent graded")


async def test_observers_are_told_of_the_end_when_the_ending_stands() -> None:
    seen: list[tuple[str | None, bool]] = []

    class Watch:
        def on_transition(self, trace: Trace, transition: object) -> None:
            seen.append((trace.ending and trace.ending.name, trace.sealed))

        def on_finished(self, trace: Trace) -> None:
            seen.append((trace.ending and trace.ending.name, trace.sealed))

    await play(World(), observers=[Watch()])
    assert seen[-2:] == [("agent_completed", True)] * 2
    assert {name for name, _ in seen[:-2]} == {None}


async def test_a_record_that_hooks_have_spoilt_costs_the_ending_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(script={"finalize": lambda: spoil(world)})

    async def spoil(world: World) -> None:
        await trio.lowlevel.checkpoint()
        world.rollout.trace.transitions.append("boom")  # type: ignore[arg-type]

    async def drive(rollout: Rollout) -> None:
        await whole(rollout)
        rollout.trace.transitions.remove("boom")  # type: ignore[arg-type]

    trace = await play(world, drive=drive)
    assert (trace.ok, trace.ending) == (True, None)
    assert "no ending can be read off its trace" in caplog.text


def test_the_stop_conditions_of_the_table_are_the_engines_own() -> None:
    assert {*ENGINE_STOPS, "error", "cancelled"} == reserved_conditions() - {"(given)"}


def test_types_of_errors_are_known_by_what_they_are_a_kind_of() -> None:
    assert kinds_of("FlakyProviderError") == ("FlakyProviderError", "ProviderError", "RolloutError")
    assert kinds_of("OverlongPromptError") == ("OverlongPromptError", "ProviderError", "RolloutError")
    assert kinds_of("ValueError") == ("ValueError",)
    assert kinds_of("RolloutError") == ("RolloutError",)


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (None, "provider_error"),
        (200, "provider_error"),
        (400, "provider_rejected"),
        (403, "provider_rejected"),
        (408, "provider_error"),
        (409, "provider_error"),
        (422, "provider_rejected"),
        (425, "provider_error"),
        (429, "provider_error"),
        (499, "provider_rejected"),
        (500, "provider_error"),
        (599, "provider_error"),
    ],
)
async def test_the_status_of_a_provider_decides_whether_another_try_helps(status: int | None, name: str) -> None:
    trace = await play(answers(status))
    assert trace.ending is not None
    assert (trace.ending.name, trace.ending.retryable) == (name, name == "provider_error")


async def test_a_type_that_this_process_does_not_know_is_nobodys() -> None:
    trace = await play(World(script={"finalize": raises(TaskError, "no")}))
    trace.errors[:] = [ErrorRecord(type="GoneError", message="of another program")]
    assert ending_of(trace).name == "error"
    assert said(trace.ending) == "task_error task"  # what was written stands


async def test_a_rollout_that_is_not_over_has_no_ending() -> None:
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, World())
        with pytest.raises(ValueError, match="is not over"):
            ending_of(rollout.trace)
        await rollout.open()
        with pytest.raises(ValueError, match="is not over"):
            ending_of(rollout.trace)
        assert rollout.trace.ending is None


async def test_another_table_gives_another_ending_of_the_same_trace() -> None:
    trace = await play(World(turns=3), limits=RolloutLimits(max_turns=1))
    masked = settle_endings({"max_turns": {"counts": False, "cause": "task"}})
    assert said(ending_of(trace, masked)) == "max_turns task graded"
    assert settle_endings(masked) is masked
    assert ending_of(trace, settle_endings(None)) == trace.ending


# ---- does a trace tell one story


async def test_an_ending_that_says_more_than_the_path_is_a_fault() -> None:
    trace = await play(World())
    for wrong, fault in (
        (Ending(name="x", cause="agent", graded=False, counts=False, retryable=False), "ending.graded is false"),
        (Ending(name="x", cause="agent", graded=False, counts=True, retryable=False), "was not graded"),
    ):
        trace.ending = wrong
        assert any(fault in found for found in check_trace(trace))
    trace.ending = Ending(name="x", cause="agent", graded=True, counts=True, retryable=False)
    assert check_trace(trace) == []
    trace.rewards["good"] = None
    assert check_trace(trace) == ["ending.counts is true, and there is no reward"]
    trace.ending = None  # of an older program
    assert check_trace(trace) == []


async def test_an_aborted_rollout_that_is_called_retryable_is_a_fault() -> None:
    trace = await play(World(), drive=cancels)
    trace.ending = Ending(name="x", cause="agent", graded=False, counts=False, retryable=True)
    assert check_trace(trace) == ["ending.retryable is true, and the path ends in 'aborted'"]


async def test_an_ending_before_the_end_is_a_fault() -> None:
    trace = await play(World())
    del trace.transitions[-1]
    assert any("ending is 'agent_completed', and the path ends in 'releasing'" in fault for fault in check_trace(trace))


# ---- a number in the reward comes from a signal that ran


def writes(name: str, score: float = 1.0) -> Any:
    """A task whose own code writes a reward past every signal, at this event."""
    world = World()

    async def write() -> None:
        await trio.lowlevel.checkpoint()
        world.rollout.trace.rewards["bonus"] = Reward(score=score)
        world.rollout.trace.rewards["good"] = Reward(score=score)

    world.script[name] = write
    return world


@pytest.mark.parametrize("event", ["task.setup", "finalize", "score.steps", "score.good"])
async def test_a_reward_that_no_signal_returned_is_none_and_is_told(event: str) -> None:
    trace = await play(writes(event, 7.0))
    assert trace.rewards == {"good": Reward(score=1.0)}
    assert [error.type for error in trace.errors if "'bonus'" in error.message] == ["TaskError"]
    assert (trace.ok, said(trace.ending)) == (False, "task_error task")


@pytest.mark.parametrize("fails", ["harness.setup", "segment", "finalize"])
async def test_a_rollout_that_was_never_scored_has_no_reward_whoever_wrote_one(fails: str) -> None:
    world = writes("task.setup", 10.0**300)
    world.script[fails] = raises(HarnessError)
    trace = await play(world)
    assert (trace.rewards, trace.reward) == ({}, None)


async def test_a_rollout_that_is_cancelled_has_no_reward_whoever_wrote_one() -> None:
    trace = await play(writes("task.setup"), drive=cancels)
    assert (trace.rewards, trace.reward) == ({}, None)


async def test_a_judge_that_overwrites_what_a_signal_measured_changes_nothing() -> None:
    class Sly(Judge):
        name = "sly"

        async def score(self, task: Task, trace: Trace) -> float:
            trace.rewards["good"] = Reward(score=99.0)
            return 0.5

    trace = await play(World(), judges=[Sly()])
    assert trace.rewards == {"good": Reward(score=1.0), "sly": Reward(score=0.5)}
    (error,) = trace.errors
    assert "trace.rewards['good'] was set to what is no measurement" in error.message


@pytest.mark.parametrize("act", [raises(ValueError), sleeps(10_000)], ids=["raises", "hangs"])
async def test_a_signal_that_failed_leaves_its_name_without_a_number(act: Any) -> None:
    trace = await play(scripted(score_good=act), **SHORT)
    assert (trace.rewards, trace.reward, trace.ok) == ({"good": None}, None, False)


def test_every_boundary_is_an_error_of_the_engine() -> None:
    assert all(kinds_of(kind.__name__)[-1] == "RolloutError" for kind in RolloutError.__subclasses__())
