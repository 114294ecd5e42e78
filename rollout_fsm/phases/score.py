"""`scoring`: placeholders first, then the signals of task, harness and judges (L54, L60-L64)."""

from rollout_fsm.errors import TaskError
from rollout_fsm.outcome import Outcome
from rollout_fsm.scoring import Scoring, seed, signals
from rollout_fsm.world import World


async def score(world: World) -> Outcome:
    """Measure what is expected. What failed in time stands, however the phase ends (L63)."""
    plan = world.plan
    world.calling(TaskError, "scoring")
    runtime = world.require_runtime()
    expected = signals(
        task=plan.task,
        trace=world.trace,
        runtime=runtime,
        hooks=plan.hooks,
        harness_metrics=plan.harness_metrics,
        judges=(*plan.task.judges(), *plan.judges),
    )
    seed(world.trace, expected)
    scoring = Scoring(world.trace, expected)
    world.standing, world.lost = scoring.failures, scoring.lost
    try:
        await scoring.run()
    finally:
        if scoring.late:
            world.calling(TaskError, "scoring", f"; still running: {', '.join(signal.said for signal in scoring.late)}")
    return Outcome(trigger="errored" if scoring.failures else "scored")
