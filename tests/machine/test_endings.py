"""The table of endings: it says what it is meant to say of every rollout, it is read exactly, and it can be changed row
by row, but not so that a failure becomes a verdict."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from attrs import asdict, evolve
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.machine import DeclarationError, load_machine
from rollout_fsm.machine.declaration import declare, states_dir
from rollout_fsm.machine.endings import BOUNDARIES, CAUSES, End, EndingRow, Endings
from rollout_fsm.machine.endings_file import endings, load_endings
from rollout_fsm.machine.endings_proof import check_endings, every_end
from rollout_fsm.machine.table import render_table

SHIPPED = endings()
ENDS = tuple(every_end(SHIPPED.declaration))

# name | cause | counts | retryable, for rollouts that completed, by their stop condition
COMPLETED = """
agent_completed  | agent   | yes | no
user_closed      | caller  | yes | no
max_turns        | agent   | yes | no
max_input_tokens | agent   | yes | no
max_output_tokens| agent   | yes | no
max_total_tokens | agent   | yes | no
context_length   | agent   | yes | no
agent_timeout    | agent   | yes | no
no_progress      | harness | yes | no
drained          | caller  | no  | no
"""

# where it failed | trigger | primary error | name | cause | retryable
FAILED = """
created    | open          | TaskError           | task_error         | task         | no
created    | errored       | ValueError          | caller_error       | caller       | no
waiting    | errored       | ProviderError       | caller_error       | caller       | no
stopped    | errored       | TaskError           | caller_error       | caller       | no
booting    | timed_out     | SandboxError        | boot_timeout       | sandbox      | yes
booting    | errored       | SandboxError        | sandbox_error      | sandbox      | yes
setup      | timed_out     | TaskError           | setup_timeout      | task         | yes
setup      | timed_out     | HarnessError        | setup_timeout      | harness      | yes
setup      | timed_out     | ToolsetError        | setup_timeout      | toolset      | yes
setup      | timed_out     | SandboxError        | setup_timeout      | sandbox      | yes
setup      | timed_out     | InterceptionError   | setup_timeout      | interception | yes
setup      | errored       | TaskError           | task_error         | task         | yes
setup      | errored       | HarnessError        | harness_error      | harness      | yes
setup      | errored       | ToolsetError        | toolset_error      | toolset      | yes
setup      | errored       | SandboxError        | sandbox_error      | sandbox      | yes
setup      | errored       | InterceptionError   | interception_error | interception | yes
stepping   | timed_out     | HarnessError        | agent_timeout      | agent        | no
stepping   | timed_out     | SandboxError        | sandbox_error      | sandbox      | yes
stepping   | errored       | HarnessError        | harness_error      | harness      | no
stepping   | errored       | SandboxError        | sandbox_error      | sandbox      | yes
stepping   | errored       | TaskError           | task_error         | task         | no
stepping   | segment_ended | ProviderError       | provider_error     | provider     | yes
stepping   | segment_ended | ProviderError 4xx   | provider_rejected  | provider     | no
stepping   | segment_ended | OverlongPromptError | provider_rejected  | provider     | no
stepping   | segment_ended | HarnessError        | harness_error      | harness      | no
stopping   | segment_ended | SandboxError        | sandbox_error      | sandbox      | yes
stopping   | timed_out     | SandboxError        | sandbox_error      | sandbox      | yes
finalizing | timed_out     | TaskError           | finalize_timeout   | task         | no
finalizing | errored       | TaskError           | task_error         | task         | no
finalizing | errored       | SandboxError        | sandbox_error      | sandbox      | yes
scoring    | timed_out     | TaskError           | scoring_timeout    | task         | no
scoring    | timed_out     | ProviderError       | provider_error     | provider     | yes
scoring    | errored       | TaskError           | task_error         | task         | no
scoring    | errored       | ProviderError       | provider_error     | provider     | yes
scoring    | errored       | ProviderError 4xx   | provider_rejected  | provider     | no
scoring    | errored       | ValueError          | error              | caller       | no
"""


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def completed(*conditions: str) -> End:
    return End(state="completed", source="waiting", trigger="close", conditions=conditions)


def failed(source: str, trigger: str, error: str) -> End:
    kind, _, code = error.partition(" ")
    kinds = (kind, "ProviderError") if kind == "OverlongPromptError" else (kind,)
    kinds = kinds if kinds[-1] in BOUNDARIES else (*kinds, "(other)")
    status: Any = None
    if "ProviderError" in kinds:
        status = "permanent" if code or len(kinds) > 1 else "transient"
    return End(state="failed", source=source, trigger=trigger, conditions=("error",), errors=kinds, status=status)


# ---- what the shipped table says


@pytest.mark.parametrize(("condition", "cause", "counts", "retryable"), cells(COMPLETED))
def test_a_completed_rollout_ends_by_its_stop_condition(
    condition: str, cause: str, counts: str, retryable: str
) -> None:
    ending = SHIPPED.of(completed(condition), rewarded=True)
    assert (ending.name, ending.cause, ending.graded) == (condition, cause, True)
    assert (ending.counts, ending.retryable) == (counts == "yes", retryable == "yes")


@pytest.mark.parametrize(("source", "trigger", "error", "name", "cause", "retryable"), cells(FAILED))
def test_a_failed_rollout_ends_by_what_failed_where(
    source: str, trigger: str, error: str, name: str, cause: str, retryable: str
) -> None:
    ending = SHIPPED.of(failed(source, trigger, error), rewarded=True)
    assert (ending.name, ending.cause, ending.retryable) == (name, cause, retryable == "yes")
    assert not ending.graded
    assert not ending.counts


@pytest.mark.parametrize(
    ("source", "trigger", "name"),
    [
        ("created", "close", "never_opened"),
        ("created", "cancel", "cancelled"),
        ("created", "open", "runtime_lost"),
        ("stepping", "cancel", "cancelled"),
        ("failing", "cancel", "cancelled"),
        ("scoring", "timed_out", "runtime_lost"),
        ("setup", "errored", "runtime_lost"),
    ],
)
def test_an_aborted_rollout_is_the_callers_doing(source: str, trigger: str, name: str) -> None:
    end = End(state="aborted", source=source, trigger=trigger, conditions=("(none)",), errors=("SandboxError",))
    ending = SHIPPED.of(end, rewarded=True)
    assert (ending.name, ending.cause) == (name, "caller")
    assert (ending.graded, ending.counts, ending.retryable) == (False, False, False)


def test_a_stop_of_the_task_and_a_condition_of_the_callers_own_give_their_names() -> None:
    of_task = SHIPPED.of(completed("said_done", "(stop)"), rewarded=True)
    of_caller = SHIPPED.of(completed("bored", "(other)"), rewarded=True)
    nameless = SHIPPED.of(completed("(none)"), rewarded=True)
    assert [(each.name, each.cause) for each in (of_task, of_caller, nameless)] == [
        ("said_done", "task"),
        ("bored", "caller"),
        ("completed", "task"),
    ]


def test_nothing_counts_without_a_reward() -> None:
    assert not any(SHIPPED.of(end, rewarded=False).counts for end in ENDS)


def test_no_row_of_a_completed_rollout_is_retryable_and_none_of_an_aborted_one() -> None:
    assert {row.end for row in SHIPPED.rows if row.retryable} == {"failed"}
    assert {row.end for row in SHIPPED.rows if row.counts} == {"completed"}


# ---- what is proven of it


def test_the_table_speaks_of_every_rollout_and_has_no_row_in_vain() -> None:
    assert check_endings(SHIPPED) == []


def other(table: Endings, end: End) -> bool:
    """Whether the table says something else of this end than the shipped one, or nothing."""
    try:
        return table.of(end, rewarded=True) != SHIPPED.of(end, rewarded=True)
    except LookupError:
        return True


def test_every_row_less_is_a_gap_or_another_ending_for_some_rollout() -> None:
    taken: dict[int, list[End]] = {}
    for end in ENDS:
        taken.setdefault(SHIPPED.rows.index(SHIPPED.row(end)), []).append(end)
    for place, row in enumerate(SHIPPED.rows):
        shorter = evolve(SHIPPED, rows=(*SHIPPED.rows[:place], *SHIPPED.rows[place + 1 :]))
        assert any(other(shorter, end) for end in taken[place]), row


def test_a_gap_is_found_with_what_falls_into_it() -> None:
    holed = evolve(SHIPPED, rows=tuple(row for row in SHIPPED.rows if row.name not in ("runtime_lost", "completed")))
    found = check_endings(holed)
    assert {fault.property for fault in found} == {"E1"}
    assert any("aborted, by 'errored' in 'setup'" in fault.message for fault in found)
    assert any("completed, by 'close' in 'waiting', stop condition (none)" in fault.message for fault in found)
    with pytest.raises(LookupError, match="no row of the endings fits"):
        holed.of(completed("(none)"), rewarded=True)


@pytest.mark.parametrize("place", [0, len(SHIPPED.rows) // 2, len(SHIPPED.rows) - 1])
def test_a_row_that_is_never_taken_is_found(place: int) -> None:
    doubled = evolve(SHIPPED, rows=(*SHIPPED.rows, SHIPPED.rows[place]))
    (fault,) = check_endings(doubled)
    assert (fault.property, fault.message.startswith(f"row {len(doubled.rows)} is never taken")) == ("E2", True)


def test_a_row_that_stands_before_its_exception_makes_that_dead() -> None:
    general = next(row for row in SHIPPED.rows if row.name == "provider_rejected")
    shadowed = evolve(SHIPPED, rows=(general, *SHIPPED.rows))
    assert [fault.property for fault in check_endings(shadowed)] == ["E2", "E2"]


# ---- the page


def test_the_page_of_transitions_has_every_row_of_the_endings_in_their_order() -> None:
    section = render_table(SHIPPED.declaration, SHIPPED).split("## Endings")[1]
    listed = [line for line in section.splitlines() if re.match(r"\| (`|\(given\))", line)]
    assert len(listed) == len(SHIPPED.rows)
    for line, row in zip(listed, SHIPPED.rows, strict=True):
        shown = line.strip("| ").replace("`", "").split(" | ")
        assert (shown[0], shown[1], shown[-1], shown[-2]) == (
            row.name,
            row.end,
            row.reason,
            "yes" if row.retryable else "no",
        )
        for word in (*(row.conditions or ()), *(row.sources or ()), *(row.triggers or ()), *(row.errors or ())):
            assert word in line


# ---- reading it


def written(folder: Path, text: str) -> list[str]:
    (folder / "endings.toml").write_text(text)
    with pytest.raises(DeclarationError) as caught:
        load_endings(folder, SHIPPED.declaration)
    return list(caught.value.faults)


def test_the_file_of_endings_is_no_state(tmp_path: Path) -> None:
    assert "endings" not in load_machine().states
    for path in states_dir().iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert load_machine(tmp_path) == load_machine()
    assert load_endings(tmp_path) == load_endings()
    (tmp_path / "endings.toml").write_text("no = [TOML")
    assert load_machine(tmp_path) == load_machine()


def test_every_fault_of_the_file_is_told_at_once_with_its_path(tmp_path: Path) -> None:
    text = Path(str(states_dir() / "endings.toml")).read_text()
    for old, new in (
        ('conditions = ["agent_completed"]', 'conditions = ["agent_complete"]'),
        ('cause = "caller"', 'cause = "user"'),
        ("counts = true", 'counts = "yes"'),
        ('triggers = ["errored"]', 'triggers = "errored"'),
        ('errors = ["HarnessError"]', 'errors = ["HarnesError"]'),
        ('status = "transient"', 'status = "temporary"'),
        ('reason = "the caller no longer', 'because = "the caller no longer'),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    assert written(tmp_path, text) == [
        "endings.toml: ending[0].conditions[0]: no stop condition 'agent_complete'; did you mean 'agent_completed'?",
        "endings.toml: ending[0].counts: expected true or false, not 'yes' (a string)",
        "endings.toml: ending[1].cause: no cause 'user'; there are agent, harness, provider, sandbox, toolset, task, "
        "interception, caller, (error)",
        "endings.toml: ending[13].triggers: expected an array of names, not 'errored' (a string)",
        "endings.toml: ending[16].errors[0]: no type of error 'HarnesError'; did you mean 'HarnessError'?",
        "endings.toml: ending[19].status: no status 'temporary'; there are transient, permanent",
        "endings.toml: ending[30].reason: missing",
        "endings.toml: ending[30].because: unknown key; did you mean 'cause'?",
    ]


ROW = {"name": "x", "end": "failed", "cause": "task", "counts": False, "retryable": True, "reason": "why"}


def toml(**fields: object) -> str:
    return "\n".join(["[[ending]]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items()), ""])


def test_what_no_row_can_say_is_refused(tmp_path: Path) -> None:
    text = (
        toml(**{**ROW, "counts": True})
        + toml(**{**ROW, "end": "aborted"})
        + toml(**{**ROW, "end": "scoring"})
        + toml(**ROW, sources=["stoping"], triggers=["refuse"])
        + toml(**{**ROW, "name": "(given)"})
        + toml(**{**ROW, "reason": ""})
    )
    assert written(tmp_path, text) == [
        "endings.toml: ending[0].counts: a rollout that is failed was not graded, so nothing of it can count",
        "endings.toml: ending[1].retryable: a rollout that is aborted is never tried again",
        "endings.toml: ending[2].end: no final state 'scoring'; there are completed, failed, aborted",
        "endings.toml: ending[3].sources: no source 'stoping'; did you mean 'stopping'?",
        "endings.toml: ending[3].triggers: no trigger 'refuse'; did you mean 'refused'?",
        "endings.toml: ending[4].name: '(given)' is the name of the stop condition, and the row asks for none",
        "endings.toml: ending[5]: the reason of an ending is text, not ''",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x = ", "Invalid value"),
        ("", "ending: missing"),
        ("ending = 3", "ending: expected an array of tables, not 3 (a whole number)"),
        ("[[endings]]", "endings: unknown key; did you mean 'ending'?"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    assert any(fault in told for told in written(tmp_path, text))


def test_a_folder_without_the_file_is_said_to_have_none(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"endings\.toml: no such file"):
        load_endings(tmp_path, SHIPPED.declaration)


def test_the_table_is_read_for_the_machine_it_is_used_with(tmp_path: Path) -> None:
    shorter = declare(state for state in SHIPPED.declaration.states.values() if state.name != "aborted")
    with pytest.raises(DeclarationError, match="no final state 'aborted'"):
        load_endings(declaration=shorter)


# ---- changing it


def test_a_row_is_changed_by_its_name_and_no_other_with_it() -> None:
    changed = SHIPPED.with_overrides(
        {
            "max_turns": {"counts": False},
            "task_error": {"retryable": True, "cause": "agent"},
            "(stop)": {"counts": False},
        }
    )
    for old, new in zip(SHIPPED.rows, changed.rows, strict=True):
        if old.name == "max_turns" or old.conditions == ("(stop)",):
            assert new == evolve(old, counts=False)
        elif old.name == "task_error":
            assert new == evolve(old, retryable=True, cause="agent")
        else:
            assert new == old
    assert load_endings() == SHIPPED


def test_every_wrong_change_is_told_at_once_and_with_what_to_write_instead() -> None:
    wrong: Any = {
        "agent_timout": {"counts": True},
        "drained": {"count": True, "cause": "user"},
        "max_turns": {"retryable": 1},
        "harness_error": {"counts": True},
        "cancelled": {"retryable": True},
        "task_error": 3,
        "said_done": {},
    }
    with pytest.raises(ValueError, match="the endings cannot be changed so") as caught:
        SHIPPED.with_overrides(wrong)
    for said in (
        "no ending 'agent_timout'; did you mean 'agent_timeout'?",
        "drained.count: unknown field; did you mean 'counts'?",
        "drained.cause: no cause 'user'; there are agent, ",
        "max_turns.retryable: expected True or False, not 1",
        "harness_error.counts: a rollout that is failed was not graded, so nothing of it can count",
        "cancelled.retryable: a rollout that is aborted is never tried again",
        "task_error: expected the fields that change, not 3",
        "no ending 'said_done'",
    ):
        assert said in str(caught.value)
    nothing: Any = ["drained"]
    with pytest.raises(ValueError, match="not by \\['drained'\\]"):
        SHIPPED.with_overrides(nothing)


def test_an_ending_that_may_be_graded_or_not_counts_only_where_it_is() -> None:
    changed = SHIPPED.with_overrides({"agent_timeout": {"counts": True}})
    ungraded = changed.of(failed("stepping", "timed_out", "HarnessError"), rewarded=True)
    assert (ungraded.name, ungraded.counts) == ("agent_timeout", False)
    assert changed.of(completed("agent_timeout"), rewarded=True).counts


def test_rows_of_ones_own_come_first() -> None:
    row = EndingRow(
        name="env_broken",
        end="completed",
        conditions=["flooded"],
        cause="sandbox",
        counts=False,
        retryable=True,
        reason="the task's own stop says that the box is unusable",
    )
    table = SHIPPED.with_rows(row)
    ending = table.of(completed("flooded", "(stop)"), rewarded=True)
    assert asdict(ending) == {
        "name": "env_broken",
        "cause": "sandbox",
        "graded": True,
        "counts": False,
        "retryable": True,
    }
    assert table.of(completed("dry", "(stop)"), rewarded=True) == SHIPPED.of(completed("dry", "(stop)"), rewarded=True)
    assert "env_broken" in table.names
    assert (
        not table.with_overrides({"env_broken": {"retryable": False}})
        .of(completed("flooded", "(stop)"), rewarded=True)
        .retryable
    )


def row_of_ones_own(**fields: Any) -> EndingRow:
    return EndingRow(**{**ROW, **fields})


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"cause": "user"}, "no cause 'user'"),
        ({"status": "temporary"}, "no status 'temporary'"),
        ({"counts": 1}, "counts of an ending is True or False, not 1"),
        ({"conditions": "flooded"}, r"a sequence of names, not 'flooded'; write \['flooded'\]"),
        ({"name": ""}, "the name of an ending is text"),
    ],
)
def test_a_row_of_ones_own_is_checked_when_it_is_made(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises((TypeError, ValueError), match=fault):
        row_of_ones_own(**fields)


def test_rows_of_ones_own_are_held_to_the_rules_of_the_table() -> None:
    with pytest.raises(ValueError, match=r"x\.counts: .* not graded.*; x\.end: no final state 'scord'"):
        SHIPPED.with_rows(row_of_ones_own(counts=True), row_of_ones_own(end="scord"))


CHANGES = st.fixed_dictionaries(
    {}, optional={"cause": st.sampled_from(CAUSES), "counts": st.booleans(), "retryable": st.booleans()}
)


@given(st.dictionaries(st.sampled_from(SHIPPED.names), CHANGES, max_size=5), st.sampled_from(ENDS), st.booleans())
def test_no_change_makes_a_failure_count_or_an_abort_retryable(
    changes: dict[str, Any], end: End, rewarded: bool
) -> None:
    try:
        table: Endings = SHIPPED.with_overrides(changes)
    except ValueError:
        table = SHIPPED
    ending = table.of(end, rewarded=rewarded)
    assert ending.graded == (end.state == "completed")
    assert not ending.counts or (ending.graded and rewarded)
    assert not (ending.retryable and end.state == "aborted")
    assert ending.name == SHIPPED.of(end, rewarded=rewarded).name
