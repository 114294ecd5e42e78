"""The two streams: what cannot be written is noted and never raises."""

import errno
import io
import os
from pathlib import Path

import pytest
from rich.table import Table

from rollout_fsm.cli.screen import Outlet, Screen
from tests.cli.conftest import CommandLine


class Failing(io.StringIO):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(("number", "matters"), [(errno.EPIPE, False), (errno.ENOSPC, True), (errno.EIO, True)])
def test_a_reader_that_went_away_is_no_failure_and_a_full_disk_is_one(number: int, matters: bool) -> None:
    screen = Screen(Outlet(Failing(number)), Outlet(io.StringIO()))

    screen.say("one")
    screen.write("two")
    screen.show(Table("three"))

    assert screen.outlet.broken is not None
    assert (screen.outlet.unwritten is not None) is matters


def test_a_full_disk_under_standard_output_is_said_and_the_exit_code_says_so(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", Failing(errno.ENOSPC))

    said = cli("check")

    assert said.code == 3
    assert said.err == "rollout-fsm: standard output could not be written: No space left on device\n"


def test_a_broken_pipe_does_not_break_a_run(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = cli.file("prompts.jsonl", '{"prompt": "?"}\n' * 3)
    monkeypatch.setattr("sys.stdout", Failing(errno.EPIPE))

    said = cli("run", tasks, "-m", "scripted", "-o", "out")

    assert (said.code, said.err) == (0, "")
    assert len((cli.folder / "out" / "traces.jsonl").read_text().splitlines()) == 3


def test_characters_that_a_stream_cannot_carry_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open(path, "w", encoding="ascii") as file:
        Screen(Outlet(file), Outlet(io.StringIO())).say("50 – ✓")

    assert path.read_text() == "50 \\u2013 \\u2713\n"


def test_text_is_never_markup_and_lines_are_neither_wrapped_nor_cut() -> None:
    out = io.StringIO()
    screen = Screen(Outlet(out), Outlet(io.StringIO()))

    screen.say("[bold]" + "x" * 300 + ":smile:")

    assert out.getvalue() == "[bold]" + "x" * 300 + ":smile:\n"
