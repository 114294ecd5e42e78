"""A segment of the harness: the agent's clock, how it may end, and how it is left early (L12, L13, L16-L21, L24,
L41)."""

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from rollout_fsm import (
    AssistantMessage,
    HarnessError,
    OverlongPromptError,
    ProgramResult,
    ProviderError,
    Response,
    Rollout,
    RolloutLimits,
    RolloutPolicy,
    RolloutTimeouts,
    Trace,
    TurnRefused,
    intercept,
    open_engine,
)
from rollout_fsm import Request as Asked
from tests.world import (
    Act,
    NoHooks,
    World,
    error_types,
    kinds,
    mint,
    play,
    raises,
    returns,
    sleeps,
    swallows,
    warnings,
    whole,
    world_task,
)

BOUNDS = RolloutTimeouts(agent=100, drain=30, close=5, release=5)


async def turn(world: World, said: str | None = None) -> Response:
    assert world.session is not None
    return await world.session.turn(said)


def states(trace: Trace) -> list[str]:
    return [taken.target for taken in trace.transitions]


# ---- the agent's clock: L12


async def test_the_agent_budget_is_one_sum_and_waiting_is_free() -> None:
    world = World(script={"model": sleeps(3)})
    left: list[float] = []

    async def drive(rollout: Rollout) -> None:
        assert rollout.time_remaining == 10
        going = await rollout.open()
        while going:
            await trio.sleep(500)
            going = await rollout.step("more")
            left.append(rollout.time_remaining)
        await rollout.close()

    started = trio.current_time()
    trace = await play(world, drive=drive, has_user=True, timeouts=RolloutTimeouts(agent=10))
    assert left == [7, 4, 1, 0]
    assert trio.current_time() - started == 4 * 500 + 10
    assert error_types(trace) == ["HarnessError"]
    assert trace.errors[0].message.startswith("agent timeout: ")
    assert "10 s" in trace.errors[0].message
    assert (trace.num_turns, world.state, trace.reward) == (3, "failed", None)


async def test_the_harness_sees_what_is_left_of_the_budget() -> None:
    seen: list[float] = []

    async def segment() -> None:
        seen.append(world.exchange.time_remaining)
        await trio.sleep(4)
        seen.append(world.exchange.time_remaining)
        await turn(world)

    async def drive(rollout: Rollout) -> None:
        await rollout.open()
        await rollout.step()
        await rollout.step("more")
        await rollout.close()

    world = World(script={"segment": segment})
    await play(world, drive=drive, timeouts=RolloutTimeouts(agent=10))
    assert seen == [10, 6, 6, 2]
    assert (await play(World())).ok


async def test_without_a_bound_the_time_left_is_infinite() -> None:
    async def drive(rollout: Rollout) -> None:
        assert rollout.time_remaining == float("inf")
        await whole(rollout)

    await play(World(script={"model": sleeps(3000)}), drive=drive)


async def test_with_nothing_left_a_segment_times_out_before_the_harness_is_asked() -> None:
    world = World()
    trace = await play(world, timeouts=RolloutTimeouts(agent=0))
    assert "segment" not in world.began
    assert error_types(trace) == ["HarnessError"]
    assert trace.errors[0].message.startswith("agent timeout: ")


async def test_an_expired_budget_is_a_stop_where_the_policy_says_so() -> None:
    world = World(script={"segment": trio.sleep_forever})
    policy = RolloutPolicy(agent_expiry="stop")
    trace = await play(world, timeouts=RolloutTimeouts(agent=10), policy=policy)
    assert (trace.ok, trace.stop_condition, trace.errors, trace.reward) == (True, "agent_timeout", [], 1.0)
    assert "runtime.kill" in world.began


async def test_a_segment_that_returns_at_the_very_end_of_the_budget_has_timed_out() -> None:
    trace = await play(World(script={"segment": sleeps(10)}), timeouts=RolloutTimeouts(agent=10))
    assert error_types(trace) == ["HarnessError"]


# ---- left early: the agent is stopped: L13


async def refuse_then(world: World, act: Callable[[], Awaitable[object]]) -> object:
    world.rollout.stop("enough")
    with pytest.raises(TurnRefused, match="enough"):
        await turn(world)
    return await act()


def failing_hook() -> type:
    class Hooks(NoHooks):
        @intercept
        def broken(self, request: Asked) -> None:
            if any(message.text == "second" for message in request.messages):
                raise ValueError("broken")

    return Hooks


