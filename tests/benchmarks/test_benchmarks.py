"""The benchmark runs, every work of it, and says what it found; nothing here looks at how fast anything is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import NAMES, main, parser
from tests.benchmarks.instructions import Counted, Difference, count
from tests.benchmarks.sampling import Found, SampleError, take
from tests.benchmarks.tables import counts_table, figure, figures_table
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
    assert [row for row in rows if len(row) == 2][2:] == [[about, unit] for _, about, unit in wanted]


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
    assert "| ≥ 0.5× |" in capsys.readouterr().out


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
        (["--only", "speed"], f"argument --only: invalid choice: 'speed' (choose from {', '.join(map(repr, NAMES))})"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["--keep"], "--keep keeps what --instructions counts"),
        (["--keep", "--instructions", "--small"], "--keep keeps counts that say something; leave --small"),
        (["--instructions", "--only", "memory"], "--instructions counts rollouts and turns; leave --only"),
        (["--json", "/nowhere/figures.json"], "--json: there is no folder /nowhere"),
        (["--peer", "/nowhere/python"], "--peer: /nowhere/python cannot be run: No such file or directory"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_one_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert capsys.readouterr() == ("", f"python -m tests.benchmarks: {told}; --help says what there is\n")


def test_an_interpreter_without_verifiers_is_no_peer(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--peer", sys.executable])
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{sys.executable} has no verifiers" in told


def test_the_help_says_every_work_and_option() -> None:
    told = parser().format_help()
    for word in (*NAMES, "--peer", "--runs", "--only", "--json", "--marks", "--small", "--instructions", "--keep"):
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
    assert line.endswith("came to nothing (exit code 1): it broke")


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
        Found(work="w", about="played", measure=Measure("x", "s"), ours=[0.25]),
    ]
    assert figures_table(found, peer=True).splitlines() == [
        "| work     | unit    |  here | peer | times better | mark |",
        "|----------|---------|------:|-----:|-------------:|-----:|",
        "| rollouts | calls/s | 1,500 |  500 |        3.00× | ≥ 2× |",
        "| played   | s       | 0.250 |      |              |      |",
    ]
    counts = [Counted(about="a turn", ours=1100, kept=1000, peer=None), Counted(about="b", ours=9, kept=None, peer=18)]
    assert counts_table(counts, peer=True).splitlines() == [
        "| work   | unit         |  here |  kept |  change | peer | times better |",
        "|--------|--------------|------:|------:|--------:|-----:|-------------:|",
        "| a turn | instructions | 1,100 | 1,000 | +10.0 % |      |              |",
        "| b      | instructions |     9 |       |         |   18 |        2.00× |",
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
    found = list(count(TOOL, asked, peer=None, kept={"a turn": 20}, progress=lambda _: None))
    assert found == [Counted(about="a turn", ours=25, kept=20, peer=None)]
    assert found[0].change == pytest.approx(25)


def test_a_tool_that_tells_no_number_is_no_count() -> None:
    asked = [Difference(about="a turn", work="turns", sizes=(1, 2))]
    with pytest.raises(SampleError, match="told no number of instructions"):
        list(count((sys.executable, "-c", "0"), asked, peer=None, kept={}, progress=lambda _: None))
