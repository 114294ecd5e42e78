"""Whatever happens to a rollout, and in whatever order the event loop runs its tasks: it ends, and ends as it must."""

import json
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings

from rollout_fsm import trace_from_json, trace_to_json
from rollout_fsm.simulation import Scenario, SimulatedOutcome, load_scenario, simulate
from tests.found import found_in_scenario, kept_in_fuzz
from tests.profiles import KEPT, examples
from tests.simulation.any_scenario import scenarios
from tests.simulation.expectations import broken_rules

pytestmark = pytest.mark.usefixtures("no_log")

SCHEDULES = 3
NONE = pytest.param(KEPT, marks=pytest.mark.skip(reason="fuzzing has found no scenario that failed"))
LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large]


@kept_in_fuzz
@settings(suppress_health_check=LARGE)
@given(scenarios())
def test_every_scenario_ends_as_every_outcome_must(scenario: dict[str, Any]) -> None:
    ends_as_it_must(scenario)


@kept_in_fuzz
@settings(examples(1 / 2), suppress_health_check=LARGE)
@given(scenarios())
def test_the_schedule_does_not_change_the_outcome(scenario: dict[str, Any]) -> None:
    is_the_same_in_any_order(scenario)


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.json")) or [NONE], ids=lambda path: path.stem)
def test_a_scenario_that_failed_once_ends_as_it_must_in_any_order(path: Path) -> None:
    scenario = json.loads(path.read_bytes())["scenario"]
    ends_as_it_must(scenario)
    is_the_same_in_any_order(scenario)


def ends_as_it_must(scenario: dict[str, Any]) -> None:
    outcome = _played(load_scenario(scenario), scenario)
    faults = [*broken_rules(_plain(outcome), scenario)]
    if trace_from_json(trace_to_json(outcome.trace)) != outcome.trace:
        faults.append("the trace that was written is another one when it is read")
    if faults:
        raise found_in_scenario(faults, scenario)


def is_the_same_in_any_order(scenario: dict[str, Any]) -> None:
    loaded = load_scenario(scenario)
    outcomes = []
    for seed in range(SCHEDULES):
        trio._core._run._r.seed(seed)
        outcomes.append(_settled(_plain(_played(loaded, scenario))))
    faults = [fault for other in outcomes[1:] for fault in _differences(outcomes[0], other)]
    if faults:
        raise found_in_scenario(list(dict.fromkeys(faults)), scenario)


def _played(loaded: Scenario, scenario: Mapping[str, Any]) -> SimulatedOutcome:
    try:
        return simulate(loaded)
    except Exception as crashed:
        raise found_in_scenario([f"the play crashed:\n{traceback.format_exc(limit=-3)}"], scenario) from crashed


def _plain(outcome: SimulatedOutcome) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(outcome.to_json()))
    return plain


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    for name, value in one.items():
        if other[name] != value:
            yield f"{name}: {value} when tasks run in one order, {other[name]} in another"


def _settled(outcome: dict[str, Any]) -> dict[str, Any]:
    """Without the order in which signals of one kind begin, which is open."""
    signals = sorted(event for event in outcome["events"] if event.startswith("score."))
    return {**outcome, "events": [event for event in outcome["events"] if event not in signals], "signals": signals}
