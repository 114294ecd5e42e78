"""The shipped states say what LIFECYCLE.md says, no more and no less."""

import pytest

from rollout_fsm.machine import GUARDS, load_machine
from rollout_fsm.machine.declaration import Declaration
from rollout_fsm.machine.vocabulary import ACTIVITIES, TRIGGERS

from . import oracle


@pytest.fixture(scope="module")
def shipped() -> Declaration:
    return load_machine()


def test_every_row_of_the_contract_is_declared_in_its_order_and_no_other(shipped: Declaration) -> None:
    declared: dict[tuple[str, str], list[oracle.OracleRow]] = {}
    for row in shipped.rows:
        declared.setdefault((row.source, row.trigger), []).append((row.guard, row.to, row.sets))
    assert declared == oracle.table()
    assert len(shipped.rows) == 86


def test_every_state_is_declared_with_its_kind_span_activity_bound_and_group(shipped: Declaration) -> None:
    declared = [
        [state.name, state.kind, state.span or "", state.activity or "", state.bound or "", state.group]
        for state in shipped.states.values()
    ]
    assert declared == [oracle.cells(line) for line in oracle.STATES.strip().splitlines()]
    assert [state.name for state in shipped.states.values() if state.initial] == ["created"]
    assert shipped.initial is shipped.state("created")


def test_the_guards_are_those_of_the_contract() -> None:
    assert tuple(GUARDS) == oracle.GUARDS
    assert all(guard.name == name for name, guard in GUARDS.items())


def test_errors_are_raised_exactly_where_the_runtime_is_lost(shipped: Declaration) -> None:
    assert {row for row in shipped.rows if row.error == "raise"} == {
        row for row in shipped.rows if row.guard == "runtime_lost"
    }


def test_errors_are_recorded_exactly_on_the_ways_into_a_failure_and_where_one_is_appended(shipped: Declaration) -> None:
    recorded = {(row.source, row.trigger, row.guard) for row in shipped.rows if row.error == "record"}
    into_failure = {
        (row.source, row.trigger, row.guard)
        for row in shipped.rows
        if row.to in ("failing", "discarding") and row.trigger != "close"
    }
    warned = {
        ("stopping", "errored", "agent_survives")
    }  # what a refused harness raises is a warning, whatever survives
    assert recorded == into_failure - warned | {("failing", "errored", None)}
    assert all(row.sets == "error" for row in shipped.rows if row.error == "record" and not row.same)


def test_an_error_is_a_warning_only_when_a_refused_harness_exits_with_one(shipped: Declaration) -> None:
    assert [str(row) for row in shipped.rows if row.error == "warn"] == [
        "stopping | errored [agent_survives] -> failing",
        "stopping | errored -> stopped",
    ]


def test_every_answer_has_a_reason_and_every_meaning_is_one_sentence(shipped: Declaration) -> None:
    assert [str(row) for row in shipped.rows if row.same and not row.reason] == []
    for state in shipped.states.values():
        assert state.meaning.endswith(".")
        assert ". " not in state.meaning


def test_an_answer_has_its_source_as_target(shipped: Declaration) -> None:
    rows = [row for row in shipped.rows if row.same]
    assert rows
    assert all(row.target == row.source for row in rows)
    assert all(row.target == row.to for row in shipped.rows if not row.same)


def test_outcomes_belong_to_activities_and_the_callers_verbs_do_not() -> None:
    outcomes = {outcome for listed in ACTIVITIES.values() for outcome in listed}
    assert outcomes == {trigger for trigger, firer in TRIGGERS.items() if firer != "caller"}


def test_a_state_that_is_asked_for_by_a_wrong_name_is_answered_with_the_nearest(shipped: Declaration) -> None:
    with pytest.raises(KeyError, match="no state 'stoped'; did you mean 'stopped'"):
        shipped.state("stoped")
