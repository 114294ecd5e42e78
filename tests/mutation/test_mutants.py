"""A sample of the edits that the declaration could suffer is noticed, and so is one of every kind; the noticing itself
is tested here too. `python -m tests.mutation` asks about every one."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from attrs import asdict

from rollout_fsm.machine import Declaration, DeclarationError, State, check_machine, compile_machine, load_machine
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.settings import reserved_conditions
from tests.machine.oracle import Facts, Subject
from tests.mutation import __main__ as command
from tests.mutation import pool
from tests.mutation.mutants import EDITS, Edit, Mutant, mutants
from tests.mutation.noticing import Level, Notice, notice
from tests.mutation.pool import notices
from tests.mutation.scenarios import Witness, concerned, noticed_by, witnesses
from tests.mutation.swapping import machine
from tests.mutation.unnoticed import REASONS, reason
from tests.profiles import profile, sample
from tests.simulation import expectations
from tests.simulation.test_cases import OWN

SHIPPED = load_machine()


@cache
def made() -> tuple[Mutant, ...]:
    return mutants(SHIPPED)


@cache
def every() -> Mapping[str, Mutant]:
    return {mutant.name: mutant for mutant in made()}


@cache
def telling() -> tuple[Witness, ...]:
    """The project's own cases that tell the whole path: few, and they notice most."""
    return witnesses([path for path in OWN if "transitions" in json.loads(path.read_bytes())["expect"]], SHIPPED)


@cache
def own() -> tuple[Witness, ...]:
    """All cases of the project's own: a clone has nothing else."""
    return witnesses(OWN, SHIPPED)


def noticed(mutant: Mutant) -> Notice:
    """What comes of a mutant; all cases are asked only about one that nobody else notices."""
    came = notice(mutant, telling())
    return notice(mutant, own()) if came.level is None else came


def test_a_sample_of_the_mutants_is_noticed() -> None:
    wrong = [mutant for mutant in made() if reason(mutant) is None]
    missed = [mutant.name for mutant in sample(wrong, dev=20, ci=80) if noticed(mutant).level is None]
    assert missed == []


