"""Whatever happens to a rollout, and in whatever order the event loop runs its tasks: it ends, and ends as it must."""

import json
from typing import Any

import trio
from hypothesis import HealthCheck, given, settings

from rollout_fsm import trace_from_json, trace_to_json
from rollout_fsm.simulation import load_scenario, simulate
from tests.simulation.any_scenario import scenarios
from tests.simulation.expectations import broken_rules

SCHEDULES = 3
FEW = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@FEW
@given(scenarios())
def test_every_scenario_ends_as_every_outcome_must(scenario: dict[str, Any]) -> None:
    outcome = simulate(scenario)
    assert [*broken_rules(json.loads(json.dumps(outcome.to_json())), scenario)] == []
    assert trace_from_json(trace_to_json(outcome.trace)) == outcome.trace


@FEW
@given(scenarios())
def test_the_schedule_does_not_change_the_outcome(scenario: dict[str, Any]) -> None:
    loaded = load_scenario(scenario)
    outcomes = []
    for seed in range(SCHEDULES):
        trio._core._run._r.seed(seed)
        outcomes.append(_settled(simulate(loaded).to_json()))
    for outcome in outcomes[1:]:
        assert outcome == outcomes[0]


def _settled(outcome: dict[str, Any]) -> dict[str, Any]:
    """Without the order in which signals of one kind begin, which is open."""
    signals = sorted(event for event in outcome["events"] if event.startswith("score."))
    return {**outcome, "events": [event for event in outcome["events"] if event not in signals], "signals": signals}
