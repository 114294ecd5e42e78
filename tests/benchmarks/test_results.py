"""Figures that are kept: the newest of each counts, files are whole, and the README's table is made of them."""

import json
import os
from pathlib import Path

import pytest
from attrs import evolve

from tests.benchmarks import readme, results
from tests.benchmarks.command import main
from tests.benchmarks.results import (
    Figure,
    ResultError,
    Run,
    joined,
    keep,
    kept,
    newest,
    read,
    refusal,
    write,
    write_run,
)
from tests.benchmarks.works import works

MACHINE: dict[str, str | int] = {"cpu": "a processor", "cores": 2, "os": "an OS", "kernel": "1", "load": "0.5"}
RUN = Run(date="2026-11-30T06:00:00+00:00", machine=MACHINE, versions={"python": "3"}, peer={"verifiers": "0"}, runs=5)


def figure(work: str, about: str, unit: str, here: float = 1, peer: float | None = 2) -> Figure:
    """A cost."""
    ratio = None if peer is None else peer / here
    return Figure(
        work=work,
        about=about,
        unit=unit,
        here=here,
        peer=peer,
        times_better=ratio,
        mark=None,
        samples={"here": (here,)},
    )


CANCELLING = figure("cancelling", "cancelling 1,000 in flight", "ms")
IMPORT = figure("import", "import rollout_fsm", "ms")


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for what is kept, with nothing there, and a README beside it."""
    monkeypatch.setattr(results, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setattr(readme, "README", tmp_path / "README.md")
    (tmp_path / "README.md").write_text(f"before\n{readme.BEGIN}an old table{readme.END}\nafter\n", encoding="utf-8")
    return tmp_path / "measured.json"


def test_the_newest_of_each_figure_counts_and_of_two_of_one_date_the_later_one() -> None:
    first = RUN.having([CANCELLING, IMPORT])
    second = evolve(RUN, date="2026-12-01").having([evolve(IMPORT, here=7.0)])
    third = RUN.having([evolve(CANCELLING, here=8.0)])
    for given in ([second, first, third], [first, third, second]):
        assert {key[0]: one.here for key, (_, one) in newest(given).items()} == {"cancelling": 8, "import": 7}
        assert joined(given) == [third, second]
    assert joined([first, first]) == [first]


def test_a_file_holds_one_run_or_several(tmp_path: Path) -> None:
    run = RUN.having([CANCELLING], ["it broke"])
    one, several = tmp_path / "one.json", tmp_path / "several.json"
    write_run(one, run)
    told = json.loads(one.read_text())
    several.write_text(json.dumps([told, told]))
    assert read(one) == [run]
    assert read(several) == [run, run]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no JSON", "has no figures: Expecting value: line 1 column 1 (char 0)"),
        ("{}", "has no figures: required field missing @ it[0].date"),
        ('"figures"', "has no figures: "),
        ("\0\xff", "has no figures: "),
    ],
)
def test_a_file_without_figures_is_said_to_have_none(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ResultError) as raised:
        read(file)
    assert f"{file} {told}" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "figures.json"
    write(file, "whole")
    assert file.stat().st_mode & 0o777 == 0o644
    file.chmod(0o600)
    (tmp_path / "link.json").symlink_to(file)
    write(tmp_path / "link.json", "again")
    assert file.read_text() == "again"
    assert file.stat().st_mode & 0o777 == 0o600

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(file, "never")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["figures.json", "link.json"]
    assert file.read_text() == "again"


def test_what_is_no_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(pipe, "figures")
        assert os.read(reader, 100) == b"figures"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_what_files_hold_is_kept_beside_the_rest_and_put_into_the_readme(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, run in {
        "a": RUN.having([CANCELLING, IMPORT]),
        "b": evolve(RUN, date="2026-12-01T00:00:00").having([evolve(CANCELLING, here=8.0, times_better=0.25)]),
    }.items():
        write_run(tmp_path / name, run)
        assert main(["--table", str(tmp_path / name), "--keep"]) == 0
    assert [(run.date[:10], [one.work for one in run.figures]) for run in kept()] == [
        ("2026-11-30", ["import"]),
        ("2026-12-01", ["cancelling"]),
    ]
    capsys.readouterr()
    assert main(["--table"]) == 0
    table = capsys.readouterr().out
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == (
        f"before\n{readme.BEGIN}{table.removesuffix(chr(10))}{readme.END}\nafter\n"
    )


def test_what_an_interrupted_run_found_is_shown_as_such_and_not_kept(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "part.json"
    write_run(file, RUN.having([CANCELLING], partial=True))
    assert main(["--table", str(file)]) == 0
    assert capsys.readouterr().err == f"{file} is of an interrupted run and holds a part of the figures\n"
    with pytest.raises(SystemExit) as left:
        main(["--table", str(file), "--keep"])
    assert left.value.code == 2
    assert "is of an interrupted run; --keep keeps whole ones" in capsys.readouterr().err
    assert not measured.exists()


def test_a_file_kept_before_runs_could_be_partial_is_read(measured: Path) -> None:
    keep([RUN.having([CANCELLING])])
    (told,) = json.loads(measured.read_text())
    del told["partial"]
    measured.write_text(json.dumps([told]))
    assert kept() == [RUN.having([CANCELLING])]


def test_whether_a_file_can_be_written_is_tried_beside_it(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("/proc/x")
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "figures.json") is None
    assert refusal(tmp_path / "pipe") is None
    assert refusal(tmp_path / "link.json") == "cannot be written: No such file or directory"
    assert refusal(tmp_path / ("a" * 300)) == "cannot be written: File name too long"
    assert refusal(tmp_path) == "is a folder"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.json", "pipe"]


def test_a_place_that_is_full_is_told_in_one_line() -> None:
    with pytest.raises(ResultError, match=r"^/dev/full cannot be written: No space left on device$"):
        write_run(Path("/dev/full"), RUN.having([CANCELLING]))


def test_the_readmes_table_says_when_where_and_what_is_not_reached() -> None:
    imported = evolve(RUN, date="2026-12-01", runs=1).having([evolve(IMPORT, here=0.1, times_better=20.0)])
    marks = sum(
        one.mark is not None for work in works(small=False) for sample in work.samples for one in sample.measures
    )
    cancelled = evolve(RUN, versions={"python": "2"}).having([evolve(CANCELLING, here=8.0, times_better=0.25)])
    told = readme.table([cancelled, imported])
    assert told.splitlines() == [
        "| workload                   | unit | rollout-fsm | verifiers | times better | target | reached |",
        "|----------------------------|------|------------:|----------:|-------------:|-------:|--------:|",
        "| cancelling 1,000 in flight | ms ↓ |        8.00 |      2.00 |       0.250× | ≥ 0.5× |      no |",
        "| import rollout_fsm ¹       | ms ↓ |       0.100 |      2.00 |        20.0× |  ≥ 10× |     yes |",
        "",
        "↑ higher is better, ↓ lower is better. ¹ Fewer than 5 runs.",
        "",
        f"Of the 2 targets in the table 1 is reached, 1 is not. Of all {marks} 1 is reached, 1 is not, {marks - 2} are "
        "not measured.",
        "",
        "- cancelling: medians of 5 runs, 2026-11-30, with python 2.",
        "- import: 1 run, 2026-12-01.",
        "- On a processor, 2 cores, an OS. Versions: python 3. Baseline: verifiers 0.",
    ]


def test_of_a_group_the_readme_shows_the_one_that_compares_worst() -> None:
    loads = [
        figure("gateway", f"gateway, 64 connections, {load}", "ms, p99", here)
        for load, here in {"1 kB, plain": 1.0, "100 kB, plain": 4.0, "1 kB, streaming": 2.0}.items()
    ]
    told = readme.table([RUN.having(loads)])
    assert "100 kB, plain" in told
    assert "1 kB, plain" not in told.replace("100 kB", "")
    assert "streaming" not in told
    assert "Of the 1 targets" not in told
    assert "Of the 1 target in the table 0 are reached, 1 is not." in told
    assert "with the gateway's loads that are not shown, 0 are reached, 3 are not, " in told.replace("\n", " ")


def test_a_figure_of_a_work_that_is_gone_is_not_shown() -> None:
    assert "bygone" not in readme.table([RUN.having([figure("bygone", "bygone", "ms"), IMPORT])])


def test_every_figure_with_a_mark_can_be_shown_and_the_table_can_be_read() -> None:
    everything = RUN.having(
        figure(work.name, sample.about, measure.unit)
        for work in works(small=False)
        for sample in work.samples
        for measure in sample.measures
    )
    told = readme.table([everything])
    assert "not measured" not in told
    assert len(told.splitlines()) <= 35
    assert all(work.name in told for work in works(small=False) if work.name not in ("turns", "memory", "simulation"))
