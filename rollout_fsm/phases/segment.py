"""`stepping` and `stopping`: one run of the harness, from start or resume until it yields (L10-L24).

Both states share this activity: a refusal moves the state while it runs. How the harness ended is told as it was;
whether that is a failure, a stop or a way to go on is the machine's decision. The exit status of a program is judged
here, for every harness alike.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from attrs import evolve

from rollout_fsm.attempt import Attempt, strikeable
from rollout_fsm.errors import ErrorRecord, HarnessError, SandboxError, TaskError, TurnRefused, attribute, record, text
from rollout_fsm.foreign import call, is_given
from rollout_fsm.outcome import Failure, Outcome, failed, interrupts, is_cancelled, lost, pass_on, plain
from rollout_fsm.runtime import ProgramResult
from rollout_fsm.segment_run import SegmentRun
from rollout_fsm.world import World

TAIL = 2_000
"""How many characters of a failed program's output an error shows."""


async def segment(world: World) -> Outcome:
    """Run one segment of the harness, on the agent clock (L12)."""
    world.agent.start()
    try:
        await world.proceed(called=False)  # with nothing left of the budget, the harness is not asked (L13)
        return await _run(world)
    finally:
        world.agent.stop()


async def _run(world: World) -> Outcome:
    session, harness_session = world.present_session, world.harness_session
    assert world.gate is not None
    assert world.bound is not None
    assert harness_session is not None
    running = SegmentRun(
        gate=world.gate,
        turns_before=world.trace.num_turns,
        bound=world.bound,
        drain=world.plan.bounds.drain,
        shorten=world.plan.services.overdue.shorten,
    )
    world.segment = session.segment = running
    world.require_runtime()
    world.calling(TaskError, "interception of the user's message")
    said, world.said = world.said, ()
    messages = await session.intercept(said) or None
    world.calling(HarnessError, "segment")
    world.opening = ()

    async def run() -> object:
        try:
            return await strikeable(call, harness_session.run, messages)
        finally:
            world.foreign_code_returned()

    ended = await session.run(run, running)
    try:
        return await _told(world, running, ended)
    finally:
        del ended  # a frame that keeps an exception which it raises is kept by it


async def _told(world: World, running: SegmentRun, ended: Attempt[object]) -> Outcome:
    """What the end of the harness's run amounts to, in the order of L14a, L35, L16, L20, L41, L19."""
    own = plain(ended.error)
    result = ended.value
    try:
        pass_on(ended.error)
        if running.hook_failures:
            broken = [Failure(error=failure) for failure in running.hook_failures]
            kept = [f"{failure.type}: {failure.message}" for failure in running.hook_failures]
            return Outcome(trigger="errored", failures=broken, left_early=True, lost=kept)
        if ended.error is not None and not own:
            # interrupted, and the driver knows by whom; or a Cancelled that nobody's scope sent
            stray = [] if is_cancelled() else world.blame.of(failed(ended.error, HarnessError, world.doing()))
            return Outcome(trigger="errored", failures=stray, left_early=True)
        if not running.gate.asks_stops:
            own = [leaf for leaf in own if not isinstance(leaf, TurnRefused)]
            return _own_failure(world, own) if own else Outcome(trigger="segment_ended")
        if running.model_failures:
            return _model_failed(running.model_failures, _exit_failure(world, result), own)
        if own:
            return _own_failure(world, own)
    finally:
        del own, ended  # a frame that keeps an exception which it raises is kept by it
    if result is not None and not isinstance(result, ProgramResult):
        wrong = f"the session's run() returned {type(result).__name__}; it returns a ProgramResult or None"
        return _failed(record(HarnessError(wrong)))
    if (exit_failure := _exit_failure(world, result)) is not None:
        return _failed(await _attributed_to_the_box(world, exit_failure))
    if world.trace.num_turns == running.turns_before:
        silent = HarnessError("no progress: the segment ended without a turn (policy no_progress)")
        return Outcome(trigger="segment_ended", failures=[Failure(error=record(silent))])
    return Outcome(trigger="segment_ended")


def _failed(error: ErrorRecord) -> Outcome:
    return Outcome(trigger="errored", failures=[Failure(error=error)], left_early=True)


