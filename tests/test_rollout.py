"""The verbs, in every state: what each returns, raises and changes (L10, L11, L22, L23, L43, L50, L53, L72).

The table is the contract's, written out; nothing of it is read off the code. Who moves a rollout is tested too: the
machine, and nothing else.
"""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import transitions.core
import trio
import trio.testing
from attrs import frozen

from rollout_fsm import (
    AssistantMessage,
    IllegalTransition,
    Rollout,
    RolloutBusyError,
    Trace,
    TurnRefused,
    UserMessage,
    check_trace,
    open_engine,
)
from tests.world import (
    FINAL,
    HELD_AT,
    RESTING,
    STATES,
    Held,
    OwnersError,
    World,
    error_types,
    held_in,
    mint,
    play,
    raises,
    sleeps,
    whole,
    world_task,
)

SHIELDED = ("closing", "releasing", "discarding", "aborting")
SCORED = ("closing", "finalizing", "scoring", "releasing", "completed")


@frozen
class Answer:
    """What a verb does at once: what it returns or raises, and the state it leaves the rollout in."""

    gives: object
    state: str
    began: int = 0
    """How many segments it ran."""


def in_progress(state: str) -> bool:
    return state in HELD_AT and state != "aborting"


def refused(state: str, kind: type[Exception] = IllegalTransition) -> Answer:
    return Answer(kind, state)


BUSY = {state: refused(state, RolloutBusyError) for state in HELD_AT if state != "aborting"}
OPEN = BUSY | {
    "created": Answer(True, "waiting"),
    **{state: refused(state) for state in ("waiting", "stopped", "failing", "completed", "failed")},
    "aborting": Answer(False, "aborted"),
    "aborted": Answer(False, "aborted"),
}
STEP = BUSY | {
    "created": refused("created"),
    "waiting": Answer(True, "waiting", began=1),
    "stopped": Answer(False, "stopped"),
    "failing": Answer(False, "failing"),
    "completed": refused("completed"),
    "failed": refused("failed"),
    "aborting": Answer(False, "aborted"),
    "aborted": Answer(False, "aborted"),
}
ENDS = {
    "created": "aborted",
    "booting": "completed",
    "setup": "completed",
    "waiting": "completed",
    "stepping": "completed",
    "stopping": "completed",
    "stopped": "completed",
    "closing": "completed",
    "finalizing": "completed",
    "scoring": "completed",
    "releasing": "completed",
    "completed": "completed",
    "failing": "failed",
    "discarding": "failed",
    "failed": "failed",
    "aborting": "aborted",
    "aborted": "aborted",
}
"""Where `close` brings it."""
CANCELLED = dict.fromkeys(STATES, "aborted") | {
    "releasing": "completed",
    "completed": "completed",
    "discarding": "failed",
    "failed": "failed",
}
"""Where `cancel` brings it (L71, L72)."""


def test_the_tables_cover_every_state() -> None:
    for table in (OPEN, STEP, ENDS, CANCELLED):
        assert set(table) == set(STATES)
    assert len(STATES) == 17


async def outcome_of(held: Held, verb: str, *arguments: object) -> object:
    """What an async verb returns or raises, with the rollout's activity let go of once the verb waits for it."""
    found: list[object] = []

    async def call() -> None:
        try:
            found.append(await getattr(held.rollout, verb)(*arguments))
        except IllegalTransition as raised:
            found.append(type(raised))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        if not found:
            held.gate.set()
    return found[0]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("verb", "table"), [("open", OPEN), ("step", STEP)])
async def test_open_and_step_in_every_state(verb: str, table: dict[str, Answer], state: str) -> None:
    async with held_in(state) as held:
        before, segments = list(held.rollout.trace.transitions), held.world.began.count("segment")
        answer = table[state]
        arguments = ("go on",) if verb == "step" else ()
        assert await outcome_of(held, verb, *arguments) is answer.gives
        assert held.rollout.state == answer.state
        assert held.world.began.count("segment") - segments == answer.began
        if isinstance(answer.gives, type):
            assert held.rollout.trace.transitions == before


