"""The built-in example: twenty small questions, a tool server with a calculator, a program that uses it, a model
that answers offline.

`rollout-fsm run` without arguments runs it. It is made so that a run shows how rollouts end: by an answer, right or
wrong, by a limit, by a stop of the task, at the end of the context window, and by a failure of the provider.
"""

from pathlib import Path

from rollout_fsm.example.model import example_model
from rollout_fsm.example.tasks import Question, example_tasks
from rollout_fsm.harnesses.program import ProgramHarness
from rollout_fsm.limits import RolloutLimits

__all__ = ["EXAMPLE_LIMITS", "Question", "example_harness", "example_model", "example_tasks"]

EXAMPLE_LIMITS = RolloutLimits(max_turns=4)
"""Enough for every question but the one whose search never ends."""


def example_harness() -> ProgramHarness:
    """The program `program.py`, copied into each workspace; it can go on with a conversation."""
    return ProgramHarness(
        ["{python}", "-I", "program.py", "{conversation}"],
        files={"program.py": Path(__file__).with_name("program.py")},
        multi_turn=True,
        name="example",
    )
