"""The scripted task: a class of its own for each play, whose hooks and signals are those of the scenario."""

from typing import cast

from rollout_fsm.runtime import Runtime
from rollout_fsm.simulation.hooks import interceptors, stops
from rollout_fsm.simulation.signals import metrics, rewards
from rollout_fsm.simulation.stage import Stage
from rollout_fsm.task import Task
from rollout_fsm.trace import Trace


def scripted_task(stage: Stage) -> Task:
    """The task of a scenario."""
    scenario = stage.scenario

    async def setup(self: Task, trace: Trace, runtime: Runtime) -> None:
        await stage.play(stage.scenario.setup, "task.setup", "setup")

    async def finalize(self: Task, trace: Trace, runtime: Runtime) -> None:
        await stage.play(stage.scenario.finalize, "finalize", "finalize")

    made = type(
        "ScriptedTask",
        (Task,),
        {
            "setup": setup,
            "finalize": finalize,
            **stops(scenario, stage),
            **interceptors(scenario, stage),
            **rewards(scenario.rewards, stage),
            **metrics(scenario.metrics, stage),
        },
    )
    return cast(Task, made(prompt=scenario.task.prompt, system_prompt=scenario.task.system_prompt))