@pytest.mark.parametrize("state", STATES)
async def test_close_in_every_state_returns_the_finished_trace(state: str) -> None:
    async with held_in(state) as held:
        assert await outcome_of(held, "close") is held.rollout.trace
        assert held.rollout.state == ENDS[state]
        assert await held.rollout.close() is held.rollout.trace


@pytest.mark.parametrize("state", STATES)
async def test_cancel_in_every_state_returns_when_the_rollout_is_final(state: str) -> None:
    async with held_in(state) as held:
        assert await outcome_of(held, "cancel") is None
        assert held.rollout.state == CANCELLED[state]
    if state in HELD_AT:
        expected = held.rollout.trace if state in (*SCORED, "discarding") else None if state == "aborting" else False
        assert held.pending == [expected]


@pytest.mark.parametrize("state", STATES)
async def test_cancel_from_another_task_lets_a_waiting_close_return(state: str) -> None:
    async with held_in(state) as held:
        found: list[object] = []

        async def close(found: list[object], held: Held) -> None:
            found.append(await held.rollout.close())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(close, found, held)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(held.rollout.cancel)
            await trio.testing.wait_all_tasks_blocked()
            held.gate.set()
        assert found == [held.rollout.trace]


OVER = ("stopped", "failing", "discarding", "aborting", *SCORED, *FINAL)


@pytest.mark.parametrize("state", STATES)
async def test_stop_in_every_state_never_raises_and_moves_waiting_alone(state: str) -> None:
    async with held_in(state) as held:
        rollout = held.rollout
        before, count = rollout.trace.stop_condition, len(rollout.trace.transitions)
        rollout.stop("operator")
        assert rollout.state == ("stopped" if state == "waiting" else state)
        assert len(rollout.trace.transitions) - count == (state == "waiting")
        first = "operator" if before is None and state not in OVER else before
        assert rollout.trace.stop_condition == first


@pytest.mark.parametrize("state", ["booting", "setup", "stepping"])
async def test_a_stop_during_a_call_makes_that_call_return_false(state: str) -> None:
    async with held_in(state) as held:
        held.rollout.stop("operator")
        held.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert held.pending == [False]
        assert held.rollout.state == "stopped"
        trace = await held.rollout.close()
        assert (trace.ok, trace.stop_condition) == (True, "operator")


async def test_a_stop_before_open_is_met_after_setup() -> None:
    world = World()
    async with open_engine(gateway=False) as engine, mint(engine, world) as rollout:
        rollout.stop("operator")
        assert await rollout.open() is False
        assert rollout.state == "stopped"
        assert await rollout.step() is False
    assert "segment" not in world.began
    assert rollout.trace.ok
    assert rollout.trace.stop_condition == "operator"


async def test_a_stop_during_a_segment_refuses_the_next_turn() -> None:
    world = World(turns=3)

    async def model() -> None:
        rollout.stop("operator")

    world.script["model"] = model
    async with open_engine(gateway=False) as engine, mint(engine, world) as rollout:
        await rollout.open()
        assert await rollout.step() is False
    assert rollout.trace.num_turns == 1
    assert [taken.trigger for taken in rollout.trace.transitions].count("refused") == 1
    assert (rollout.trace.ok, rollout.trace.stop_condition) == (True, "operator")


@pytest.mark.parametrize("condition", ["", None, 3])
async def test_a_stop_condition_is_text(condition: object) -> None:
    async with held_in("waiting") as held:
        with pytest.raises(TypeError, match="stop condition as text"):
            held.rollout.stop(condition)  # type: ignore[arg-type]
        assert held.rollout.state == "waiting"


@pytest.mark.parametrize("state", STATES)
async def test_fail_in_every_state(state: str, caplog: pytest.LogCaptureFixture) -> None:
    async with held_in(state) as held:
        rollout = held.rollout
        errors, path = error_types(rollout.trace), len(rollout.trace.transitions)
        if in_progress(state):
            with pytest.raises(RolloutBusyError, match="one caller drives"):
                rollout.fail(ValueError("late"))
        else:
            with caplog.at_level(logging.WARNING, "rollout_fsm"):
                rollout.fail(ValueError("late"))
        if state in RESTING:
            assert rollout.state == "failing"
            assert error_types(rollout.trace) == [*errors, "ValueError"]
            assert rollout.trace.errors[-1].message == "late"
        else:
            assert rollout.state == state
            assert error_types(rollout.trace) == errors
            assert len(rollout.trace.transitions) == path
        assert ("late" in caplog.text) is (state in (*FINAL, "aborting"))


