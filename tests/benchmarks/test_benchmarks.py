"""The benchmark runs, every work of it, and says what it found; nothing here looks at how fast anything is."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.command import INTERRUPTED, NOTHING, main
from tests.benchmarks.instructions import Counted, Difference, count
from tests.benchmarks.options import LOOK, NAMES, parser
from tests.benchmarks.sampling import LEFT_TO_THE_USER, Found, SampleError, figures, take
from tests.benchmarks.stand_in import FIGURE, interpreter, stand_in
from tests.benchmarks.tables import counts_table, directed, figure, figures_table
from tests.benchmarks.works import HERE, ROOT, Measure, Sample, Work, works

VARIABLE = "ROLLOUT_FSM_VERIFIERS_PYTHON"

EVERY_WORK_THERE = """
import asyncio, sys
import peer

for work, numbers in {"rollouts": (2, 1), "turns": (2,), "memory": (2,), "cancelling": (2,)}.items():
    assert all(figure >= 0 for figure in asyncio.run(peer.WORKS[work](*numbers)).values()), work
    peer.Nowhere.stops = 0
assert not {"rollout_fsm", "attrs", "trio"} & sys.modules.keys()
"""
"""A fresh process has taken down no boxes, which `cancelling` counts."""


@pytest.fixture
def peer() -> str:
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"{VARIABLE} names no interpreter with verifiers 0.3.1")
    return python


@pytest.mark.whole_process
def test_every_figure_of_every_work_is_in_the_table_and_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    assert main(["--small", "--runs", "1", "--json", str(file)]) == 0
    told = json.loads(file.read_text())
    wanted = [
        (work.name, sample.about, measure.unit)
        for work in works(small=True)
        for sample in work.samples
        for measure in sample.measures
    ]
    assert [(one["work"], one["about"], one["unit"]) for one in told["figures"]] == wanted
    assert all(one["samples"] == {"here": [one["here"]], "peer": []} for one in told["figures"])
    assert told["failed"] == []
    assert told["machine"].keys() == {"cpu", "cores", "os", "kernel", "load"}
    assert told["versions"].keys() == {"python", "rollout-fsm", "trio", "transitions", "attrs"}
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in capsys.readouterr().out.splitlines()]
    assert [row for row in rows if len(row) == 2][2:] == [[about, directed(unit)] for _, about, unit in wanted]


@pytest.mark.whole_process
def test_the_same_work_is_done_in_the_peers_interpreter_in_turn(
    peer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    assert main(["--small", "--runs", "2", "--only", "cancelling", "--peer", peer, "--json", str(file)]) == 0
    told = json.loads(file.read_text())
    assert told["peer"]["verifiers"]
    for one in told["figures"]:
        assert [len(samples) for samples in one["samples"].values()] == [2, 2]
        assert one["times_better"] == pytest.approx(one["peer"] / one["here"])
    printed = capsys.readouterr().out
    assert "| ≥ 0.5× |" in printed
    assert "medians of 2; with --small hardly anything is done, so these figures say nothing" in printed


def test_benchmarks_that_are_named_one_by_one_are_all_done() -> None:
    given = parser().parse_args(["--only", "turns", "--only", "import", "memory"])
    assert given.only == ["turns", "import", "memory"]


@pytest.mark.whole_process
def test_a_peer_is_asked_for_the_figures_of_every_run_and_stands_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin" / "python")
    monkeypatch.chdir(tmp_path)
    arguments = ["--small", "--runs", "2", "--only", "import", "simulation", "--json", "figures.json"]
    assert main([*arguments, "--peer", "bin/python"]) == 0
    told = json.loads(Path("figures.json").read_text())
    assert told["peer"] == {"python": "3", "verifiers": "0", "pydantic": "0", "aiohttp": "0"}
    for one in told["figures"]:
        assert len(one["samples"]["here"]) == 2
        assert one["samples"]["peer"] == ([] if one["work"] == "simulation" else [FIGURE, FIGURE])
        assert one["times_better"] == (None if one["work"] == "simulation" else pytest.approx(FIGURE / one["here"]))
    out, err = capsys.readouterr()
    assert "baseline: python 3, verifiers 0, pydantic 0, aiohttp 0" in out
    assert err.splitlines()[:2] == [
        "import rollout_fsm: once before, not counted",
        "import rollout_fsm: run 1 of 2",
    ]


def interrupted(file: Path, line: str, *arguments: str) -> tuple[str, str]:
    """What the command says that is interrupted when it has come to this line."""
    command = [sys.executable, "-m", "tests.benchmarks", "--small", "--json", str(file), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any(told.startswith(line) for told in process.stderr)
        process.send_signal(signal.SIGINT)
        found = process.communicate()
    assert process.returncode == 130
    return found


@pytest.mark.whole_process
def test_ctrl_c_before_the_first_figure_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    for line, *arguments in (
        ("simulated rollouts: run 1 of 100000", "--only", "simulation", "--runs", "100000"),
        ("cancelling 1,000 in flight: run 2 of 100000", "--only", "cancelling", "--runs", "100000"),
    ):
        table, told = interrupted(file, line, *arguments)
        assert told.splitlines()[-1] == f"python -m tests.benchmarks: {NOTHING}"
        assert "Traceback" not in told
        assert "|" not in table
        assert not [*tmp_path.iterdir()]


@pytest.mark.whole_process
def test_ctrl_c_while_it_still_imports_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "attrs.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "python -m tests.benchmarks: interrupted\n")


@pytest.mark.whole_process
def test_ctrl_c_ends_it_and_what_was_found_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    arguments = "--only", "cancelling", "import", "--runs", "1"
    table, told = interrupted(file, "import rollout_fsm: once before", *arguments)
    assert told.splitlines()[-1] == f"python -m tests.benchmarks: {INTERRUPTED}"
    assert "Traceback" not in told
    found = json.loads(file.read_text())
    assert found["partial"]
    assert {one["work"] for one in found["figures"]} == {"cancelling"}
    assert "| cancelling 1,000 in flight |" in table


@pytest.mark.whole_process
def test_every_other_work_runs_in_the_peers_interpreter_without_anything_of_ours(peer: str) -> None:
    subprocess.run([peer, "-c", EVERY_WORK_THERE], cwd=ROOT / HERE, check=True)
    (sample,) = (one for one in works(small=True)[4].samples if one.about == "gateway, 1 connection, 1 kB, plain")
    assert sample.peer is not None
    done = subprocess.run([peer, *sample.peer], cwd=ROOT, check=True, capture_output=True)
    assert {measure.key for measure in sample.measures} <= json.loads(done.stdout).keys()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--runs", "0"], "argument --runs: '0' is no number of runs; 1 is the least"),
        (["--runs", "many"], "argument --runs: 'many' is no number of runs; 1 is the least"),
        (["--only", "speed"], f"argument --only: there is no benchmark 'speed'{LOOK}"),
        (["--only", "canceling"], "argument --only: there is no benchmark 'canceling'; did you mean 'cancelling'?"),
        (["--frobnicate"], f"unrecognized arguments: --frobnicate{LOOK}"),
        (["--keep", "--instructions", "--small"], "--keep keeps figures that say something; leave --small"),
        (["--instructions", "--only", "memory"], "--instructions counts rollouts and turns, once; leave --only"),
        (["--instructions", "--runs", "7"], "--instructions counts rollouts and turns, once; leave --runs"),
        (["--keep", "--runs", "4"], "--keep keeps medians of at least 5 runs; leave --runs"),
        (["--keep", "--runs", "7"], "--keep keeps figures that stand beside a baseline's; give --peer"),
        (["--table", "--peer", "python"], "--table measures nothing; leave --peer"),
        (["--table", "/nowhere/a.json"], "/nowhere/a.json cannot be read: No such file or directory"),
        (["--json", "/nowhere/figures.json"], "--json: there is no folder /nowhere"),
        (["--json", "/proc/x"], "--json: /proc/x cannot be written: No such file or directory"),
        (["--json", "/dev"], "--json: /dev is a folder"),
        (["--peer", "/nowhere/python"], "--peer: /nowhere/python cannot be run: No such file or directory"),
        (["--peer", "echo"], "--peer: echo is no Python interpreter"),
        (["--peer", "/bin/false"], "--peer: /bin/false is no Python interpreter"),
        (["--peer", "/dev"], "--peer: /dev is a folder"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_one_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert capsys.readouterr() == ("", f"python -m tests.benchmarks: {told}\n")


def test_an_interpreter_without_verifiers_is_no_peer(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--peer", sys.executable])
    assert left.value.code == 2
    told = f"{sys.executable} has no verifiers; {sys.executable} -m pip install verifiers==0.3.1"
    assert capsys.readouterr() == ("", f"python -m tests.benchmarks: --peer: {told}\n")


def test_of_an_interpreter_in_which_the_question_fails_the_failure_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only_programs = 'if sys.argv[1] != "-c": sys.exit("it broke")'
    python = interpreter(tmp_path / "python", sys.executable, "-c", f"import sys\n{only_programs}\nexec(sys.argv[2])")
    with pytest.raises(SystemExit):
        main(["--peer", str(python)])
    assert capsys.readouterr().err.endswith("failed (exit code 1): it broke\n")


def test_the_help_says_every_work_and_option() -> None:
    told = parser().format_help()
    options = "--peer", "--runs", "--only", "--json", "--targets", "--small", "--instructions", "--table", "--keep"
    for word in (*NAMES, *options):
        assert word in told


def test_a_sample_that_fails_takes_no_other_with_it() -> None:
    measures = (Measure("x", "s"),)
    broken = Sample(about="broken", ours=("-c", "raise SystemExit('it broke')"), peer=None, measures=measures)
    whole = Sample(about="whole", ours=("-c", "print('{\"x\": 2}')"), peer=None, measures=measures)
    failed: list[str] = []
    given = [Work(name="both", samples=(broken, whole))]
    found = list(take(given, peer=None, runs=2, progress=lambda _: None, failed=failed.append))
    assert [(one.about, one.ours) for one in found] == [("whole", [2, 2])]
    (line,) = failed
    assert line.endswith("failed (exit code 1): it broke")


def test_a_run_before_that_warms_is_not_counted(tmp_path: Path) -> None:
    file = tmp_path / "runs"
    program = (
        f"n = len(open({str(file)!r}, 'a+').read()); print(n, file=open({str(file)!r}, 'a')); print('{{\"x\": 1}}')"
    )
    measures = (Measure("x", "s"),)
    sample = Sample(about="warm", ours=("-c", program), peer=None, measures=measures, warmed=True)
    (found,) = take([Work(name="w", samples=(sample,))], peer=None, runs=2, progress=lambda _: None, failed=pytest.fail)
    assert found.ours == [1, 1]
    assert len(file.read_text().splitlines()) == 3


def test_what_a_shell_sets_of_python_changes_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONOPTIMIZE", "PYTHONPATH"):
        monkeypatch.setenv(name, "1")
    for name in LEFT_TO_THE_USER:
        monkeypatch.delenv(name, raising=False)
    here = figures(sys.executable, ("-c", "import os, json; print(json.dumps(dict(os.environ)))"))
    there = figures("sh", ("-c", f"{sys.executable} -c 'import os, json; print(json.dumps(dict(os.environ)))'"))
    assert {name: value for name, value in here.items() if name.startswith("PYTHON")} == {"PYTHONPATH": f"{ROOT}:1"}
    assert not [name for name in there if name.startswith("PYTHON")]


@pytest.mark.parametrize(("unit", "ratio"), [("calls/s", 3), ("ms", 1 / 3)])
def test_a_ratio_says_how_many_times_better_the_medians_are_here(unit: str, ratio: float) -> None:
    found = Found(work="w", about="a", measure=Measure("x", unit), ours=[30, 3000, 20], peer=[10, 1, 11])
    assert found.ratio == pytest.approx(ratio)


def test_what_is_too_small_to_be_seen_has_no_ratio() -> None:
    assert Found(work="w", about="a", measure=Measure("x", "KiB each"), ours=[0.0], peer=[3.0]).ratio is None
    assert Found(work="w", about="a", measure=Measure("x", "ms added, p50"), ours=[-0.1], peer=[3.0]).ratio is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (1234567.8, "1,234,568"),
        (1234.4, "1,234"),
        (99.94, "99.9"),
        (3.14159, "3.14"),
        (0.012345, "0.0123"),
        (0.0, "0"),
        (-0.5, "-0.500"),
        (None, ""),
    ],
)
def test_a_figure_has_three_digits_that_count(value: float | None, told: str) -> None:
    assert figure(value) == told


def test_the_tables_are_markdown() -> None:
    found = [
        Found(work="w", about="rollouts", measure=Measure("x", "calls/s", mark=2), ours=[1500], peer=[500]),
        Found(work="w", about="opened", measure=Measure("x", "ms", mark=2), ours=[1], peer=[1.5]),
        Found(work="w", about="played", measure=Measure("x", "s"), ours=[0.25]),
    ]
    assert figures_table([one.figure() for one in found], peer=True).splitlines() == [
        "| workload | unit      | rollout-fsm | verifiers | times better | target | reached |",
        "|----------|-----------|------------:|----------:|-------------:|-------:|--------:|",
        "| rollouts | calls/s ↑ |       1,500 |       500 |        3.00× |   ≥ 2× |     yes |",
        "| opened   | ms ↓      |        1.00 |      1.50 |        1.50× |   ≥ 2× |      no |",
        "| played   | s ↓       |       0.250 |           |              |        |         |",
    ]
    counts = [Counted(about="a turn", ours=1100, kept=1000, peer=None), Counted(about="b", ours=9, kept=None, peer=18)]
    assert counts_table(counts, peer=True).splitlines() == [
        "| workload | unit           | rollout-fsm |  kept |  change | verifiers | times better |",
        "|----------|----------------|------------:|------:|--------:|----------:|-------------:|",
        "| a turn   | instructions ↓ |       1,100 | 1,000 | +10.0 % |           |              |",
        "| b        | instructions ↓ |           9 |       |         |        18 |        2.00× |",
    ]


TOOL = (
    sys.executable,
    "-c",
    "import sys, os; n = int(sys.argv[-1]); assert os.environ['PYTHONHASHSEED'] == '0'\n"
    "sys.stderr.write(f'==7== \\n==7== Collected : {1000 + 25 * n}\\n')",
)
"""Tells as callgrind does that a start takes 1,000 instructions, and each turn 25."""


def test_a_start_is_not_among_the_instructions_that_are_counted() -> None:
    asked = [Difference(about="a turn", work="turns", sizes=(10, 30))]
    told: list[str] = []
    found = list(count(TOOL, asked, peer=None, kept={"a turn": 20}, progress=told.append))
    assert sorted(line.partition(":")[0] for line in told) == ["count 1 of 2", "count 2 of 2"]
    assert found == [Counted(about="a turn", ours=25, kept=20, peer=None)]
    assert found[0].change == pytest.approx(25)


def test_a_tool_that_tells_no_number_is_no_count() -> None:
    asked = [Difference(about="a turn", work="turns", sizes=(1, 2))]
    with pytest.raises(SampleError, match="told no number of instructions"):
        list(count((sys.executable, "-c", "0"), asked, peer=None, kept={}, progress=lambda _: None))


def test_after_a_count_that_failed_no_other_one_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    asked = [Difference(about=f"a turn, {place}", work="turns", sizes=(1, 2)) for place in range(20)]
    begun: list[str] = []
    with pytest.raises(SampleError, match="it broke"):
        list(count((sys.executable, "-c", "exit('it broke')"), asked, peer=None, kept={}, progress=begun.append))
    assert len(begun) < 2 * len(asked)
