"""`rollout-fsm resume`, offline and in this process: what it goes by, what it runs, what it says, what it refuses."""

import json
import os
import re
import shutil
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout_fsm import Trace, check_trace, read_traces
from rollout_fsm.cli.config_file import read_settings
from rollout_fsm.folder_lock import FolderLock
from tests.cli.conftest import ROWS, SUMS, CommandLine, Said

SCRIPTED = ("-m", "scripted")
KEYED = SUMS + "\n    @property\n    def key(self) -> str:\n        return self.name\n"
"""Tasks that are told by their names."""
KEYED_ROWS = "".join(f'{{"prompt": "?", "answer": "{n}", "name": "task {n}"}}\n' for n in range(4))


def traces_of(folder: Path) -> list[Trace]:
    faults: list[object] = []
    traces = list(read_traces(folder / "traces.jsonl", on_fault=lambda *fault: faults.append(fault)))
    assert faults == []
    return traces


def begun(cli: CommandLine, *arguments: str, module: str = SUMS, rows: str = ROWS) -> Path:
    """A run that went through; returns its folder."""
    said = cli(
        "run", cli.file("t.jsonl", rows), "--task", f"{cli.module(module)}:Sum", *SCRIPTED, "-o", "out", *arguments
    )
    assert (said.code, said.err) == (0, "")
    return cli.folder / "out"


def torn_out(folder: Path, *places: int) -> list[Trace]:
    """Takes lines out of the traces, as if the run had been killed before they came to be; returns what stays."""
    lines = (folder / "traces.jsonl").read_text().splitlines(keepends=True)
    (folder / "traces.jsonl").write_text("".join(line for place, line in enumerate(lines) if place not in places))
    return traces_of(folder)


def places(traces: list[Trace]) -> Counter[tuple[object, object]]:
    """How often each rollout is there: the place of its task and its index."""
    return Counter((trace.task.data["idx"], trace.group.index if trace.group else None) for trace in traces)


def test_what_is_owed_is_run_and_what_is_done_stays(cli: CommandLine) -> None:
    folder = begun(cli, "-r", "3")
    kept = torn_out(folder, 1, 4)

    said = cli("resume", "out")

    traces = traces_of(folder)
    assert (said.code, said.err) == (0, "")
    assert traces[:4] == kept
    assert places(traces) == {(task, index): 1 for task in (0, 1) for index in (0, 1, 2)}
    assert {trace.run for trace in traces} == {kept[0].run}
    assert [check_trace(trace) for trace in traces] == [[]] * 6
    lines = said.out.splitlines()
    assert lines[0] == "4 of 6 rollouts done before, 2 owed"
    assert [line.split()[0] for line in lines[1:3]] == ["[5/6]", "[6/6]"]


def test_the_summary_is_of_the_whole_run_and_the_log_goes_on(cli: CommandLine) -> None:
    folder = begun(cli, "-r", "3")
    before = (folder / "logs" / "run.log").read_text()
    torn_out(folder, 0)

    said = cli("resume", "out")

    assert " t   6 of 6 rollouts, 6 ok, 5 done before, in " in said.out
    assert re.search(r"reward +0\.500 +6 of 6", said.out)
    log = (folder / "logs" / "run.log").read_text()
    assert log.startswith(before)
    assert log.count("rollout done: id=") == 7


def test_a_run_is_resumed_from_any_folder_with_what_it_named_where_it_was_begun(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.file("agent.py", "import sys\nprint(sys.argv[1:])\n")
    folder = begun(cli, "--harness", "{python} agent.py {prompt}")
    torn_out(folder, 0, 1)
    elsewhere = cli.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "t.jsonl").write_text('{"prompt": "another", "answer": "file"}\n')
    monkeypatch.chdir(elsewhere)

    said = cli("resume", "../out")

    assert (said.code, said.err) == (0, "")
    assert Path.cwd() == elsewhere
    assert places(traces_of(folder)) == {(0, 0): 1, (1, 0): 1}
    assert all("agent.py" in json.dumps(trace.agent.config) for trace in traces_of(folder))
    assert "../out/traces.jsonl" in said.out