EARLY: dict[str, tuple[Callable[[World], Act], str, str]] = {
    "deadline": (lambda world: trio.sleep_forever, "failed", "HarnessError"),
    "failure": (lambda world: raises(ValueError, "mine"), "failed", "HarnessError"),
    "cut-off": (lambda world: lambda: refuse_then(world, trio.sleep_forever), "completed", ""),
    "hook": (lambda world: lambda: turn(world, "second"), "failed", "TaskError"),
}


async def left_early(way: str, **script: Act) -> tuple[World, Trace]:
    world = World(script={name.replace("_", "."): act for name, act in script.items()})
    world.script["segment"] = EARLY[way][0](world)
    trace = await play(world, task=world_task(world, hooks=failing_hook()), timeouts=BOUNDS)
    return world, trace


@pytest.mark.parametrize("way", EARLY)
async def test_a_segment_that_is_left_early_is_left_with_the_agent_stopped(way: str) -> None:
    world, trace = await left_early(way)
    assert world.began.count("runtime.kill") == 1
    assert world.state == EARLY[way][1]
    assert error_types(trace) == ([EARLY[way][2]] if EARLY[way][2] else [])
    assert world.began.index("segment") < world.began.index("runtime.kill") < world.began.index("session.close")


@pytest.mark.parametrize("way", EARLY)
async def test_what_will_not_die_fails_the_run_after_the_segments_own_error(way: str) -> None:
    started = trio.current_time()
    world, trace = await left_early(way, runtime_kill=trio.sleep_forever)
    assert world.state == "failed"
    assert error_types(trace) == [*([EARLY[way][2]] if EARLY[way][2] else []), "SandboxError"]
    assert "surviv" in trace.errors[-1].message
    assert "finalize" not in world.began
    waited = {"deadline": 100, "cut-off": 30}.get(way, 0)
    assert trio.current_time() - started == waited + 5


async def test_a_survivor_of_an_expired_budget_fails_even_where_expiry_is_a_stop() -> None:
    world = World(script={"segment": trio.sleep_forever, "runtime.kill": returns(False)})
    trace = await play(world, timeouts=BOUNDS, policy=RolloutPolicy(agent_expiry="stop"))
    assert (world.state, error_types(trace), trace.stop_condition) == ("failed", ["SandboxError"], "error")


@pytest.mark.parametrize("survives", [False, True])
@pytest.mark.parametrize("means", ["scope", "cancel"])
async def test_a_cancelled_segment_is_left_with_the_agent_stopped(means: str, survives: bool) -> None:
    world = World(script={"segment": trio.sleep_forever})
    if survives:
        world.script["runtime.kill"] = returns(False)

    async def drive(rollout: Rollout) -> None:
        await rollout.open()
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:

                async def strike() -> None:
                    await trio.sleep(1)
                    scope.cancel() if means == "scope" else await rollout.cancel()

                nursery.start_soon(strike)
                await rollout.step()
            assert scope.cancelled_caught is (means == "scope")

    trace = await play(world, drive=drive)
    assert (world.state, world.began.count("runtime.kill")) == ("aborted", 1)
    assert error_types(trace) == ["SandboxError"] * survives


async def test_the_kill_is_not_charged_to_the_agent_and_is_not_cut_short_by_a_cancellation() -> None:
    world = World(script={"segment": trio.sleep_forever, "runtime.kill": sleeps(3)})

    async def drive(rollout: Rollout) -> None:
        await rollout.open()
        with trio.move_on_after(1):
            await rollout.step()
        assert rollout.time_remaining == 99

    await play(world, drive=drive, timeouts=BOUNDS)
    assert "runtime.kill" in world.ended


@pytest.mark.parametrize("ends", ["yields", "no progress", "refused", "exits after a refusal"])
async def test_after_a_segment_that_ended_by_itself_what_the_agent_started_lives_on(ends: str) -> None:
    world = World()
    acts: dict[str, Act] = {
        "yields": lambda: turn(world),
        "no progress": returns(None),
        "refused": lambda: refuse_then(world, returns(None)),
        "exits after a refusal": lambda: refuse_then(world, returns(ProgramResult(exit_code=1))),
    }

    async def segment() -> object:
        result = await acts[ends]()
        return result if isinstance(result, ProgramResult) else None

    world.script["segment"] = segment
    trace = await play(world)
    assert trace.ok
    assert "runtime.kill" not in world.began


# ---- refusals: L16-L18