async def test_the_primary_cause_of_a_failure_is_the_first() -> None:
    async with held_in("failing") as held:
        held.rollout.fail(ExceptionGroup("more", [KeyError("a"), ExceptionGroup("inner", [ValueError("b")])]))
        assert error_types(held.rollout.trace) == ["OwnersError", "KeyError", "ValueError"]
        assert held.rollout.failure == held.rollout.trace.errors[0]
        assert await held.rollout.close() is held.rollout.trace
    assert (held.rollout.trace.ok, held.rollout.trace.stop_condition) == (False, "error")


async def test_a_waiter_of_close_that_is_cancelled_is_cancelled_alone() -> None:
    async with held_in("stepping") as held:
        with trio.move_on_after(0) as scope:
            await held.rollout.close()
        assert scope.cancelled_caught
        assert held.rollout.state == "stepping"
        held.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert held.pending == [False]  # the held segment made no turn
        assert held.rollout.state == "stopped"


async def test_no_verb_moves_a_rollout_whose_call_is_in_progress() -> None:
    async with held_in("setup") as held:
        for verb in (held.rollout.open, held.rollout.step):
            with pytest.raises(RolloutBusyError, match="'setup'"):
                await verb()
        assert held.rollout.state == "setup"
        held.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert held.pending == [True]


async def test_a_busy_rollout_is_a_kind_of_illegal_transition() -> None:
    assert issubclass(RolloutBusyError, IllegalTransition)


@pytest.mark.parametrize("messages", [None, [], ""])
async def test_a_step_without_anything_to_say_is_a_type_error_and_changes_nothing(messages: object) -> None:
    world = World()
    async with open_engine(gateway=False) as engine:  # noqa: SIM117
        async with mint(engine, world, task=world_task(world, prompt=None), has_user=True) as rollout:
            await rollout.open()
            path = list(rollout.trace.transitions)
            if messages == "":
                assert await rollout.step("") is True  # an empty message is one
                return
            with pytest.raises(TypeError, match="pass messages"):
                await rollout.step(messages)  # type: ignore[arg-type]
            assert rollout.trace.transitions == path
            assert "segment" not in world.began
            assert await rollout.step("hello") is True


async def test_the_first_segment_takes_the_prompt_and_later_ones_what_is_said() -> None:
    world = World()

    async def drive(rollout: Rollout) -> None:
        await rollout.open()
        assert await rollout.step() is True
        with pytest.raises(TypeError):
            await rollout.step()
        assert await rollout.step(["one", UserMessage("two")]) is True
        assert await rollout.step(UserMessage("three")) is True
        await rollout.close()

    trace = await play(world, drive=drive, has_user=True)
    assert world.said == [None, (UserMessage("one"), UserMessage("two")), (UserMessage("three"),)]
    reply = AssistantMessage("reply")
    spoken = [UserMessage("hello"), reply, *map(UserMessage, ("one", "two")), reply, UserMessage("three"), reply]
    assert [node.message for node in trace.nodes] == spoken


async def test_the_first_segment_takes_the_prompt_and_the_users_messages() -> None:
    world = World()

    async def drive(rollout: Rollout) -> None:
        await rollout.open()
        await rollout.step("and this")
        await rollout.close()

    trace = await play(world, drive=drive, has_user=True)
    assert [node.message.text for node in trace.nodes] == ["hello", "and this", "reply"]


async def test_a_task_without_prompt_and_user_fails_before_anything_is_started() -> None:
    world = World()
    trace = await play(world, task=world_task(world, prompt=None))
    assert world.began == []
    assert world.state == "failed"
    assert error_types(trace) == ["TaskError"]
    assert "no prompt" in trace.errors[0].message
    assert (trace.ok, trace.is_completed, trace.stop_condition) == (False, True, "error")


