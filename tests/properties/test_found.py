"""What is said of an example that fails, and what becomes of it in `fuzz`."""

import json
from pathlib import Path
from typing import Any

import pytest

from rollout_fsm.simulation import simulate
from tests.found import Found, found_in_scenario, keep, kept_in_fuzz, written

SMALL: dict[str, Any] = {"segments": [{"turns": [{}]}], "limits": {"max_turns": 0}}
FAULT = "reward: 1.0 of {}"


def test_a_report_is_the_faults_and_a_scenario_that_can_be_pasted() -> None:
    said = str(found_in_scenario([FAULT], SMALL).msg).splitlines()

    assert said[0] == FAULT
    (pasted,) = [line for line in said if line.startswith("{")]
    assert json.loads(pasted) == SMALL


def test_a_long_scenario_is_written_on_many_lines() -> None:
    long = {"segments": [SMALL] * 9}

    assert written(long).count("\n") > 9
    assert json.loads(written(long)) == long


def test_a_report_of_a_plan_tells_what_happened() -> None:
    found = Found([FAULT], example="Plan(start='setup')", story=["    0 s  open"])

    assert str(found.msg).splitlines() == [
        FAULT,
        "",
        "in this example:",
        "Plan(start='setup')",
        "",
        "what happened:",
        "    0 s  open",
    ]


def test_what_is_kept_is_a_case_that_is_played(tmp_path: Path) -> None:
    path = keep(found_in_scenario([FAULT], SMALL), tmp_path / "found")

    assert json.loads(path.read_bytes())["about"] == f"Found by chance: {FAULT}"
    assert simulate(path).stop_condition == "max_turns"
    assert keep(found_in_scenario(["another"], SMALL), tmp_path / "found") == path


@pytest.mark.parametrize(("profile", "kept"), [("fuzz", 2), ("ci", 0), ("dev", 0)])
def test_scenarios_that_fail_are_kept_in_fuzz_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, kept: int
) -> None:
    monkeypatch.setattr("tests.found.profile", lambda: profile)
    failures = [found_in_scenario([FAULT], SMALL), found_in_scenario([FAULT], {}), Found([FAULT], example="Plan()")]

    def fails() -> None:
        raise BaseExceptionGroup("several failed", failures)

    with pytest.raises(BaseExceptionGroup):
        kept_in_fuzz(fails, tmp_path)()
    assert len(list(tmp_path.iterdir())) == kept