NOTICED: Mapping[Edit, tuple[str, Level]] = {
    "a row is dropped": ("setup | ready [stop_requested] -> stopped: dropped", "scenarios"),
    "a row is retargeted": ("stepping | segment_ended -> stopped: retargeted to waiting", "scenarios"),
    "a guard is dropped": ("waiting | close [has_user] -> closing: guard dropped", "structure"),
    "a guard is flipped": ("setup | ready [stop_requested] -> stopped: guard flipped", "scenarios"),
    "a guard is exchanged": (
        "finalizing | errored [runtime_lost] -> aborting: guard exchanged for model_failed",
        "scenarios",
    ),
    "two rows are swapped": (
        "created | open [runtime_lost] -> aborted: swapped with [opens_conversation] -> booting",
        "scenarios",
    ),
    "a row is repeated": ("closing | closed -> finalizing: repeated", "structure"),
    "a row has a rival": ("failing | close -> discarding: the same to created after it", "structure"),
    "a state is renamed in its file": ("stopped: renamed in its file", "structure"),
    "a state is renamed everywhere": ("stopped: renamed everywhere", "scenarios"),
    "what a row sets": ("waiting | close [has_user] -> closing: sets nothing", "scenarios"),
    "what becomes of errors": (
        "stopping | errored [agent_survives] -> failing: errors: record instead of warn",
        "scenarios",
    ),
    "a state's kind": ("closing: kind is active instead of shielded", "structure"),
    "a state's group": ("completed: group is failure instead of closing", "structure"),
    "a state's span": ("aborting: span is scoring instead of nothing", "scenarios"),
    "a state's activity": ("scoring: activity is finalize instead of score", "structure"),
    "a state's bound": ("booting: bound is setup instead of boot", "scenarios"),
    "the initial state": ("waiting: initial is true instead of false", "structure"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_of_every_kind_of_edit_one_is_noticed_where_it_must_be(edit: Edit) -> None:
    name, level = NOTICED[edit]
    mutant = every()[name]
    came = noticed(mutant)
    assert (mutant.edit, came.level) == (edit, level), came


@pytest.mark.parametrize(
    "name",
    [
        "booting | timed_out [runtime_lost] -> aborting: errors: nothing instead of raise",
        "booting | errored [runtime_lost] -> aborting: retargeted to (same)",
        "created | errored -> failing: dropped",
        "stepping | errored [agent_survives] -> failing: dropped",
        "scoring: group is exchange instead of closing",
    ],
)
def test_what_no_scenario_can_notice_is_noticed_by_hand(name: str) -> None:
    assert noticed(every()[name]).level == "by hand"


@pytest.fixture
def patient() -> None:
    if profile() == "dev":
        pytest.skip("all lives are followed here, which takes seconds: --hypothesis-profile=ci")


@pytest.mark.usefixtures("patient")
def test_what_nothing_that_is_played_can_notice_is_noticed_on_the_table() -> None:
    assert noticed(every()["stopping | segment_ended [agent_survives] -> failing: dropped"]).level == "lives"


@pytest.mark.usefixtures("patient")
def test_the_shipped_machine_is_noticed_by_nobody() -> None:
    row = next(row for row in SHIPPED.rows if (row.source, row.trigger) == ("booting", "errored"))
    unedited = Mutant(edit="a row is dropped", name="nothing", declaration=SHIPPED, state="booting", row=row)
    assert len(concerned(unedited, telling())) > 1
    assert notice(unedited, telling()).level is None


# ---- the mutants


def test_every_mutant_has_a_name_of_its_own_and_differs_from_the_shipped_machine() -> None:
    assert len(every()) == len(made())
    assert [mutant.name for mutant in made() if mutant.declaration == SHIPPED] == []
    assert {mutant.edit for mutant in made()} == set(EDITS)


def test_every_row_is_dropped_and_retargeted_everywhere_and_every_guard_dropped_flipped_and_exchanged() -> None:
    rows, guarded = len(SHIPPED.rows), sum(row.guard is not None for row in SHIPPED.rows)
    counts = Counter(mutant.edit for mutant in made())
    assert (counts["a row is dropped"], counts["a row is repeated"]) == (rows, rows)
    assert counts["a row is retargeted"] == rows * len(SHIPPED.states)  # and (same), but not to where it leads
    assert (counts["a guard is dropped"], counts["a guard is flipped"]) == (guarded, guarded)
    assert counts["a guard is exchanged"] == guarded * 8


def test_a_mutant_is_what_the_edited_files_load_as_or_the_structure_refuses_it_too(tmp_path: Path) -> None:
    files = [mutant for mutant in made() if mutant.edit != "a guard is flipped"]
    for number, mutant in enumerate(sample(files, dev=2, ci=15)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for state in mutant.declaration.states.values():
            (folder / f"{state.name}.toml").write_text("\n".join(toml(state)), encoding="utf-8")
        assert loaded(folder) == mutant.declaration or check_machine(mutant.proven), mutant.name


def loaded(folder: Path) -> Declaration | None:
    """What the files of a folder declare; None if they are refused."""
    try:
        return load_machine(folder)
    except DeclarationError:
        return None


def toml(state: State) -> Iterator[str]:
    """A state as its file has it."""
    said = asdict(state, recurse=False)
    yield from _lines(said, but=("name", "rows"))
    for row in state.rows:
        yield "[[on]]"
        yield from _lines(asdict(row), but=("source",))


def _lines(said: Mapping[str, object], *, but: tuple[str, ...]) -> Iterator[str]:
    return (
        f"{name} = {json.dumps(value)}" for name, value in said.items() if name not in but and value not in (None, ())
    )


def test_a_flipped_guard_takes_its_row_exactly_when_the_guard_does_not_hold() -> None:
    mutant = every()["setup | ready [stop_requested] -> stopped: guard flipped"]
    with machine(mutant.declaration):
        flipped = compile_machine(mutant.declaration)
    for asked, target in ((True, "waiting"), (False, "stopped")):
        subject = Subject("setup")
        flipped.fire(subject, "ready", Facts(stop_requested=asked))
        assert subject.state == target
    assert mutant.proven == SHIPPED


# ---- the noticing


def test_the_engine_runs_on_another_machine_inside_of_the_block_only() -> None:
    mutant = every()["waiting | close [has_user] -> closing: sets no_progress instead of user_closed"]
    assert "user_closed" in reserved_conditions()
    with machine(mutant.declaration):
        assert lifecycle().declaration is mutant.declaration is expectations.MACHINE
        assert "user_closed" not in reserved_conditions()
    assert lifecycle().declaration == SHIPPED == expectations.MACHINE
    assert "user_closed" in reserved_conditions()


def test_a_mutant_that_goes_round_for_ever_is_noticed() -> None:
    mutant = every()["stepping | cancel -> aborting: retargeted to (same)"]
    cancelled = [path for path in OWN if path.stem == "cancel_during_a_model_call"]
    found = noticed_by(mutant, witnesses(cancelled, SHIPPED))
    assert found is not None
    assert "firings" in found[1]


def test_a_witness_that_never_fires_the_edited_trigger_is_not_asked() -> None:
    mutant = every()["created | close -> aborted: retargeted to failing"]
    asked = concerned(mutant, telling())
    assert "closed_without_having_been_opened" in {witness.name for witness in asked}
    assert len(asked) < 5
    assert all(("created", "close") in witness.fired for witness in asked)


def test_a_worker_that_dies_costs_its_mutant_only(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{state}: renamed in its file" for state in ("waiting", "stopped", "failing", "closing")]

    def dies(mutant: Mutant, witnesses: object) -> Notice:
        if mutant.name == names[1]:
            os._exit(1)
        return Notice(mutant=mutant.name, level=None)

    monkeypatch.setattr(pool, "notice", dies)
    came = {said.mutant: said for said in notices([every()[name] for name in names], [])}
    assert came == {name: Notice(mutant=name, level=None) for name in names} | {
        names[1]: Notice(mutant=names[1], level="scenarios", said="its process died")
    }


def test_every_reason_is_about_some_mutants_and_no_mutant_has_two() -> None:
    about = {why: [mutant for mutant in made() if rule(mutant)] for rule, why in REASONS}
    assert [why for why, same in about.items() if not same] == []
    counts = Counter(mutant.name for same in about.values() for mutant in same)
    assert [name for name, times in counts.items() if times > 1] == []


# ---- the command


def told(monkeypatch: pytest.MonkeyPatch, *names: str, missed: tuple[str, ...] = ()) -> int:
    """The exit status of the command about these mutants, of which some are missed."""
    monkeypatch.setattr(command, "witnesses", lambda paths, shipped: ())
    monkeypatch.setattr(command, "mutants", lambda shipped: tuple(every()[name] for name in names))
    monkeypatch.setattr(
        command,
        "notices",
        lambda asked, _: (Notice(mutant=one.name, level=None if one.name in missed else "lives") for one in asked),
    )
    return command.main(["--own"])


def test_the_command_counts_and_names_what_was_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gap, same = "failing | close -> discarding: dropped", "failing | stop -> (same): dropped"
    assert told(monkeypatch, gap, same, "setup | ready -> waiting: dropped", missed=(gap, same)) == 1
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("a row is dropped"))
    assert row.split()[4:] == ["3", "1", "1", "1", "33.3%", "50.0%"]
    assert f"missed: {gap}" in lines
    assert lines.index(f"    {same}") == lines.index(f"equivalent: {reason(every()[same])}") + 1


def test_the_command_succeeds_when_only_equivalent_mutants_are_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    same = "failing | stop -> (same): dropped"
    assert told(monkeypatch, same, "setup | ready -> waiting: dropped", missed=(same,)) == 0
    assert "missed: " not in capsys.readouterr().out