@pytest.mark.parametrize(("has_user", "condition"), [(True, "user_closed"), (False, "agent_completed")])
@pytest.mark.parametrize("steps", [0, 1])
async def test_closing_a_waiting_exchange_says_who_ended_it(has_user: bool, condition: str, steps: int) -> None:
    async def drive(rollout: Rollout) -> None:
        await rollout.open()
        for _ in range(steps):
            await rollout.step()
        await rollout.close()

    trace = await play(World(), drive=drive, has_user=has_user)
    assert (trace.stop_condition, trace.ok) == (condition, True)


async def test_a_rollout_that_was_never_opened_is_aborted_by_close_and_starts_nothing() -> None:
    world = World()
    trace = await play(world, drive=lambda rollout: rollout.close())
    assert world.state == "aborted"
    assert world.began == []
    assert (trace.ok, trace.is_completed, trace.errors) == (False, True, [])


@pytest.mark.parametrize(
    ("event", "ends"),
    [("task.setup", "failed"), ("segment", "failed"), ("finalize", "failed"), ("score.good", "failed")],
)
async def test_close_returns_the_trace_of_a_failed_run_neither_finalized_nor_scored_again(
    event: str, ends: str
) -> None:
    world = World(script={event: raises(ValueError, "wrong")})
    trace = await play(world)
    assert (world.state, trace.ok, trace.is_completed) == (ends, False, True)
    assert ("finalize" in world.began) is (event in ("finalize", "score.good"))
    assert ("score.good" in world.began) is (event == "score.good")
    assert world.began.count("runtime.stop") == 1


@pytest.mark.parametrize("state", STATES)
async def test_ok_is_true_in_completed_alone_and_completed_means_final(state: str) -> None:
    async with held_in(state) as held:
        trace = held.rollout.trace
        assert trace.ok is held.rollout.ok is (state == "completed")
        assert trace.is_completed is trace.sealed is held.rollout.is_final is (state in FINAL)


ADMITTED = ("stepping",)


@pytest.mark.parametrize("state", [state for state in STATES if state not in ("created", "booting")])
async def test_a_model_call_is_admitted_in_stepping_alone(state: str) -> None:
    async with held_in(state) as held:
        if held.world.session is None:  # let go of when the harness was cleaned up, or not opened yet
            assert state in ("setup", *FINAL)
            return
        session, turns = held.world.session, held.rollout.trace.num_turns
        if state in ADMITTED:
            assert (await session.turn()).message.text == "reply"
            assert held.rollout.trace.num_turns == turns + 1
            return
        said = {"waiting": "no segment is running", "stopping": "rollout stopped: enough"}
        with pytest.raises(TurnRefused, match=said.get(state, "rollout concluded")) as refusal:
            await session.turn()
        assert refusal.value.condition == ("enough" if state == "stopping" else None)
        assert held.rollout.trace.num_turns == turns
        assert held.rollout.state == state


@pytest.mark.parametrize("ending", FINAL)
async def test_a_call_after_the_end_is_told_that_the_rollout_is_concluded(ending: str) -> None:
    async with held_in("waiting") as held:
        assert held.world.session is not None
        session = held.world.session
        if ending == "failed":
            held.rollout.fail(OwnersError())
        await (held.rollout.cancel if ending == "aborted" else held.rollout.close)()
        assert held.rollout.state == ending
        with pytest.raises(TurnRefused, match="rollout concluded"):
            await session.turn()
        assert held.rollout.trace.nodes == []


async def test_a_call_during_setup_is_refused_since_no_segment_runs() -> None:
    async def opening() -> None:
        assert world.session is not None
        with pytest.raises(TurnRefused, match="no segment is running"):
            await world.session.turn()

    world = World(script={"session.open": opening})
    trace = await play(world)
    assert trace.ok
    assert trace.num_turns == 1


# ---- who moves a rollout


async def test_a_machine_whose_transitions_refuse_to_execute_stops_every_rollout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        with monkeypatch.context() as patch:
            patch.setattr(transitions.core.Transition, "execute", lambda self, event_data: False)
            for verb in (rollout.open, rollout.close, rollout.cancel):
                with pytest.raises(IllegalTransition):
                    await verb()
        assert (rollout.state, rollout.trace.transitions, world.began) == ("created", [], [])