def _own_failure(world: World, own: list[BaseException]) -> Outcome:
    """What the harness raised, leaf by leaf (L40)."""
    return Outcome(trigger="errored", failures=world.blame.of(own), left_early=True, lost=lost(own))


def _exit_failure(world: World, result: object) -> ErrorRecord | None:
    """The failure that a program's exit status is; None for zero (L41)."""
    if not isinstance(result, ProgramResult) or result.exit_code == 0:
        return None
    said = (result.stderr.strip() or result.stdout.strip())[-TAIL:]
    tail = f"; the end of its output:\n{said}" if said else " and said nothing"
    harness = world.plan.harness_name
    return record(HarnessError(f"the program of harness {harness!r} exited with {result.exit_code}{tail}"))


def _model_failed(
    failures: tuple[ErrorRecord, ...], exit_failure: ErrorRecord | None, raised: list[BaseException]
) -> Outcome:
    """The model's failure, however the harness ended after it, with the harness's own as its cause (L20)."""
    first, *rest = failures
    own = exit_failure or next((record(attribute(leaf, HarnessError, "segment")) for leaf in raised), None)
    if own is not None and not first.message.startswith(own.message):
        first = evolve(first, message=f"{first.message} (the harness then ended with {own.type}: {own.message})")
    told = [Failure(error=failure) for failure in (first, *rest)]
    return Outcome(trigger="segment_ended", failures=told, left_early=own is not None, lost=lost(raised))


async def _attributed_to_the_box(world: World, failure: ErrorRecord) -> ErrorRecord:
    """A program's failure, or the box's if that does not answer any more: silence and an exception are a no (L41)."""
    runtime, overdue = world.present_runtime, world.plan.services.overdue
    bound, asking = world.plan.bounds.close, "asking whether the runtime is alive"
    asked = await overdue.attempt(partial(call, runtime.alive), bound, rollout=world.trace.id, doing=lambda: asking)
    answer = asked.came
    unsaid = [text(leaf) for leaf in plain(answer.error)]
    if struck := interrupts(answer.error):
        world.holdings.struck += struck
        world.lost = (*world.lost, *unsaid)
    if answer.value is True and asked.in_time:
        return failure
    late = f"no answer within {bound:g} s (timeouts.close), {asked.elapsed:g} s passed"
    no = "it said no" if answer.value is False else f"alive() returned {type(answer.value).__name__}"
    why = "; ".join([*([] if asked.in_time else [late]), *unsaid]) or no
    return record(SandboxError(f"the runtime {runtime.name!r} was found dead ({why}) after this: {failure.message}"))


def leave_early(world: World) -> Callable[[], Awaitable[Failure | None]] | None:
    """What stops the agent of a segment that is left early; None where none was started, or there is nothing to
    stop."""
    killable = is_given(world.present_runtime, "kill")
    return partial(_leave_early, world, world.segment) if killable and world.segment is not None else None


async def _leave_early(world: World, running: SegmentRun) -> Failure | None:
    """Stop the agent; what will not die is a failure that stands (L13)."""
    runtime, bound, overdue = world.present_runtime, world.plan.bounds.close, world.plan.services.overdue
    doing = "killing the agent"
    killed = await overdue.attempt(
        partial(call, runtime.kill), bound, rollout=world.trace.id, doing=lambda: doing, shield=True
    )
    world.holdings.struck += interrupts(killed.came.error)
    if killed.came.value is True and killed.in_time:
        return None
    running.survives = True
    why = "".join(f": {text(leaf)}" for leaf in plain(killed.came.error))
    survivors = f"processes of the agent in runtime {runtime.name!r} survived being killed"
    bounded = f" ({killed.elapsed:g} s passed, timeouts.close = {bound:g} s)"
    return Failure(error=record(SandboxError(survivors + bounded + why)), stands=True)


def agent_timeout(world: World, elapsed: float, setting: str, limit: float) -> ErrorRecord | None:
    """An expired agent budget is a failure of the agent, unless it is a stop: by policy, or after a refusal (L13,
    L18)."""
    if world.plan.policy.agent_expiry == "stop" or world.gate is None or not world.gate.asks_stops:
        return None
    spent, budget = world.agent.spent, world.plan.bounds.agent
    said = f"agent timeout: the budget ran out after {spent:g} s of running segments (timeouts.agent = {budget:g} s)"
    return record(HarnessError(said))
