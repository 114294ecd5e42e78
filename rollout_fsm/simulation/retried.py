"""A play with a retry policy: `engine.run` drives, once for each attempt, and each attempt has a script of its own."""

from contextlib import ExitStack

import trio
from attrs import define, evolve, field

from rollout_fsm.engine import Engine
from rollout_fsm.simulation.box import ScriptedRuntime
from rollout_fsm.simulation.driver import Returns
from rollout_fsm.simulation.outcome import DIGITS, Curtain, SimulatedOutcome, afterwards, outcome
from rollout_fsm.simulation.parties import Watch, parties
from rollout_fsm.simulation.scenario import Scenario
from rollout_fsm.simulation.stage import Stage
from rollout_fsm.simulation.task import scripted_task
from rollout_fsm.task import Task
from rollout_fsm.trace import Trace
from rollout_fsm.trace_json import trace_to_json

ID = "played"
"""Of the rollout: the pauses between attempts are drawn by it, and must be the same in every play."""


@define(eq=False)
class _Attempts:
    """An observer: each attempt that is minted takes the stage, and is told of when it has ended."""

    stage: Stage
    whole: Scenario
    told: list[dict[str, object]] = field(factory=list)
    """The attempts that are followed by another."""
    minted: int = 0
    began: float = 0.0

    def on_trace(self, trace: Trace) -> None:
        """An attempt is minted."""
        self.minted += 1
        self.began = self.stage.timeline.now
        self.stage.trace, self.stage.attempt = trace, self.minted
        self.stage.scenario = self.whole.in_attempt(self.minted)

    def on_retry(self, trace: Trace, seconds: float) -> None:
        """An attempt has ended, and another follows."""
        ending = None if trace.ending is None else trace.ending.name
        errors = [error.type for error in trace.errors]
        self.told.append(
            {
                "ending": ending,
                "errors": errors,
                "began": round(self.began, DIGITS),
                "ended": round(self.stage.timeline.now, DIGITS),
            }
        )


async def play_retried(stage: Stage, engine: Engine, task: Task | None) -> SimulatedOutcome:
    """Play a scenario that has a retry policy. Raises TypeError for a task that the engine refuses."""
    whole, timeline = stage.scenario, stage.timeline
    assert whole.retry is not None
    attempts = _Attempts(stage, whole)
    observers = [attempts] if task is None else [attempts, Watch(timeline)]
    borrowed = ScriptedRuntime("borrowed", stage) if whole.borrowed_runtime else None
    settings = parties(stage, borrowed, observers)
    settings["retry"], settings["id"] = whole.retry.policy(), ID
    played = scripted_task(stage) if task is None else task
    left_by: str | None = None
    with ExitStack() as cancelled:
        for trigger in whole.cancel_at:
            timeline.plan(trigger, cancelled.enter_context(trio.CancelScope()).cancel)
        try:
            await engine.run(played, **settings)
        except trio.Cancelled:
            left_by = trio.Cancelled.__name__
        except BaseException as error:
            if stage.trace is None:
                raise
            left_by = type(error).__name__
    trace = stage.trace
    assert trace is not None
    curtain = Curtain(
        state=trace.transitions[-1].target,
        raised=left_by,
        clock=timeline.now,
        orphans=list(timeline.running),
        other_returns=(),
    )
    before = trace_to_json(trace)
    came = outcome(
        stage, trace, Returns(), curtain, attempts=attempts.told[: attempts.minted - 1], began=attempts.began
    )
    return evolve(came, mutated_after_return=await afterwards(trace, before))
