"""The compiled machine is the declared one; where it is another, the state, the trigger and the facts are named."""

from attrs import evolve

from rollout_fsm.machine import Declaration, Row, compile_machine, load_machine, prove
from rollout_fsm.machine.declaration import declare
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.machine.proofs import PROPERTIES
from rollout_fsm.machine.sweep import sweep

SHIPPED = load_machine()


def rows_of(name: str, *rows: Row) -> Declaration:
    """The shipped states, one of them with other rows."""
    return declare(evolve(state, rows=rows) if state.name == name else state for state in SHIPPED.states.values())


def test_the_machine_that_runs_is_the_declared_one() -> None:
    assert sweep(lifecycle(), SHIPPED) == []


def test_a_machine_that_takes_another_row_is_noticed_with_the_facts_that_show_it() -> None:
    waiting = SHIPPED.state("waiting").rows
    other = rows_of("waiting", *(evolve(row, to="closing") if row.trigger == "stop" else row for row in waiting))
    (fault,) = sweep(compile_machine(other), SHIPPED)
    assert (fault.property, fault.states) == ("M1", ("waiting",))
    assert fault.message.startswith(
        "waiting: 'stop' takes waiting | stop -> closing and ends in closing, "
        "where the table says waiting | stop -> stopped, when not opens_conversation, not has_user, "
    )


def test_a_machine_that_refuses_what_is_declared_and_takes_what_is_not_is_noticed() -> None:
    waiting = SHIPPED.state("waiting").rows
    without = rows_of("waiting", *(row for row in waiting if row.trigger != "stop"))
    (missing,) = sweep(compile_machine(without), SHIPPED)
    assert "'stop' takes no row and ends in waiting, where the table says waiting | stop -> stopped" in missing.message
    (added,) = sweep(lifecycle(), without)
    assert "'stop' takes waiting | stop -> stopped and ends in stopped, where the table says that it is refused" in (
        added.message
    )


def test_a_row_that_is_not_declared_is_noticed_even_where_a_guard_hides_it() -> None:
    waiting = SHIPPED.state("waiting").rows
    added = Row(source="waiting", trigger="ready", guard="has_user", to="stopped")
    (fault,) = sweep(compile_machine(rows_of("waiting", *waiting, added)), SHIPPED)
    assert "'ready' takes waiting | ready [has_user] -> stopped and ends in stopped" in fault.message


def test_a_guard_that_the_machine_asks_otherwise_is_noticed() -> None:
    setup = SHIPPED.state("setup").rows
    swapped = rows_of(
        "setup", *(evolve(row, guard="has_user") if row.guard == "stop_requested" else row for row in setup)
    )
    (fault,) = sweep(compile_machine(swapped), SHIPPED)
    assert fault.message.startswith("setup: 'ready' takes ")


def test_everything_is_proven_of_the_shipped_states() -> None:
    assert prove(SHIPPED) == []
    assert list(PROPERTIES) == [*(f"P{number}" for number in range(1, 11)), "D1", "D2", "S1", "S2", "S3", "S4", "M1"]


def test_lives_are_followed_only_on_a_declaration_that_is_sound() -> None:
    unsound = rows_of("waiting", *(row for row in SHIPPED.state("waiting").rows if row.trigger != "close"))
    assert {fault.property for fault in prove(unsound)} == {"P7", "P10"}
