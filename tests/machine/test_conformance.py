"""Replaying recorded transitions on the declared machine, and the stop conditions that a path allows."""

from collections.abc import Iterator

import pytest

from rollout_fsm.machine import load_machine
from rollout_fsm.machine.conformance import Step, may_set, replay, stop_conditions
from rollout_fsm.machine.lifecycle import lifecycle

from .oracle import Facts, Subject

SHIPPED = load_machine()


def path(text: str) -> list[Step]:
    """`created open booting booted setup` as steps."""
    words = text.split()
    return [
        (trigger, source, target) for source, trigger, target in zip(words[::2], words[1::2], words[2::2], strict=False)
    ]


OPENED = "created open booting booted setup ready waiting"
SCORED = "closing closed finalizing finalized scoring scored releasing released completed"


def test_a_whole_rollout_is_a_legal_path() -> None:
    assert replay(SHIPPED, path(f"{OPENED} step stepping segment_ended waiting close {SCORED}")) == []


def test_a_rollout_that_is_under_way_is_legal_but_not_finished() -> None:
    assert replay(SHIPPED, path(OPENED), finished=False) == []
    assert replay(SHIPPED, path(OPENED)) == ["the path ends in 'waiting', which is resting, not final"]
    assert replay(SHIPPED, []) == ["the path ends in 'created', which is resting, not final"]


def test_a_path_that_starts_elsewhere_or_has_a_gap_is_not_legal() -> None:
    assert replay(SHIPPED, path("failing close discarding released failed")) == [
        "transition 1 (failing -close-> discarding): starts in 'failing' instead of 'created', the initial state"
    ]
    gap = [*path(OPENED), *path("stopped close closing")]
    assert replay(SHIPPED, gap, finished=False) == [
        "transition 4 (stopped -close-> closing): starts in 'stopped' instead of 'waiting', where the one before ended"
    ]


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        (("step", "waiting", "stopping"), "'step' does not lead there; it leads to stepping"),
        (
            ("scored", "waiting", "releasing"),
            "'waiting' does not take 'scored'; it takes step, stop, close, errored, cancel",
        ),
        (("stop", "waiting", "stoped"), "there is no state 'stoped'; did you mean 'stopped'?"),
    ],
)
def test_a_transition_that_is_not_declared_is_named_with_its_number(step: Step, fault: str) -> None:
    trigger, source, target = step
    faults = replay(SHIPPED, [*path(OPENED), step], finished=False)
    assert faults == [f"transition 4 ({source} -{trigger}-> {target}): {fault}"]


def test_a_recorded_answer_is_a_fault() -> None:
    recorded = path("created errored failing errored failing close discarding released failed")
    assert replay(SHIPPED, recorded) == [
        "transition 2 (failing -errored-> failing): this is an answer, not a move; answers are not recorded"
    ]


def test_every_fault_of_a_path_is_found() -> None:
    broken = [("open", "created", "booting"), ("ready", "setup", "stopped"), ("close", "stopped", "limbo")]
    assert len(replay(SHIPPED, broken)) == 2


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        (OPENED, {None}),
        (f"{OPENED} close closing", {"user_closed", "agent_completed"}),
        (f"{OPENED} stop stopped close closing", {"(given)"}),
        (f"{OPENED} step stepping refused stopping errored stopped", {"(given)"}),
        (f"{OPENED} step stepping refused stopping cancel aborting", {"(given)"}),
        (f"{OPENED} step stepping segment_ended stopped", {"(given)", "no_progress"}),
        (f"{OPENED} step stepping timed_out stopped", {"agent_timeout"}),
        (f"{OPENED} step stepping timed_out failing cancel aborting", {"error"}),
        (f"{OPENED} step stepping timed_out aborting released aborted", {None}),
        (f"{OPENED} cancel aborting released aborted", {"cancelled"}),
        ("created close aborted", {None}),
        ("created open aborted", {None}),
    ],
)
def test_the_first_row_that_sets_a_stop_condition_decides_it(text: str, conditions: set[str | None]) -> None:
    assert stop_conditions(SHIPPED, path(text)) == conditions


def test_a_stop_condition_is_possible_if_a_row_or_a_stop_in_passing_can_have_set_it() -> None:
    failed = path(f"{OPENED} step stepping errored failing close discarding released failed")
    assert may_set(SHIPPED, failed, "error")
    assert may_set(SHIPPED, failed, "operator")
    assert not may_set(SHIPPED, failed, "cancelled")
    assert not may_set(SHIPPED, failed, None)
    refused = path(f"{OPENED} step stepping refused stopping segment_ended stopped close {SCORED}")
    assert may_set(SHIPPED, refused, "max_turns")
    assert not may_set(SHIPPED, refused, None)
    assert may_set(SHIPPED, path("created close aborted"), None)
    assert not may_set(SHIPPED, path("created close aborted"), "error")


def recorded(facts: Facts, depth: int) -> Iterator[tuple[list[Step], str | None]]:
    """Every way of the compiled machine of at most this many moves, with the stop condition that its rows set."""

    def onward(state: str, steps: list[Step], condition: str | None) -> Iterator[tuple[list[Step], str | None]]:
        yield steps, condition
        if len(steps) == depth:
            return
        for trigger in lifecycle().legal[state]:
            subject = Subject(state)
            row = lifecycle().fire(subject, trigger, facts)
            if not row.same:
                sets = "max_turns" if row.sets == "(given)" else row.sets
                yield from onward(row.to, [*steps, (trigger, state, row.to)], condition or sets)

    yield from onward("created", [], None)


@pytest.mark.parametrize(
    "facts",
    [
        Facts(opens_conversation=True),
        Facts(opens_conversation=True, advanced=True, has_user=True),
        Facts(opens_conversation=True, runtime_lost=True),
        Facts(opens_conversation=True, agent_survives=True),
        Facts(opens_conversation=True, expiry_stops=True, no_progress_fails=True),
    ],
)
def test_whatever_the_machine_does_replays_as_legal_with_its_own_stop_condition(facts: Facts) -> None:
    count = 0
    for steps, condition in recorded(facts, 7):
        assert replay(SHIPPED, steps, finished=False) == []
        asked_to_stop = any(trigger == "stop" for trigger, _, _ in steps)
        assert may_set(SHIPPED, steps, condition or ("operator" if asked_to_stop else None))
        count += 1
    assert count > 3