@pytest.mark.parametrize("point", ["booting", "stepping", "closing"])
async def test_a_machine_that_refuses_halfway_leaves_the_rollout_where_it_is(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = transitions.core.Transition.execute

    def until(self: transitions.core.Transition, event_data: transitions.core.EventData) -> bool:
        return self.source != point and execute(self, event_data)

    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        with monkeypatch.context() as patch, pytest.raises(IllegalTransition):  # noqa: PT012
            patch.setattr(transitions.core.Transition, "execute", until)
            await whole(rollout)
        assert rollout.trace.transitions[-1].target == point
        rollout.state = "aborted"  # nothing but the machine can end it, and that was taken away
        engine._register.live.clear()


@pytest.mark.parametrize(
    ("script", "drive"),
    [
        ({}, whole),
        ({"model": raises(ValueError)}, whole),
        ({"task.setup": raises(ValueError)}, whole),
        ({"score.good": raises(ValueError)}, whole),
        ({}, lambda rollout: rollout.close()),
        ({}, lambda rollout: rollout.cancel()),
    ],
)
async def test_the_states_that_the_library_set_are_the_recorded_history(
    script: dict[str, Callable[[], object]], drive: Callable[[Rollout], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_state = transitions.core.Machine.set_state
    seen: list[str] = []

    def recorded(self: transitions.core.Machine, state: Any, *arguments: Any, **keywords: Any) -> None:
        seen.append(getattr(state, "name", state))
        set_state(self, state, *arguments, **keywords)

    monkeypatch.setattr(transitions.core.Machine, "set_state", recorded)
    world = World(script=dict(script))  # type: ignore[arg-type]
    trace = await play(world, drive=drive)  # type: ignore[arg-type]
    assert seen == [taken.target for taken in trace.transitions]
    assert seen[-1] == world.state
    assert trace.transitions[0].source == "created"


async def test_a_whole_rollout_goes_through_the_declared_states_and_conforms() -> None:
    world = World(turns=2)
    trace = await play(world, task=world_task(world, served=("a", "b")))
    assert [taken.target for taken in trace.transitions] == [
        "booting", "setup", "waiting", "stepping", "waiting", "closing", "finalizing", "scoring", "releasing",
        "completed",
    ]  # fmt: skip
    assert check_trace(trace) == []
    assert world.began == [
        "runtime.start", "runtime.prepare_setup", "task.setup", "harness.setup", "tools.start:a", "tools.start:b",
        "runtime.prepare_execution", "session.open", "segment", "model", "model", "session.close", "tools.stop:b",
        "tools.stop:a", "finalize", "score.steps", "score.good", "harness.cleanup", "runtime.stop",
    ]  # fmt: skip
    assert (trace.reward, trace.metrics, trace.num_turns) == (1.0, {"steps": 2.0}, 2)


async def test_a_rollout_says_in_one_line_what_it_is() -> None:
    async with held_in("stopped") as held:
        said = repr(held.rollout)
        assert held.rollout.trace.id in said
        assert "stopped" in said
        assert "stop=enough" in said
        assert "\n" not in said


async def test_one_line_is_logged_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rollout_fsm"):
        trace = await play(World())
        failed = await play(World(script={"task.setup": raises(ValueError)}))
    lines = [line for line in caplog.messages if line.startswith("rollout done: ")]
    assert lines == [
        f"rollout done: id={trace.id} task=WorldTask reward=1.0 turns=1 stop=agent_completed",
        f"rollout done: id={failed.id} task=WorldTask reward=None turns=0 stop=TaskError",
    ]
    assert isinstance(trace, Trace)


# ---- left while another task drives: L43, L70


async def test_a_block_left_by_an_exception_while_another_task_drives_fails_the_rollout_after_that_call() -> None:
    world = World(script={"segment": sleeps(10)})
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        rollout = mint(engine, world, has_user=True)
        went_on: list[bool] = []

        async def drive() -> None:
            await rollout.open()
            while await rollout.step("and then?"):
                went_on.append(True)
            await rollout.close()

        nursery.start_soon(drive)
        await trio.sleep(5)
        with pytest.raises(OwnersError):
            async with rollout:
                raise OwnersError("mine")
        assert trio.current_time() == 10
    assert (rollout.state, went_on) == ("failed", [])
    assert error_types(rollout.trace) == ["OwnersError"]
    assert check_trace(rollout.trace) == []
