"""`scoring`: placeholders first, then the signals of task, harness and judges (L54, L60-L64)."""

from rollout_fsm.errors import TaskError, attribute, record
from rollout_fsm.outcome import Failure, Outcome, failed, pass_on
from rollout_fsm.scoring import Scoring, Signal, seed, signal_of, signals_of
from rollout_fsm.world import World

NAMING = "naming the judges"


async def score(world: World) -> Outcome:
    """Measure what is expected. What failed in time stands, however the phase ends (L63)."""
    plan, trace = world.plan, world.trace
    declared = signals_of(
        task=plan.task,
        trace=trace,
        runtime=world.present_runtime,
        hooks=plan.hooks,
        harness_metrics=plan.harness_metrics,
    )
    judges, faults = _judges(world)
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


def _judges(world: World) -> tuple[list[Signal], list[Failure]]:
    """The judges as signals. One that cannot be asked fails the scoring and keeps no other signal from running."""
    try:
        judges = (*world.plan.task.judges(), *world.plan.judges)
        return [signal_of(judge, world.plan.task, world.trace) for judge in judges], []
    except BaseException as raised:  # noqa: BLE001  (the task's own code; said with the other failures)
        pass_on(raised)
        errors = [record(attribute(leaf, TaskError, NAMING)) for leaf in failed(raised, TaskError, NAMING)]
        return [], [Failure(error=error, stands=True) for error in errors]
