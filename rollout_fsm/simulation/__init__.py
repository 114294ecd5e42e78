"""One rollout under scripted conditions, on the real engine, in virtual time.

    outcome = simulate({"segments": [{"turns": [{"delay": 3}, {}]}], "limits": {"max_turns": 1}})
    assert outcome.stop_condition == "max_turns"

A scenario scripts everything outside of the engine: the runtime, the task, the harness program, the model, the tool
servers, who drives, and what others do meanwhile. What the engine makes of it is played, not imitated, and nothing
sleeps: an hour of timeouts takes a millisecond. So this is also where an embedder tests stops, budgets and policies:

    outcome = simulate(scenario, task=MyTask(prompt="2 + 2?", answer="4"))   # your hooks, a scripted agent
    assert outcome.trace.rewards["correct"].score == 1.0

What a scenario may say is in `scenario`, record by record, with times in seconds; exceptions are text (`faults`), and
what happens at a certain moment has a trigger (`trigger`). What comes of it is a `SimulatedOutcome`.
"""

from rollout_fsm.exact_json import FormatError
from rollout_fsm.simulation.files import simulate_files
from rollout_fsm.simulation.outcome import SimulatedOutcome
from rollout_fsm.simulation.play import simulate
from rollout_fsm.simulation.reading import load_scenario
from rollout_fsm.simulation.scenario import Scenario

__all__ = ["FormatError", "Scenario", "SimulatedOutcome", "load_scenario", "simulate", "simulate_files"]