@pytest.mark.parametrize(
    ("act", "warned"),
    [
        (returns(None), []),
        (returns(ProgramResult(exit_code=0)), []),
        (returns(ProgramResult(exit_code=7, stderr="boo")), []),
        (raises(TurnRefused, "passed on"), []),
        (raises(ExceptionGroup, "g", [TurnRefused("passed on")]), []),
        (raises(ValueError, "mine"), ["ValueError: mine"]),
        (raises(ProviderError, "mine"), ["mine"]),
        (swallows, []),
        (trio.sleep_forever, []),
    ],
)
async def test_however_the_harness_ends_after_a_refusal_the_run_is_stopped_and_scored(
    act: Act, warned: list[str]
) -> None:
    world = World()
    world.script["segment"] = lambda: refuse_then(world, act)
    trace = await play(world)
    assert (trace.ok, trace.stop_condition, trace.errors, trace.reward) == (True, "enough", [], 1.0)
    assert states(trace)[3:6] == ["stepping", "stopping", "stopped"]
    said = warnings(trace)
    assert len(said) == len(warned)
    assert all(text in message for text, message in zip(warned, said, strict=True))
    assert set(kinds(trace)) <= {"after_stop"}


async def test_the_first_stop_condition_wins_and_every_further_turn_is_refused_at_once() -> None:
    world = World()

    async def segment() -> None:
        for _ in range(4):
            with pytest.raises(TurnRefused) as refused:
                await turn(world)
            assert refused.value.condition == "max_turns"
            world.rollout.stop("later")

    world.script["segment"] = segment
    trace = await play(world, limits=RolloutLimits(max_turns=0))
    assert (trace.stop_condition, trace.ok, trace.calls, world.seen) == ("max_turns", True, [], [])
    assert states(trace).count("stopping") == 1


@pytest.mark.parametrize(("agent", "drain", "after"), [(100, 30, 30), (20, 30, 20), (100, 0, 0), (30, 30, 30)])
async def test_a_harness_that_will_not_end_after_a_refusal_is_cut_off(agent: float, drain: float, after: float) -> None:
    world = World()
    world.script["segment"] = lambda: refuse_then(world, trio.sleep_forever)
    started = trio.current_time()
    trace = await play(world, timeouts=RolloutTimeouts(agent=agent, drain=drain))
    assert trio.current_time() - started == after
    assert (trace.ok, trace.stop_condition, trace.errors) == (True, "enough", [])


async def test_the_drain_begins_when_the_last_call_in_flight_was_answered() -> None:
    world = World(script={"model": sleeps(10, "late reply")})
    replies: list[Response] = []

    async def segment() -> None:
        async def admitted() -> None:
            replies.append(await turn(world))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(admitted)
            await trio.testing.wait_all_tasks_blocked()
            await refuse_then(world, trio.sleep_forever)

    world.script["segment"] = segment
    started = trio.current_time()
    trace = await play(world, timeouts=RolloutTimeouts(drain=30))
    assert trio.current_time() - started == 10 + 30
    assert [reply.message.text for reply in replies] == ["late reply"]
    assert (trace.ok, trace.stop_condition, trace.num_turns) == (True, "enough", 1)


async def test_the_drain_is_cut_by_the_budget_even_while_a_call_is_in_flight() -> None:
    world = World(script={"model": trio.sleep_forever})

    async def segment() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn, world)
            await trio.testing.wait_all_tasks_blocked()
            await refuse_then(world, trio.sleep_forever)

    world.script["segment"] = segment
    started = trio.current_time()
    trace = await play(world, timeouts=RolloutTimeouts(agent=50, drain=30))
    assert trio.current_time() - started == 50
    assert (trace.ok, trace.stop_condition, trace.num_turns) == (True, "enough", 0)


# ---- progress: L19


@pytest.mark.parametrize("act", [returns(None), returns(ProgramResult(exit_code=0)), sleeps(5)])
async def test_a_segment_without_a_turn_ends_the_exchange(act: Act) -> None:
    world = World(script={"segment": act})
    trace = await play(world, has_user=True)
    assert (trace.ok, trace.stop_condition, trace.reward) == (True, "no_progress", 1.0)


async def test_a_segment_without_a_turn_is_a_failure_where_the_policy_says_so() -> None:
    trace = await play(World(script={"segment": returns(None)}), policy=RolloutPolicy(no_progress="fail"))
    assert (error_types(trace), trace.stop_condition) == (["HarnessError"], "error")
    assert "no progress" in trace.errors[0].message


