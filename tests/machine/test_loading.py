"""The loader: exact types, exact words, and every fault of every file at once, with its path."""

import shutil
from pathlib import Path

import pytest

from rollout_fsm.machine import Declaration, DeclarationError, State, load_machine
from rollout_fsm.machine.declaration import declare, states_dir


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped states, to be edited."""
    with_states = tmp_path / "states"
    shutil.copytree(Path(str(states_dir())), with_states)
    return with_states


def edit(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))


def faults(folder: Path) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        load_machine(folder)
    assert str(caught.value) == "\n".join(caught.value.faults)
    return list(caught.value.faults)


def test_a_copy_of_the_shipped_folder_loads_equal(folder: Path) -> None:
    assert load_machine(folder) == load_machine()


def test_all_faults_of_all_files_are_reported_at_once_with_file_and_path(folder: Path) -> None:
    edit(folder, "stepping.toml", 'to = "stopping"', 'to = "stoped"')
    edit(folder, "stepping.toml", 'guard = "advanced"', 'guard = "advnced"')
    edit(folder, "stepping.toml", 'trigger = "refused"', 'trigger = "refuse"')
    edit(folder, "waiting.toml", 'kind = "resting"', 'kind = "restin"')
    edit(folder, "waiting.toml", 'trigger = "step"\n', "")
    edit(folder, "closing.toml", 'activity = "close"', 'activity = "closing"')
    edit(folder, "scoring.toml", 'bound = "scoring"', 'bounds = "scoring"')
    edit(folder, "setup.toml", "meaning", "# meaning")
    (folder / "booting.toml").write_text('meaning = "x"\nkind = \n')
    assert faults(folder) == [
        "booting.toml: Invalid value (at line 2, column 8)",
        "closing.toml: activity: no activity 'closing'; did you mean 'close'?",
        "scoring.toml: bounds: unknown key; did you mean 'bound'?",
        "setup.toml: meaning: missing",
        "stepping.toml: on[0].trigger: no trigger 'refuse'; did you mean 'refused'?",
        "stepping.toml: on[0].to: no state 'stoped'; did you mean 'stopped'?",
        "stepping.toml: on[4].guard: no guard 'advnced'; did you mean 'advanced'?",
        "waiting.toml: kind: no kind 'restin'; did you mean 'resting'?",
        "waiting.toml: on[0].trigger: missing",
    ]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('meaning = "The harness cleans up, then an owned runtime is stopped."', "meaning = 7",
         "meaning: expected a string, not 7 (a whole number)"),
        ('kind = "shielded"', 'kind = ["shielded"]', "kind: expected a string, not ['shielded'] (an array)"),
        ('group = "closing"', 'group = "closing"\ninitial = 1',
         "initial: expected true or false, not 1 (a whole number)"),
        ('group = "closing"', 'group = "closing"\ninitial = "yes"',
         "initial: expected true or false, not 'yes' (a string)"),
        ('group = "closing"', 'group = "cloud"',
         "group: no group 'cloud'; there are opening, exchange, closing, failure, cancellation"),
        ('group = "closing"', 'group = "closing"\nspan = "score"',
         "span: no span or bound 'score'; did you mean 'scoring'?"),
        ('to = "completed"', 'to = "completed"\nsets = "eror"',
         "on[0].sets: no stop condition 'eror'; did you mean 'error'?"),
        ('to = "completed"', 'to = "completed"\nerror = "recrd"',
         "on[0].error: no use of errors 'recrd'; did you mean 'record'?"),
        ('to = "completed"', 'to = "completed"\ngaurd = "advanced"', "on[0].gaurd: unknown key; did you mean 'guard'?"),
        ('to = "completed"', 'to = "completed"\nguard = true',
         "on[0].guard: expected a string, not True (true or false)"),
        ('to = "completed"', 'to = "(sam)"', "on[0].to: no state '(sam)'; did you mean '(same)'?"),
        ("[[on]]", "[on]", "on: expected an array of tables, not {'trigger': 'released', 'to': 'completed'} (a table)"),
        ('[[on]]\ntrigger = "released"\nto = "completed"', "on = [7]",
         "on[0]: expected a table, not 7 (a whole number)"),
        ('[[on]]\ntrigger = "released"\nto = "completed"', 'on = "released"',
         "on: expected an array of tables, not 'released' (a string)"),
        ('to = "completed"', 'to = "completed"\n[[on]]\ntrigger = "released"\nto = "failed"',
         "on[1]: could never be taken: on[0] has the same trigger and guard ('released', no guard)"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_path_what_came_and_what_to_write(
    folder: Path, old: str, new: str, fault: str
) -> None:
    edit(folder, "releasing.toml", old, new)
    assert faults(folder) == [f"releasing.toml: {fault}"]


def test_two_initial_states_are_one_too_many(folder: Path) -> None:
    edit(folder, "waiting.toml", 'kind = "resting"', 'kind = "resting"\ninitial = true')
    assert faults(folder) == ["created.toml and waiting.toml: initial: exactly one state is the initial one"]


def test_no_initial_state_is_one_too_few(folder: Path) -> None:
    edit(folder, "created.toml", "initial = true\n", "")
    assert faults(folder) == ["states: no state is the initial one; one file must say `initial = true`"]


def test_a_missing_file_is_noticed_by_every_row_that_leads_to_it(folder: Path) -> None:
    (folder / "aborting.toml").unlink()
    found = faults(folder)
    assert len(found) == len([row for row in load_machine().rows if row.to == "aborting"])
    assert all("no state 'aborting'; did you mean 'booting'?" in fault for fault in found)


def test_a_state_has_a_name_that_every_drawing_language_takes(folder: Path) -> None:
    (folder / "over-time.toml").write_text('meaning = "x"\nkind = "resting"\ngroup = "exchange"\n')
    assert faults(folder) == ["over-time.toml: a state's name is a lower-case identifier, not 'over-time'"]


def test_text_that_is_not_utf_8_is_a_fault_of_its_file(folder: Path) -> None:
    (folder / "closing.toml").write_bytes(b'meaning = "\xff"\n')
    (fault,) = faults(folder)
    assert fault.startswith("closing.toml: 'utf-8' codec can't decode byte 0xff")


def test_a_folder_that_is_missing_or_empty_is_said_to_be(tmp_path: Path) -> None:
    assert faults(tmp_path / "nowhere") == [f"{tmp_path / 'nowhere'}: no such folder"]
    assert faults(tmp_path) == [f"{tmp_path}: no state files (*.toml)"]


def test_the_order_of_the_states_comes_from_the_table_and_not_from_how_they_were_given() -> None:
    shipped = load_machine()
    backwards = declare(reversed(list(shipped.states.values())))
    assert list(backwards.states) == list(shipped.states)


def test_states_that_cannot_be_reached_come_last_in_their_group() -> None:
    lost = [State(name=name, meaning="Lost.", kind="resting", group="exchange") for name in ("zeta", "alpha")]
    declaration: Declaration = declare([*load_machine().states.values(), *lost])
    exchange = [state.name for state in declaration.states.values() if state.group == "exchange"]
    assert exchange == ["waiting", "stepping", "stopping", "alpha", "zeta"]