def test_nothing_owed_is_said_and_is_no_failure(cli: CommandLine) -> None:
    folder = begun(cli)
    before = (folder / "traces.jsonl").read_bytes()

    said = cli("resume", "out")

    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("nothing is owed: all 2 rollouts are done\n")
    assert " t   2 of 2 rollouts, 2 ok, 2 done before, in " in said.out
    assert (folder / "traces.jsonl").read_bytes() == before


def test_the_same_shuffle_of_the_same_tasks_is_gone_on_with(cli: CommandLine) -> None:
    folder = begun(cli, "-s", "--shuffle-seed", "7", "-n", "2", module=KEYED, rows=KEYED_ROWS)
    names = {trace.task.data["name"] for trace in traces_of(folder)}
    torn_out(folder, 0, 1)

    assert cli("resume", "out").code == 0
    assert {trace.task.data["name"] for trace in traces_of(folder)} == names != {"task 0", "task 1"}


def test_a_task_that_has_changed_is_owed_again_and_its_old_trace_is_kept_aside(cli: CommandLine) -> None:
    folder = begun(cli, module=KEYED, rows=KEYED_ROWS)
    cli.file("t.jsonl", KEYED_ROWS.replace('"answer": "2"', '"answer": "give up"'))

    dry, said = cli("resume", "out", "--dry-run"), cli("resume", "out")

    assert "1  the content of the task changed\n" in dry.out
    assert (said.code, said.err) == (0, "")
    assert "1 of the traces is of tasks whose content has changed since: owed again\n" in said.out
    traces = traces_of(folder)
    assert places(traces) == {(place, 0): 1 for place in range(4)}
    assert {trace.task.data["name"]: trace.reward for trace in traces}["task 2"] == 1.0
    assert len((folder / "superseded.jsonl").read_text().splitlines()) == 1


def test_traces_of_tasks_that_are_not_asked_for_any_more_stay_and_do_not_count(cli: CommandLine) -> None:
    folder = begun(cli)
    cli.file("t.jsonl", ROWS.replace("2 + 2", "3 + 3"))

    said = cli("resume", "out")

    assert said.code == 0
    assert "1 of 2 rollouts done before, 1 owed\n1 of the traces is of rollouts that the run does not ask" in said.out
    assert " t   2 of 2 rollouts, 2 ok, 1 done before, in " in said.out
    assert len(traces_of(folder)) == 3


def test_a_dry_run_says_what_is_owed_and_why_and_changes_nothing(cli: CommandLine) -> None:
    folder = begun(cli, "-n", "1", module=KEYED, rows=KEYED_ROWS)
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(config.replace("num_tasks = 1", "num_tasks = 3"))
    torn_out(folder, 0)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    said, each = cli("resume", "out", "--dry-run"), cli("resume", "out", "--dry-run", "-v")

    assert (said.code, said.err) == (0, "")
    assert said.out == "t   3 of 3 rollouts owed\n     2  it was not begun\n     1  its trace is not in traces.jsonl\n"
    assert each.out.splitlines()[4:] == [
        "task 0#0  its trace is not in traces.jsonl",
        "task 1#0  it was not begun",
        "task 2#0  it was not begun",
    ]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_damage_in_the_traces_costs_its_line_and_is_said(cli: CommandLine) -> None:
    folder = begun(cli)
    whole = (folder / "traces.jsonl").read_text()
    (folder / "traces.jsonl").write_text(whole.replace('"id"', '"i', 1))

    dry, said = cli("resume", "out", "--dry-run"), cli("resume", "out")

    assert re.fullmatch(r"rollout-fsm: out/traces\.jsonl: line 1 is no trace: .*; passed over\n", dry.err)
    assert said.code == 0
    assert said.err.count("\n") == 1
    assert "line 1 of" in said.err
    assert "1 of 2 rollouts done before, 1 owed" in said.out


def test_a_trace_that_cannot_be_read_whole_counts_as_done_and_is_missing_from_the_summary(cli: CommandLine) -> None:
    folder = begun(cli)
    whole = (folder / "traces.jsonl").read_text()
    (folder / "traces.jsonl").write_text(whole.replace('"calls":[', '"calls":[3,', 1))

    said = cli("resume", "out")

    assert said.code == 0
    assert "nothing is owed" in said.out
    assert " t   1 of 2 rollouts, " in said.out
    assert said.err == (
        "rollout-fsm: 1 of the traces that were there before cannot be read whole, so the summary is without them; "
        "`rollout-fsm check` says why\n"
    )


