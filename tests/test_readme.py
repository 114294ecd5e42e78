"""Everything that the README shows is run: its programs as they stand, its commands in order, in one empty folder.

Installing is what `.ci/run` does with the two commands; here the package is installed already.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rollout_fsm.gateway.dialects.translation import ANSWERS, REQUESTS, markdown
from tests.benchmarks import readme as benchmarks
from tests.benchmarks.results import kept
from tests.benchmarks.stand_in import interpreter, stand_in
from tests.runtimes.bubblewrap.conftest import require_bubblewrap, unavailable

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTS = re.compile(r"  # prints (.+)$", re.MULTILINE)
INSTALLS = ("pip install", "python -m venv peer")
BENCHMARKS = ["python", "-m", "tests.benchmarks"]
PEER = os.environ.get("ROLLOUT_FSM_VERIFIERS_PYTHON")
"""The peer of the benchmarks; where there is none, one stands in that has a figure for everything."""
COUNTER = "import subprocess, sys; subprocess.run(sys.argv[3:], check=True); print('Collected : 7', file=sys.stderr)"
"""Runs a program as valgrind does, fifty times as fast, and without counting."""
TASKS = "".join(f'{{"prompt": "{n} + {n}?", "answer": "{n + n}"}}\n' for n in range(1, 4))

pytestmark = pytest.mark.whole_process


def blocks() -> list[tuple[str, str]]:
    return BLOCK.findall(README.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder with the files that the README names: the modules it shows, and the tasks it speaks of."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "tasks.jsonl").write_text(TASKS)
    for language, text in blocks():
        if language == "python" and (name := re.match(r"# (\w+\.py)\n", text)):
            (folder / name[1]).write_text(text)
    return folder


def run(argv: list[str], folder: Path, *programs: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(README.parent)}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


def commands() -> list[list[str]]:
    """What the README has one type, in order, but for installing."""
    given = [
        line.removeprefix("$ ")
        for language, text in blocks()
        if language == "console"
        for line in text.splitlines()
        if line.startswith("$ ")
    ]
    return [shlex.split(command) for command in given if not command.startswith(INSTALLS)]


PROGRAMS = [text for language, text in blocks() if language == "python"]


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_of_the_readme_runs_as_it_stands(program: str, folder: Path) -> None:
    if program.startswith("# needs bubblewrap"):
        require_bubblewrap()
    done = run([sys.executable, "-c", program], folder)
    assert done.returncode == 0, done.stderr
    for line in PRINTS.findall(program):
        assert line in done.stdout.splitlines()


def test_the_commands_of_the_readme_run_in_order(folder: Path) -> None:
    ours = [argv for argv in commands() if argv[:3] != BENCHMARKS]
    assert [argv[:2] for argv in ours if argv[1] == "run"], "the README shows how to run tasks"
    if unavailable() is not None:
        ours = [argv for argv in ours if "bubblewrap" not in argv]
    for argv in ours:
        done = run([sys.executable, "-m", "rollout_fsm", *argv[1:]], folder if argv[1] != "diagram" else README.parent)
        assert done.returncode == 0, f"{shlex.join(argv)}\n{done.stdout}\n{done.stderr}"


def test_the_benchmarks_of_the_readme_run(tmp_path: Path) -> None:
    """Each by as little work as shows it: all of the works are in the benchmarks' own tests."""
    peer, tools = tmp_path / "peer" / "bin" / "python", tmp_path / "tools"
    interpreter(peer, PEER) if PEER else stand_in(peer)
    interpreter(tools / "valgrind", sys.executable, "-c", COUNTER)
    interpreter(tools / "perf", "false")
    ours = [argv for argv in commands() if argv[:3] == BENCHMARKS]
    assert [argv[3:] for argv in ours] == [[], ["--peer", "peer/bin/python"], ["--instructions"]]
    for argv in ours:
        little = ["--small"] if "--instructions" in argv else ["--small", "--runs", "1", "--only", "cancelling"]
        done = run([sys.executable, *argv[1:], *little], tmp_path, tools)
        assert done.returncode == 0, f"{shlex.join(argv)}\n{done.stdout}\n{done.stderr}"
        assert "| work" in done.stdout
        assert ("times better" in done.stdout) == ("--peer" in argv)


@pytest.mark.parametrize("settings", [text for language, text in blocks() if language == "toml"])
def test_a_file_of_settings_of_the_readme_is_one(settings: str, folder: Path) -> None:
    (folder / "run.toml").write_text(settings)
    done = run([sys.executable, "-m", "rollout_fsm", "run", "--config", "run.toml", "--dry-run"], folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[[judges]]") == settings.count("[[judges]]")


def test_what_survives_a_translation_is_shown_as_it_is_declared() -> None:
    readme = README.read_text(encoding="utf-8")
    assert markdown(REQUESTS, "in a request") in readme
    assert markdown(ANSWERS, "in an answer") in readme


def test_what_it_costs_is_shown_as_it_was_measured() -> None:
    assert f"{benchmarks.BEGIN}{benchmarks.table(kept())}{benchmarks.END}" in README.read_text(encoding="utf-8")


def test_every_block_of_the_readme_is_of_a_kind_that_is_run() -> None:
    assert {language for language, _ in blocks()} <= {"python", "console", "toml"}
