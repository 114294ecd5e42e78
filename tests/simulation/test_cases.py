"""The acceptance cases: those of the project, and those that lie beside it, played on the engine and compared."""

import json
from pathlib import Path
from typing import Any

import pytest

from rollout_fsm.simulation import simulate
from tests.simulation.expectations import differences

ROOT = Path(__file__).resolve().parents[2]
OWN = sorted((ROOT / "tests" / "cases").glob("*.json"))
SHARED = sorted((ROOT.parent / "shared" / "cases").glob("*.json"))


def by_name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", OWN, ids=by_name)
def test_the_case_comes_out_as_it_must(path: Path) -> None:
    check(path)


@pytest.mark.skipif(not SHARED, reason=f"no acceptance cases beside the project, in {ROOT.parent / 'shared' / 'cases'}")
@pytest.mark.parametrize("path", SHARED, ids=by_name)
def test_the_shared_case_comes_out_as_it_must(path: Path) -> None:
    check(path)


def check(path: Path) -> None:
    case = json.loads(path.read_bytes())
    outcome = json.loads(json.dumps(simulate(path).to_json()))
    assert differences(case, outcome) == []


def test_there_are_cases_and_each_names_its_rules() -> None:
    cases = {path.stem: json.loads(path.read_bytes()) for path in OWN}
    assert len(cases) > 100
    assert not {name for name, case in cases.items() if not case["about"] or not case["rules"] or not case["expect"]}


def test_a_difference_is_found_in_every_kind_of_expectation() -> None:
    scenario: dict[str, Any] = {"segments": [{"turns": [{}]}]}
    outcome = json.loads(json.dumps(simulate(scenario).to_json()))
    wrong = {
        "scenario": scenario,
        "expect": {"num_turns": 2, "nodes": ["->user:hello"], "ok": 1, "no_such_field": None},
        "expect_order": ["turn", "segment"],
        "expect_absent": ["finalize"],
        "expect_count": {"turn": 2},
    }
    assert [difference.split(":")[0] for difference in differences(wrong, outcome)] == [
        "num_turns",
        "nodes",
        "ok",
        "no_such_field",
        "events",
        "events",
        "events",
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "failed"),
        ("ok", False),
        ("is_completed", False),
        ("stop_condition", "error"),
        ("stop_condition", None),
        ("stop_condition", "nobody_said_so"),
        ("stop_condition", "no_progress"),
        ("reward", 1.0),
        ("errors", ["TaskError"]),
        ("spans", {"boot": [0, 1], "setup": [0, 1]}),
        ("spans", {"boot": [0, None]}),
        ("transitions", [["open", "created", "setup"]]),
        ("events", ["runtime.start"]),
        ("events", ["runtime.start", "runtime.stop", "runtime.stop"]),
        ("events", ["tools.stop:a"]),
        ("orphans", ["finalize"]),
        ("mutated_after_return", True),
    ],
)
def test_what_holds_in_every_outcome_is_checked_unasked(field: str, value: object) -> None:
    outcome = json.loads(json.dumps(simulate({"segments": [{"turns": [{}]}]}).to_json()))
    case: dict[str, Any] = {"scenario": {}, "expect": {}}
    assert differences(case, outcome) == []
    assert differences(case, {**outcome, field: value}) != []
