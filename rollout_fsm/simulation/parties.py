"""The scripted parties of a play, as the settings of a rollout."""

from collections.abc import Sequence
from functools import partial

from attrs import define

from rollout_fsm.settings import OneRollout
from rollout_fsm.simulation.box import ScriptedRuntime
from rollout_fsm.simulation.harness import scripted_harness
from rollout_fsm.simulation.model import ScriptedModel
from rollout_fsm.simulation.stage import Stage
from rollout_fsm.simulation.timeline import Timeline
from rollout_fsm.simulation.tools import ScriptedToolset
from rollout_fsm.trace import Trace, TransitionRecord


@define(eq=False)
class Watch:
    """An observer: from the transitions of a rollout it knows the phases that a task of the embedder's enters."""

    timeline: Timeline

    def on_transition(self, trace: Trace, taken: TransitionRecord) -> None:
        """A phase is entered."""
        phase = {"booting": "boot", "setup": "setup", "finalizing": "finalize", "scoring": "scoring"}.get(taken.target)
        if phase is not None:
            self.timeline.enter(phase)


def parties(stage: Stage, borrowed: ScriptedRuntime | None, observers: Sequence[object]) -> OneRollout:
    """Whom the rollouts of a play deal with."""
    scenario = stage.scenario
    return OneRollout(
        harness=scripted_harness(stage),
        model=ScriptedModel(stage),
        runtime=borrowed or partial(ScriptedRuntime, stage=stage),
        limits=scenario.limits,
        timeouts=scenario.timeouts,
        policy=scenario.policy,
        tools=[partial(ScriptedToolset, tool, stage) for tool in scenario.tools],
        observers=observers,
    )
