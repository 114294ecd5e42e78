"""The kit as somebody else uses it: a test file in an empty folder, pytest, and this package."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rollout_fsm.testing import HarnessContract, ModelContract, RuntimeContract, ToolsetContract
from tests.testing.running import names

REPOSITORY = Path(__file__).parents[2]
THEIRS = """
from rollout_fsm import LocalRuntime, ScriptedModel
from rollout_fsm.testing import ModelContract, RuntimeContract


class StoppedOnce(LocalRuntime):
    async def stop(self):
        if self.stopped:
            raise RuntimeError("it is stopped already")
        await super().stop()


class TestRuntime(RuntimeContract):
    isolated = False
    has_leases = False
    points = 1

    def make(self, name):
        return StoppedOnce(name)


class TestModel(ModelContract):
    limits_tokens = False

    def make(self):
        return ScriptedModel(lambda request: request.messages[-1].text)


class TestUnfinished(ModelContract):
    pass
"""
SLOW = "test_a_timeout_kills"


@pytest.mark.whole_process
def test_a_test_file_of_theirs_is_collected_run_and_reported(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIRS)
    chosen = f"not {SLOW} and not (Unfinished and not name)"
    words = ["-v", "-rs", "-W", "error", "-p", "no:cacheprovider", "-k", chosen]
    ran = pytest_in(tmp_path, *words)
    said = re.findall(r"^test_theirs.py::Test(\w+)::(test_\w+) (\w+)", ran.stdout, re.MULTILINE)
    outcomes = {(kind, test): outcome for kind, test, outcome in said}
    expected = {("Runtime", name) for name in names(RuntimeContract) if SLOW not in name}
    expected |= {("Model", name) for name in names(ModelContract)}
    assert set(outcomes) == expected | {("Unfinished", "test_a_model_has_a_name")}, ran.stdout
    failed = {each for each, outcome in outcomes.items() if outcome == "FAILED"}
    assert failed == {
        ("Runtime", "test_stop_may_be_called_again"),
        ("Runtime", "test_a_stop_that_is_cancelled_anywhere_is_finished_by_another"),
        ("Unfinished", "test_a_model_has_a_name"),
    }
    report = re.sub(r"^E +", "", ran.stdout, flags=re.MULTILINE)
    assert (
        "the contract: A further `stop` changes nothing, and raises nothing (L8).\n"
        "what came:    the second stop() raised RuntimeError: it is stopped already\n"
        "to change:    return where nothing is left to be stopped\n"
    ) in report
    assert "what came:    TestUnfinished has no make(self)\nto change:    define it: it returns your model\n" in report
    assert "isolated is False: programs see the machine that they run on" in report


@pytest.mark.whole_process
def test_importing_the_kit_loads_neither_pytest_nor_a_protocol() -> None:
    code = "import rollout_fsm.testing, sys; print({'pytest', 'mcp', 'hypercorn'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_there_are_tests_enough_for_each_contract() -> None:
    for contract in (HarnessContract, ModelContract, RuntimeContract, ToolsetContract):
        assert len(names(contract)) >= 14
        for name in names(contract):
            assert re.match(r"[A-Z`].*\.$", " ".join(getattr(contract, name).__doc__.split())), name


def pytest_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, without any plugin, and without a configuration of ours."""
    variables = {"PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "pytest", "--rootdir", str(folder), *words]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
