"""`scoring`: placeholders first, then the signals of task, harness and judges (L54, L60-L64)."""

from rollout_fsm.errors import TaskError
from rollout_fsm.outcome import Outcome
from rollout_fsm.scoring import Scoring, judge_signals, seed, signals_of
from rollout_fsm.world import World


async def score(world: World) -> Outcome:
    """Measure what is expected. What failed in time stands, however the phase ends (L63)."""
    await world.kept()
    plan, trace = world.plan, world.trace
    declared = signals_of(
        task=plan.task,
        trace=trace,
        runtime=world.present_runtime,
        hooks=plan.hooks,
        harness_metrics=plan.harness_metrics,
    )
    judges, faults = judge_signals(plan.task, plan.judges, trace, plan.services)
    scoring = Scoring(trace, [*declared, *judges])
    scoring.failures += faults
    world.standing, world.lost = scoring.failures, scoring.lost
    seed(trace, scoring.expected)
    world.require_runtime()
    try:
        await scoring.run()
    finally:
        scoring.check_foreign_values()
        if scoring.late:
            world.calling(TaskError, "scoring", f"; still running: {', '.join(signal.said for signal in scoring.late)}")
    return Outcome(trigger="errored" if scoring.failures else "scored")
