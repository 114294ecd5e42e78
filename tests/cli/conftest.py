"""The command line, run in this process in a folder of its own."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import frozen

from rollout_fsm.cli import main


@frozen(kw_only=True)
class Said:
    """What a command did."""

    code: int
    out: str
    err: str


@frozen
class CommandLine:
    """Runs commands in `folder`; `file` and `module` put things there first."""

    folder: Path
    _run: Callable[[tuple[str, ...]], Said]

    def __call__(self, *arguments: str) -> Said:
        """The command line with these arguments."""
        return self._run(arguments)

    def file(self, name: str, text: str) -> str:
        """A file in the folder; returns its name."""
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def module(self, text: str) -> str:
        """A module in the folder, with a name that no other test uses; returns the name."""
        name = f"made_for_{abs(hash(self.folder))}_{len(list(self.folder.glob('made_for_*.py')))}"
        self.file(f"{name}.py", text)
        return name


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line in an empty folder, without the variables that name endpoints and keys."""
    monkeypatch.chdir(tmp_path)
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)

    def run(arguments: tuple[str, ...]) -> Said:
        handlers = list(logging.getLogger().handlers)
        code = main(arguments)
        assert logging.getLogger().handlers == handlers, "a handler was left behind"
        captured = capsys.readouterr()
        return Said(code=code, out=captured.out, err=captured.err)

    return CommandLine(tmp_path, run)


SUMS = """
from attrs import frozen
from rollout_fsm import Task, Trace, metric, reward

@frozen(kw_only=True)
class Sum(Task):
    answer: str

    @reward
    def correct(self, trace: Trace) -> float:
        return float(self.answer in trace.last_reply)

    @metric
    def length(self, trace: Trace) -> float:
        return len(trace.last_reply)
"""
"""A module with a task. The scripted model answers it with `I give up.`"""

ROWS = '{"prompt": "2 + 2?", "answer": "4"}\n{"prompt": "Do you?", "answer": "give up"}\n'
"""Its rows: one that is answered wrong, one right."""