def test_failures_of_the_whole_run_are_failures_where_that_is_asked_for(cli: CommandLine) -> None:
    failing = SUMS.replace("return len(trace.last_reply)", "raise ValueError('no')")
    folder = begun(cli, "--max-retries", "1", "--retry.backoff", "0", module=failing)

    assert cli("resume", "out").code == 0
    assert cli("resume", "out", "--fail-on-error").code == 1
    assert "fail_on_error" not in (folder / "config.toml").read_text()


def test_what_the_surroundings_said_is_written_down(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    tasks = cli.file("t.jsonl", '{"prompt": "?"}\n')

    assert cli("run", tasks, "-m", "m", "-o", "out", "-s").code == 0

    said = read_settings(cli.folder / "out" / "config.toml")
    assert said.model is not None
    assert said.model.base_url == "http://127.0.0.1:9/v1"
    assert said.shuffle_seed == 0
    assert said.origin is not None
    assert said.origin.folder == str(cli.folder)
    assert said.origin.run == traces_of(cli.folder / "out")[0].run.id  # type: ignore[union-attr]


def test_an_endpoint_with_a_password_is_not_written_down_and_another_one_is_not_taken_for_it(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:secret@127.0.0.1:9/v1")
    assert cli("run", cli.file("t.jsonl", '{"prompt": "?"}\n'), "-m", "m", "-o", "out").code == 0
    assert "secret" not in (cli.folder / "out" / "config.toml").read_text()
    assert cli("resume", "out").code == 0

    monkeypatch.delenv("OPENAI_BASE_URL")

    refused(
        cli("resume", "out"),
        r"the run asked its model at http://127\.0\.0\.1:9/v1, as OPENAI_BASE_URL said, which is not set now; set it "
        r"again, or say base_url under \[model\] in out/config\.toml",
    )


def refused(said: Said, line: str) -> None:
    """One line that matches, whole; nothing else."""
    assert (said.code, said.out) == (2, ""), said
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert re.fullmatch(f"rollout-fsm: {line}", lines[0]), lines[0]


ARGUMENTS = {
    "": r'Command "resume" parameter OUTPUT_DIR requires an argument\.',
    "out again": r"too many arguments: 'again'; resume takes one folder of a run",
    "out -m scripted": r"-m: a run is resumed as it was begun \(out/config\.toml says how\); resume takes -c, .*",
    "out --max-turns=3": r"--max-turns=3: a run is resumed as it was begun .*",
    "out --max-retries 3 -c 2": r"--max-retries: a run is resumed as it was begun .*",
    "out -c 0": r"--max-concurrent: must be a whole number of at least 1, not 0",
    "nosuch": r"nosuch is not there; name the folder of a run",
    "t.jsonl": r"t\.jsonl is no folder; name the folder of a run",
    ".": r"the folder \. holds no run \(traces\.jsonl is missing\), so there is nothing to resume",
}


def test_wrong_arguments_are_refused_in_one_line_each(cli: CommandLine) -> None:
    folder = begun(cli)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    for arguments, line in ARGUMENTS.items():
        refused(cli("resume", *arguments.split()), line)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def changed(before: str, after: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        text = (folder / "config.toml").read_text()
        assert before in text
        (folder / "config.toml").write_text(text.replace(before, after))

    return change


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no settings": (
        lambda folder: (folder / "config.toml").unlink(),
        r"the folder out holds a run that says nothing of its settings \(config\.toml is missing\): a program began .*",
    ),
    "no TOML": (changed("[origin]", "[origin"), r"out/config\.toml: is not TOML: .*"),
    "a wrong setting": (
        changed("max_concurrent = 32", "max_concurrent = 0"),
        r"out/config\.toml: max_concurrent: must be a whole number of at least 1, not 0",
    ),
    "an unknown setting": (changed("[origin]", "[origni]"), r"out/config\.toml: origni: unknown key; did you .*"),
    "no folder": (
        changed("folder = ", "# "),
        r"out/config\.toml: origin\.folder is missing, which says in which folder the run was begun; put it back: .*",
    ),
    "no id": (
        changed("run = ", "# "),
        r"out/config\.toml: origin\.run is missing, which says the run's id; put it back: \[origin\], run = …",
    ),
    "another folder": (
        changed('folder = "', 'folder = "/nowhere'),
        r"the run was begun in /nowhere\S+, where its tasks and modules are found, and that cannot be entered: No such "
        r"file or directory; bring it back, or change origin\.folder in out/config\.toml",
    ),
    "tasks are gone": (
        lambda folder: (folder.parent / "t.jsonl").unlink(),
        r"t\.jsonl: cannot be read: No such file or directory",
    ),
    "no tasks are left": (lambda folder: (folder.parent / "t.jsonl").write_text(""), r"t\.jsonl: there are no tasks.*"),
    "the journal is another program's": (
        lambda folder: (folder / "journal.db").write_text("no database " * 100),
        r"the journal \S+/out/journal\.db cannot be opened: file is not a database; it is damaged: move it .*",
    ),
}


def test_a_run_that_cannot_be_made_again_is_refused_and_left_as_it_is(cli: CommandLine) -> None:
    folder, kept = begun(cli), cli.folder / "kept"
    shutil.copytree(cli.folder, kept)

    for damage, line in DAMAGES.values():
        damage(folder)
        before = (folder / "traces.jsonl").read_bytes()
        refused(cli("resume", "out"), line)
        assert (folder / "traces.jsonl").read_bytes() == before
        shutil.rmtree(folder)
        shutil.copytree(kept, cli.folder, dirs_exist_ok=True)
    assert cli("resume", "out").code == 0


def test_all_faults_of_the_settings_are_said_at_once(cli: CommandLine) -> None:
    folder = begun(cli)
    changed("port = 0", "port = -1\nnum_tsks = 3")(folder)

    said = cli("resume", "out")

    assert said.code == 2
    assert [line.partition("config.toml: ")[2] for line in sorted(said.err.splitlines())] == [
        "num_tsks: unknown key; did you mean 'num_tasks'?",
        "port: must be between 0 and 65535, not -1",
    ]


def test_a_folder_in_use_is_refused_by_the_name_of_the_process_that_uses_it(cli: CommandLine) -> None:
    lock = FolderLock(begun(cli))
    lock.acquire("that-run")
    try:
        for arguments in (("out",), ("out", "--dry-run")):
            refused(
                cli("resume", *arguments),
                rf"the folder out is in use by process {os.getpid()} on \S+, run that-run, since \S+; wait until .*",
            )
    finally:
        lock.release()
    assert cli("resume", "out").code == 0


def test_a_run_without_its_journal_keeps_its_id_and_does_what_it_owes(cli: CommandLine) -> None:
    folder = begun(cli)
    (kept,) = torn_out(folder, 0)
    (folder / "journal.db").unlink()

    dry, said = cli("resume", "out", "--dry-run"), cli("resume", "out")

    assert dry.err == "rollout-fsm: out/journal.db is missing, so how far the rollouts came is not known\n"
    assert "1  it was not begun" in dry.out
    assert said.code == 3  # what a dead process may have left is not found
    assert "journal.db says nothing: what a dead process left is not found" in said.err
    assert {trace.run for trace in traces_of(folder)} == {kept.run}
    assert len(traces_of(folder)) == 2


def test_a_run_can_be_moved_and_the_example_needs_no_tasks(cli: CommandLine) -> None:
    assert cli("run", "-n", "2", "-o", "out").code == 0
    shutil.move(cli.folder / "out", cli.folder / "moved")
    torn_out(cli.folder / "moved", 0)

    said = cli("resume", "moved", "-c", "1")

    assert (said.code, said.err) == (0, "")
    assert len(traces_of(cli.folder / "moved")) == 2
    assert tomllib.loads((cli.folder / "moved" / "config.toml").read_text())["output_dir"] == "out"


def test_the_origin_of_settings_is_nobody_elses_business(cli: CommandLine) -> None:
    begun(cli)

    dry = cli("run", "--config", "out/config.toml", "-o", "new", "--dry-run")

    assert dry.code == 0
    assert "origin" not in dry.out
