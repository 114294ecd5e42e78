"""Every life is followed: the shipped states pass, and each property notices a life that breaks it and shows it."""

from collections.abc import Callable, Iterable

import pytest
from attrs import evolve

from rollout_fsm.machine import Declaration, Fault, Row, check_machine, load_machine
from rollout_fsm.machine.declaration import declare
from rollout_fsm.machine.lives import TURNS, births
from rollout_fsm.machine.paths import in_words
from rollout_fsm.machine.search import follow, search

SHIPPED = load_machine()
Edit = Callable[[Row], Row | None]


def edited(name: str, edit: Edit, *added: Row) -> Declaration:
    """The shipped states with the rows of one of them edited, or dropped where the edit gives None, and some added."""

    def rows(state_rows: Iterable[Row]) -> tuple[Row, ...]:
        return (*added, *(row for row in map(edit, state_rows) if row is not None))

    return declare(evolve(s, rows=rows(s.rows)) if s.name == name else s for s in SHIPPED.states.values())


def to(target: str, trigger: str, guard: str | None = None) -> Edit:
    """The row of this trigger and guard leads elsewhere."""
    return lambda row: evolve(row, to=target) if (row.trigger, row.guard) == (trigger, guard) else row


def without(trigger: str, guard: str | None) -> Edit:
    """The row of this trigger and guard is gone."""
    return lambda row: None if (row.trigger, row.guard) == (trigger, guard) else row


def found(declaration: Declaration) -> list[Fault]:
    """What following the lives finds on a declaration whose structure has no fault."""
    assert check_machine(declaration) == []
    return search(declaration)


def test_every_life_of_the_shipped_states_ends_as_it_must() -> None:
    assert search(SHIPPED) == []


def test_a_life_begins_with_every_combination_of_task_policy_and_runtime_that_can_be_minted() -> None:
    minted = [*births(SHIPPED)]
    assert len(minted) == 3 * 2**3  # no prompt, a prompt, a user; two policies and a runtime
    assert {life.state for life in minted} == {"created"}
    assert not [life for life in minted if life.has_user and not life.opens_conversation]


def test_the_situations_of_all_lives_are_in_every_state_and_use_up_the_turns() -> None:
    lives = follow(SHIPPED)
    assert {situation.life.state for situation in lives.situations} == set(SHIPPED.states)
    assert {situation.life.turns for situation in lives.situations} == set(range(TURNS + 1))
    assert {row for onward in lives.onward for row, _ in onward} - {None} == set(SHIPPED.rows)


def test_s1_notices_a_life_that_goes_on_for_ever_without_a_turn() -> None:
    def unguarded(row: Row) -> Row:
        if row.trigger == "segment_ended" and row.sets == "no_progress":
            return evolve(row, to="waiting", sets=None)
        return row

    fault = next(fault for fault in found(edited("stepping", unguarded)) if fault.property == "S1")
    assert fault.message == "waiting (opens_conversation): can go on for ever without a turn"
    assert in_words(fault.path).endswith("waiting -step-> stepping -segment_ended-> waiting -step-> stepping")


def test_s2_notices_a_state_that_close_does_not_end() -> None:
    fault = found(edited("stopped", to("(same)", "close")))[0]
    assert fault.property == "S2"
    assert fault.message.endswith("the outcomes of its activities and `close` lead to no end")
    assert fault.states == ("stopped",)


def test_s2_notices_an_activity_that_nobody_waits_for() -> None:
    (fault,) = found(edited("waiting", to("discarding", "errored")))
    assert (fault.property, fault.states) == ("S2", ("waiting",))
    assert fault.message.endswith("'errored' starts an activity, and nobody waits for it")
    assert in_words(fault.path).endswith("waiting -errored-> discarding")


LEADS_BACK = [
    ("stopped", "close", None),
    ("failing", "close", None),
    ("stepping", "timed_out", "expiry_stops"),
    ("stepping", "segment_ended", "advanced"),
    ("stopping", "errored", None),
    ("setup", "ready", "stop_requested"),
]


@pytest.mark.parametrize(("name", "trigger", "guard"), LEADS_BACK)
def test_s1_notices_a_row_that_leads_back_to_where_it_came_from(name: str, trigger: str, guard: str | None) -> None:
    fault = next(fault for fault in search(edited(name, to(name, trigger, guard))) if fault.property == "S1")
    assert fault.states == (name,)
    assert in_words(fault.path).endswith(f"{name} -{trigger}{f'[{guard}]' if guard else ''}-> {name}")


def test_s3_notices_a_row_that_no_life_takes() -> None:
    never = Row(source="waiting", trigger="step", guard="stop_requested", to="stopped")
    (fault,) = found(edited("waiting", lambda row: row, never))
    assert str(fault) == "S3: no life takes waiting | step [stop_requested] -> stopped"


BROKEN_PROMISES = {
    "an expired agent budget is scored": (
        "stepping", to("stopped", "timed_out"), "stopped", "goes on to be scored, and must end failed",
    ),
    "an expired agent budget fails where it should stop": (
        "stepping", without("timed_out", "expiry_stops"), "failing", "must have agent_timeout",
    ),
    "a failed model call is forgotten": (
        "stepping", without("segment_ended", "model_failed"), "waiting", "has no error on the trace",
    ),
    "an agent that lives on is finalized": (
        "stopping", without("errored", "agent_survives"), "stopped", "goes on to be scored, and must end failed",
    ),
    "a stop is not heeded": (
        "stepping", without("segment_ended", "stop_requested"), "waiting", "may go on although a stop condition is set",
    ),
    "a stop before the first segment is not heeded": (
        "setup", without("ready", "stop_requested"), "waiting", "may go on although a stop condition is set",
    ),
    "a lost runtime is blamed on the rollout": (
        "booting", without("errored", "runtime_lost"), "failing", "must have None",
    ),
    "a user that closes is not told from an agent that completes": (
        "waiting", without("close", "has_user"), "closing", "must have user_closed",
    ),
    "a cancellation ends as a failure": (
        "setup", to("failing", "cancel"), "failed", "ends here, and must end aborted",
    ),
    "setup is left out": (
        "booting", to("waiting", "booted"), "stepping", "began the activity 'segment' out of turn",
    ),
    "a harness that does nothing goes on": (
        "stepping", without("segment_ended", "no_progress_fails"), "stopped", "must have error",
    ),
}  # fmt: skip


@pytest.mark.parametrize("promise", BROKEN_PROMISES)
def test_s4_notices_a_broken_promise_and_shows_the_life_that_breaks_it(promise: str) -> None:
    name, edit, state, message = BROKEN_PROMISES[promise]
    faults = [fault for fault in search(edited(name, edit)) if fault.property == "S4"]
    assert [fault for fault in faults if fault.states == (state,) and message in fault.message], faults
    assert all(fault.path[0].source == "created" for fault in faults)


def test_a_promise_is_said_to_be_broken_where_it_is_broken_and_not_again_for_what_follows() -> None:
    (fault,) = found(edited("stopping", without("errored", "agent_survives")))
    assert in_words(fault.path).endswith("-refused-> stopping -errored-> stopped")
