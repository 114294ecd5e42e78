"""The proofs hold for the shipped states, and each of them notices its own violation and shows a way to it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import evolve

from rollout_fsm.machine import Declaration, Fault, Row, check_machine, load_machine
from rollout_fsm.machine.declaration import declare
from rollout_fsm.machine.paths import in_words

SHIPPED = load_machine()


def changed(name: str, **changes: Any) -> Declaration:
    """The shipped states with one of them changed."""
    return declare(evolve(state, **changes) if state.name == name else state for state in SHIPPED.states.values())


def rows(name: str, *added: Row, drop: Callable[[Row], bool] = lambda row: False) -> Declaration:
    """The shipped states with rows of one state dropped and added."""
    kept = tuple(row for row in SHIPPED.state(name).rows if not drop(row))
    return changed(name, rows=(*kept, *added))


def row(source: str, trigger: str, to: str, guard: str | None = None) -> Row:
    return Row(source=source, trigger=trigger, to=to, guard=guard)  # type: ignore[arg-type]


def of(faults: Sequence[Fault], property_: str) -> list[Fault]:
    return [fault for fault in faults if fault.property == property_]


def test_the_shipped_states_have_no_fault() -> None:
    assert check_machine(SHIPPED) == []


def test_p1_notices_a_state_that_cannot_be_reached() -> None:
    faults = of(check_machine(rows("setup", drop=lambda row: row.to == "waiting")), "P1")
    assert {fault.states for fault in faults} == {("waiting",), ("stepping",), ("stopping",)}
    assert all(fault.message == f"{fault.states[0]}: cannot be reached from the initial state" for fault in faults)
    assert all(fault.path == () for fault in faults)


def test_p1_notices_a_state_without_a_way_to_the_end_and_shows_the_way_to_it() -> None:
    faults = of(check_machine(rows("discarding", row("discarding", "released", "discarding"), drop=bool)), "P1")
    stuck = next(fault for fault in faults if fault.states == ("discarding",))
    assert str(stuck) == (
        "P1: discarding: no final state can be reached from it "
        "(created -open-> failing -close-> discarding)"
    )  # fmt: skip


def test_p1_notices_a_final_state_that_can_be_left() -> None:
    (fault,) = of(check_machine(rows("failed", row("failed", "open", "booting"))), "P1")
    assert fault.message == "failed: is final, and yet left by 'open'"
    assert in_words(fault.path).endswith("-released-> failed -open-> booting")


def test_p1_notices_that_there_is_not_exactly_one_initial_state() -> None:
    (two,) = check_machine(changed("waiting", initial=True))
    assert str(two) == "P1: exactly one state is the initial one, not created, waiting"
    (none,) = check_machine(changed("created", initial=False))
    assert str(none) == "P1: exactly one state is the initial one, not none"


@pytest.mark.parametrize(
    ("name", "trigger", "to"),
    [("failing", "close", "closing"), ("discarding", "released", "completed"), ("aborting", "released", "scoring")],
)
def test_p2_notices_that_a_failed_or_aborted_run_can_be_scored(name: str, trigger: str, to: str) -> None:
    faults = of(check_machine(rows(name, row(name, trigger, to), drop=lambda row: row.trigger == trigger)), "P2")
    fault = next(fault for fault in faults if fault.states == (name,) and f"leads to {to}," in fault.message)
    assert fault.path[0].source == "created"
    assert f"{name} -{trigger}-> {to}" in in_words(fault.path)


def test_p3_notices_a_way_to_completed_that_leaves_scoring_out() -> None:
    (fault,) = of(
        check_machine(rows("finalizing", row("finalizing", "finalized", "releasing"), drop=is_finalized)), "P3"
    )
    assert fault.message.startswith("completed is reached out of order")
    assert "finalizing -finalized-> releasing" in in_words(fault.path)


def is_finalized(row: Row) -> bool:
    return row.trigger == "finalized"


def test_p3_notices_a_way_to_completed_past_all_of_them() -> None:
    (fault,) = of(check_machine(rows("stopped", row("stopped", "close", "completed"), drop=is_close)), "P3")[:1]
    assert fault.message.startswith("completed is reached without closing")
    assert in_words(fault.path).endswith("stopped -close-> completed")


def is_close(row: Row) -> bool:
    return row.trigger == "close"


def test_p4_notices_a_way_to_the_end_without_a_release() -> None:
    faults = of(check_machine(rows("failing", row("failing", "close", "failed"), drop=is_close)), "P4")
    assert [fault.states for fault in faults] == [("failed",)]
    assert str(faults[0]) == (
        "P4: failed is reached without a release; exactly one of releasing, discarding, aborting lies on every way "
        "(created -open-> failing -close-> failed)"
    )


def test_p4_notices_a_second_release() -> None:
    faults = of(check_machine(rows("discarding", row("discarding", "released", "aborting"), drop=bool)), "P4")
    assert [fault.message.partition(";")[0] for fault in faults] == ["aborted is reached after more than one release"]
    assert in_words(faults[0].path).endswith("discarding -released-> aborting -released-> aborted")


@pytest.mark.parametrize(
    "name", [state.name for state in SHIPPED.states.values() if state.kind in ("resting", "active")]
)
def test_p5_notices_a_state_that_does_not_accept_cancel(name: str) -> None:
    def cancels(row: Row) -> bool:
        return row.trigger == "cancel"

    (fault,) = of(check_machine(rows(name, drop=cancels)), "P5")
    assert fault.message == f"{name}: does not accept 'cancel'"
    assert fault.path == () if name == "created" else fault.path[-1].target == name
    (answered,) = of(check_machine(rows(name, row(name, "cancel", "(same)"), drop=cancels)), "P5")
    assert answered.message == f"{name}: answers 'cancel' without being left"


def test_p6_notices_a_valuation_that_enables_no_row() -> None:
    gap = rows("created", drop=lambda row: row.trigger == "open" and row.guard is None)
    (fault,) = of(check_machine(gap), "P6")
    assert fault.message == "created: 'open' enables no row when not runtime_lost, not opens_conversation"


def test_p6_notices_a_row_behind_one_that_always_holds() -> None:
    dead = rows("waiting", row("waiting", "step", "stopped", "has_user"))
    (fault,) = of(check_machine(dead), "P6")
    assert fault.message == "waiting: dead row: no valuation takes waiting | step [has_user] -> stopped"
    assert in_words(fault.path) == "created -open[opens_conversation]-> booting -booted-> setup -ready-> waiting"


def test_p6_notices_a_row_that_repeats_another() -> None:
    (fault,) = of(check_machine(rows("closing", *SHIPPED.state("closing").rows)), "P6")
    assert "dead row" in fault.message


@pytest.mark.parametrize(
    ("name", "trigger"),
    [
        ("waiting", "scored"),
        ("booting", "step"),
        ("booting", "finalized"),
        ("closing", "cancel"),
        ("failed", "released"),
    ],
)
def test_p6_notices_a_row_that_nobody_can_fire(name: str, trigger: str) -> None:
    (fault,) = of(check_machine(rows(name, row(name, trigger, "(same)"))), "P6")
    assert f"nobody fires '{trigger}'" in fault.message


def test_p7_notices_activities_that_are_missing_or_misplaced() -> None:
    without = check_machine(changed("booting", activity=None))
    assert "booting: is active and has no activity" in [fault.message for fault in of(without, "P7")]
    assert "no state names the activity 'boot'" in [fault.message for fault in of(without, "P7")]
    (misplaced,) = of(check_machine(changed("failing", activity="release")), "P7")
    assert misplaced.message == "failing: is resting and yet has the activity 'release'"
    unknown = of(check_machine(changed("closing", activity="nap")), "P7")
    assert "closing: there is no activity 'nap'" in [fault.message for fault in unknown]


def test_p7_notices_names_that_do_not_exist() -> None:
    faults = of(check_machine(rows("waiting", row("waiting", "nudge", "limbo", "bored"))), "P7")
    assert [fault.message for fault in faults] == [
        "waiting: there is no trigger 'nudge'",
        "waiting: there is no guard 'bored'",
        "waiting: there is no state 'limbo', where 'nudge' leads",
    ]
    assert all(in_words(fault.path).endswith("-> waiting") for fault in faults)


def test_p7_notices_names_that_no_state_uses() -> None:
    unguarded = rows("stepping", drop=lambda row: row.guard == "advanced")
    assert [str(fault) for fault in of(check_machine(unguarded), "P7")] == ["P7: no state names the guard 'advanced'"]
    unfired = rows("stepping", drop=lambda row: row.trigger == "refused")
    unfired = declare(
        evolve(state, rows=tuple(row for row in state.rows if row.trigger != "refused"))
        for state in unfired.states.values()
    )
    assert [str(fault) for fault in of(check_machine(unfired), "P7")] == ["P7: no state names the trigger 'refused'"]


def test_p8_notices_an_agent_clock_that_runs_elsewhere_or_stands_still() -> None:
    (elsewhere,) = of(check_machine(changed("waiting", bound="agent")), "P8")
    assert elsewhere.message == "waiting: the agent clock runs here; it runs in stepping and stopping only"
    assert elsewhere.path[-1].target == "waiting"
    (still,) = of(check_machine(changed("stopping", bound=None)), "P8")
    assert still.message == "stopping: the agent clock stands still during a segment"
    (outside,) = of(check_machine(changed("stepping", span=None)), "P8")
    assert outside.message == "stepping: the agent clock runs outside of a segment"


def test_p9_notices_an_outcome_without_a_row_in_a_state_where_its_activity_can_be_running() -> None:
    (fault,) = of(check_machine(rows("stopping", drop=lambda row: row.trigger == "timed_out")), "P9")
    assert fault.message == "stopping: its activity 'segment' can end in 'timed_out': no row"
    assert in_words(fault.path).endswith("stepping -refused-> stopping")


def test_p9_notices_an_outcome_that_some_valuation_leaves_without_a_row() -> None:
    gap = rows("scoring", drop=lambda row: row.trigger == "errored" and row.guard is None)
    (fault,) = of(check_machine(gap), "P9")
    assert fault.message == "scoring: its activity can end in 'errored': no row when not runtime_lost"


def test_p9_notices_a_shielded_state_whose_activity_has_several_outcomes() -> None:
    faults = of(check_machine(changed("closing", activity="finalize")), "P9")
    assert "closing: is shielded, and its activity 'finalize' has several outcomes" in [f.message for f in faults]


def test_p9_notices_a_running_activity_that_loses_its_state() -> None:
    lost = rows("stepping", row("stepping", "refused", "stopped"), drop=lambda row: row.trigger == "refused")
    (fault,) = of(check_machine(lost), "P9")
    assert fault.message == "stepping: 'refused' does not end the activity 'segment', which stopped does not have"
    assert in_words(fault.path).endswith("stepping -refused-> stopped")


@pytest.mark.parametrize(
    "name", [state.name for state in SHIPPED.states.values() if state.kind in ("resting", "final")]
)
def test_p10_notices_a_resting_or_final_state_that_cannot_be_closed(name: str) -> None:
    (fault,) = of(check_machine(rows(name, drop=is_close)), "P10")
    assert fault.message == f"{name}: is {SHIPPED.state(name).kind} and does not take 'close'"
    assert fault.states == (name,)
    assert fault.path == () if name == "created" else fault.path[-1].target == name


def without(dropped: Row) -> Declaration:
    return declare(
        evolve(state, rows=tuple(row for row in state.rows if row is not dropped)) for state in SHIPPED.states.values()
    )


def needed(row: Row) -> bool:
    """A move without a guard, but for those that only its owner asks for."""
    owners = SHIPPED.state(row.source).kind == "resting" and row.trigger in ("stop", "errored")
    return row.guard is None and not row.same and not owners


@pytest.mark.parametrize("dropped", [row for row in SHIPPED.rows if needed(row)], ids=str)
def test_no_unguarded_move_can_be_dropped_unnoticed(dropped: Row) -> None:
    assert check_machine(without(dropped))


def test_every_path_of_a_fault_is_one_that_the_edited_table_can_go() -> None:
    for dropped in SHIPPED.rows:
        declaration = without(dropped)
        for fault in check_machine(declaration):
            here = "created"
            for step in fault.path:
                assert step.source == here
                assert step in declaration.state(here).rows
                here = step.target


def test_d1_notices_an_active_state_without_a_bound_and_a_bound_that_bounds_nothing() -> None:
    (without,) = of(check_machine(changed("finalizing", bound=None)), "D1")
    assert without.message == "finalizing: awaits foreign code and has no bound (L2)"
    (idle,) = of(check_machine(changed("closing", bound="finalize")), "D1")
    assert idle.message == "closing: is shielded, and the bound 'finalize' would bound nothing (L55)"


@pytest.mark.parametrize(
    ("name", "trigger", "sets", "said"),
    [
        ("finalizing", "errored", None, "sets nothing, not error"),
        ("failing", "cancel", "error", "sets error, not cancelled"),
        ("stopped", "close", "error", "sets error, not that"),
    ],
)
def test_d2_notices_a_stop_condition_that_does_not_fit_the_way(name: str, trigger: str, sets: Any, said: str) -> None:
    edited = tuple(
        evolve(row, sets=sets) if (row.trigger, row.guard) == (trigger, None) else row
        for row in SHIPPED.state(name).rows
    )
    (fault,) = of(check_machine(changed(name, rows=edited)), "D2")
    assert said in fault.message
    assert in_words(fault.path).startswith("created -open")