async def test_an_empty_reply_is_progress() -> None:
    async def drive(rollout: Rollout) -> None:
        await rollout.open()
        assert await rollout.step() is True
        await rollout.close()

    trace = await play(World(script={"model": returns(Response(message=AssistantMessage("")))}), drive=drive)
    assert trace.num_turns == 1


async def test_a_second_segment_without_a_turn_ends_the_exchange_too() -> None:
    world = World()

    async def drive(rollout: Rollout) -> None:
        await rollout.open()
        assert await rollout.step() is True
        world.script["segment"] = returns(None)
        assert await rollout.step("more") is False
        await rollout.close()

    trace = await play(world, drive=drive)
    assert trace.stop_condition == "no_progress"


# ---- the model's failures: L20, L21


def model_fails_once(*, then: Act | None = None) -> Act:
    calls: list[int] = []

    async def model() -> object:
        await trio.lowlevel.checkpoint()
        calls.append(1)
        if len(calls) == 1:
            raise ProviderError("down", status_code=503)
        return await then() if then else None

    return model


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        (returns(None), ""),
        (returns(ProgramResult(exit_code=0)), ""),
        (returns(ProgramResult(exit_code=3, stderr="api down")), "exited with 3"),
        (raises(ValueError, "mine"), "ValueError: mine"),
        (raises(HarnessError, "mine"), "mine"),
    ],
)
async def test_however_the_harness_exits_after_a_failed_call_the_failure_is_the_models(after: Act, cause: str) -> None:
    world = World(script={"model": model_fails_once()})

    async def segment() -> object:
        with pytest.raises(ProviderError, match="down"):
            await turn(world)
        return await after()

    world.script["segment"] = segment
    trace = await play(world)
    assert (error_types(trace), trace.stop_condition, world.state) == (["ProviderError"], "error", "failed")
    assert trace.errors[0].status_code == 503
    assert "down" in trace.errors[0].message
    assert cause in trace.errors[0].message
    assert "segment_ended" in [taken.trigger for taken in trace.transitions]


async def test_a_harness_that_passes_the_models_failure_on_leaves_one_error() -> None:
    trace = await play(World(script={"model": model_fails_once()}))
    assert [(error.type, error.message) for error in trace.errors] == [("ProviderError", "down")]


async def test_a_later_success_clears_the_failure() -> None:
    world = World(script={"model": model_fails_once()})

    async def segment() -> None:
        with pytest.raises(ProviderError):
            await turn(world)
        await turn(world)

    world.script["segment"] = segment
    trace = await play(world)
    assert (trace.ok, trace.num_turns, len(trace.calls)) == (True, 1, 2)
    assert [call.error.type if call.error else None for call in trace.calls] == ["ProviderError", None]


@pytest.mark.parametrize(("failing", "ok"), [(1, True), (3, False)])
async def test_which_call_was_last_is_decided_by_the_order_of_completion(failing: float, ok: bool) -> None:
    world = World()
    waits = iter([(failing, True), (2, False)])

    async def model() -> object:
        seconds, fails = next(waits)
        await trio.sleep(seconds)
        if fails:
            raise ProviderError("down")
        return None

    async def quietly(said: str) -> None:
        try:
            await world.exchange.respond(Asked(messages=(*world.exchange.prompt,)))
        except ProviderError:
            assert said

    async def segment() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quietly, "first")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(quietly, "second")

    world.script |= {"model": model, "segment": segment}
    trace = await play(world)
    assert trace.ok is ok
    assert trace.num_turns == 1
    assert error_types(trace) == ([] if ok else ["ProviderError"])


async def test_a_failure_of_an_earlier_segment_is_not_kept() -> None:
    world = World(script={"model": model_fails_once()})

    async def first() -> None:
        with pytest.raises(ProviderError):
            await turn(world)
        await turn(world)

    async def drive(rollout: Rollout) -> None:
        world.script["segment"] = first
        await rollout.open()
        assert await rollout.step() is True
        del world.script["segment"]
        assert await rollout.step("more") is True
        await rollout.close()

    assert (await play(world, drive=drive)).ok


async def test_the_deadline_and_a_cancellation_come_before_a_failed_model_call() -> None:
    world = World(script={"model": model_fails_once()})

    async def segment() -> None:
        with pytest.raises(ProviderError):
            await turn(world)
        await trio.sleep_forever()

    world.script["segment"] = segment
    trace = await play(world, timeouts=RolloutTimeouts(agent=10))
    assert error_types(trace) == ["HarnessError"]
    assert "agent timeout" in trace.errors[0].message


async def test_a_response_whose_message_is_none_is_a_failure_of_the_models() -> None:
    trace = await play(World(script={"model": returns(Response(message="text"))}))  # type: ignore[arg-type]
    assert error_types(trace) == ["ProviderError"]
    assert "'echo'" in trace.errors[0].message
    assert "AssistantMessage" in trace.errors[0].message


async def test_a_prompt_beyond_the_context_window_is_a_stop() -> None:
    world = World(turns=3)

    async def model() -> None:
        if len(world.seen) == 2:
            raise OverlongPromptError("too long", status_code=400)

    world.script["model"] = model
    trace = await play(world)
    assert (trace.ok, trace.stop_condition, trace.errors) == (True, "context_length", [])
    assert (trace.num_turns, trace.reward) == (1, 1.0)
    assert states(trace)[4:6] == ["stopping", "stopped"]


async def test_an_overlong_prompt_is_answered_as_a_refused_turn() -> None:
    world = World(script={"model": raises(OverlongPromptError, "too long")})

    async def segment() -> None:
        with pytest.raises(TurnRefused) as refused:
            await turn(world)
        assert refused.value.condition == "context_length"

    world.script["segment"] = segment
    assert (await play(world)).stop_condition == "context_length"


# ---- programs: L41


async def test_a_program_that_exits_with_an_error_is_a_harness_error_with_the_tail_of_its_words() -> None:
    result = ProgramResult(exit_code=9, stdout="out", stderr="start" + "x" * 5000 + "the end")
    trace = await play(World(script={"segment": returns(result)}))
    assert error_types(trace) == ["HarnessError"]
    message = trace.errors[0].message
    assert "9" in message
    assert message.endswith("the end")
    assert "start" not in message


async def test_a_program_that_said_nothing_on_stderr_is_quoted_from_stdout() -> None:
    trace = await play(World(script={"segment": returns(ProgramResult(exit_code=1, stdout="only here"))}))
    assert "only here" in trace.errors[0].message


# ---- calls at the end of a segment: L24


async def test_calls_in_flight_when_the_harness_returns_are_cancelled_and_commit_nothing() -> None:
    world = World()
    ended: list[str] = []

    async def model() -> None:
        if len(world.seen) == 1:
            return
        try:
            await trio.sleep_forever()
        finally:
            ended.append("model")

    async def segment() -> None:
        await turn(world)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(turn, world)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    world.script |= {"model": model, "segment": segment}
    trace = await play(world)
    assert (trace.ok, trace.num_turns, ended) == (True, 1, ["model"] * 3)


async def test_a_process_that_outlives_its_segment_gets_its_call_cut_off_and_the_segment_waits_for_it() -> None:
    world = World()
    told: list[str] = []

    async def model() -> None:
        try:
            await trio.sleep(60)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)

    async def outside() -> None:
        with pytest.raises(TurnRefused) as refused:
            await turn(world)
        told.append(str(refused.value))

    async with open_engine(gateway=False) as engine, trio.open_nursery() as outsiders:

        async def segment() -> None:
            outsiders.start_soon(outside)
            await trio.sleep(1)

        world.script |= {"segment": segment, "model": model}
        rollout = mint(engine, world, limits=RolloutLimits(max_turns=1))
        await rollout.open()
        started = trio.current_time()
        assert await rollout.step() is False
        assert trio.current_time() - started == 3
        assert rollout.trace.stop_condition == "no_progress"  # its place was given back, and nothing was committed
    assert len(told) == 1


async def test_a_stop_fired_by_one_call_refuses_the_later_turns_of_the_others() -> None:
    world = World(script={"model": sleeps(1)})
    refused: list[str | None] = []

    async def agent(first: float) -> None:
        await trio.sleep(first)
        for _ in range(5):
            try:
                await world.exchange.respond(Asked(messages=world.exchange.prompt))
            except TurnRefused as refusal:
                refused.append(refusal.condition)
                return

    async def segment() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent, 0)
            nursery.start_soon(agent, 0.5)

    world.script["segment"] = segment
    trace = await play(world, limits=RolloutLimits(max_turns=3))
    assert refused == ["max_turns", "max_turns"]
    assert (trace.num_turns, trace.stop_condition, trace.ok) == (3, "max_turns", True)
