"""`stepping` and `stopping`: one run of the harness, from start or resume until it yields (L10-L24).

Both states share this activity: a refusal moves the state while it runs. How the harness ended is told as it was;
whether that is a failure, a stop or a way to go on is the machine's decision. The exit status of a program is judged
here, for every harness alike.
"""

import trio
from attrs import evolve

from rollout_fsm.errors import ErrorRecord, HarnessError, SandboxError, TaskError, TurnRefused, attribute, record
from rollout_fsm.messages import Message
from rollout_fsm.outcome import Failure, Outcome, interrupts, lost, plain
from rollout_fsm.runtime import ProgramResult
from rollout_fsm.session import Segment
from rollout_fsm.world import World

TAIL = 2_000
"""How many characters of a failed program's output an error shows."""


async def segment(world: World) -> Outcome:
    """Run one segment of the harness."""
    session, harness_session = world.present_session, world.harness_session
    assert session.owner is not None
    assert world.deadline is not None
    assert harness_session is not None
    running = Segment(
        owner=session.owner,
        turns_before=world.trace.num_turns,
        deadline=world.deadline,
        drain=world.plan.bounds.drain,
    )
    world.segment = session.segment = running
    world.calling(HarnessError, "segment")
    world.require_runtime()
    world.calling(TaskError, "interception of the user's message")
    said, world.said = world.said, ()
    messages: tuple[Message, ...] | None = await session.intercept(said) or None
    world.calling(HarnessError, "segment")
    world.opening = ()
    result: object = None
    error: BaseException | None = None

    async def run() -> object:
        try:
            return await harness_session.run(messages)
        finally:
            world.returned = trio.current_time()

    try:
        result = await session.run(run, running)
    except GeneratorExit:
        raise
    except BaseException as raised:  # noqa: BLE001  (foreign code; what it means is judged below and by the driver)
        error = raised
    try:
        return await _ended(world, running, result, error)
    finally:
        error = None  # a frame that keeps an exception is kept by it


async def _ended(world: World, running: Segment, result: object, error: BaseException | None) -> Outcome:
    """What the end of the harness's run amounts to, in the order of L35, L20, L16, L41, L19."""
    stopping = not running.owner.asks_stops
    own: list[BaseException] | None = None
    try:
        if error is not None and (interrupts(error) or not plain(error)):
            raise error
        if running.hook_failure is not None:
            return Outcome(trigger="errored", failures=[Failure(error=running.hook_failure)])
        if error is None and result is not None and not isinstance(result, ProgramResult):
            wrong = f"the session's run() returned {type(result).__name__}; it returns a ProgramResult or None"
            return Outcome(trigger="errored", failures=[Failure(error=record(HarnessError(wrong)))])
        if stopping:
            own = [leaf for leaf in plain(error) if not isinstance(leaf, TurnRefused)]
            return Outcome(trigger="errored", failures=world.blame.of(own)) if own else Outcome(trigger="segment_ended")
        exit_failure = _exit_failure(world.plan.harness.name, result) if isinstance(result, ProgramResult) else None
        if running.model_failure is not None:
            return _model_failed(running.model_failure, exit_failure, error)
        if error is not None:
            raise error
    finally:
        error = own = None
    if exit_failure is not None:
        if not await _answers(world):
            box = f"the runtime {world.present_runtime.name!r} was found dead after this: {exit_failure.message}"
            exit_failure = record(SandboxError(box))
        return Outcome(trigger="errored", failures=[Failure(error=exit_failure)])
    if world.trace.num_turns == running.turns_before:
        silent = HarnessError("no progress: the segment ended without a turn (policy no_progress)")
        return Outcome(trigger="segment_ended", failures=[Failure(error=record(silent))])
    return Outcome(trigger="segment_ended")


def _exit_failure(harness: str, result: ProgramResult) -> ErrorRecord | None:
    """The failure that a program's exit status is; None for zero (L41)."""
    if result.exit_code == 0:
        return None
    said = (result.stderr.strip() or result.stdout.strip())[-TAIL:]
    tail = f"; the end of its output:\n{said}" if said else " and said nothing"
    return record(HarnessError(f"the program of harness {harness!r} exited with {result.exit_code}{tail}"))


def _model_failed(failure: ErrorRecord, exit_failure: ErrorRecord | None, error: BaseException | None) -> Outcome:
    """The model's failure, however the harness ended after it, with the harness's own as its cause (L20)."""
    own = exit_failure
    if own is None and error is not None:
        own = next((record(attribute(leaf, HarnessError, "segment")) for leaf in plain(error)), None)
    if own is not None and not failure.message.startswith(own.message):
        failure = evolve(failure, message=f"{failure.message} (the harness then ended with {own.type}: {own.message})")
    return Outcome(trigger="segment_ended", failures=[Failure(error=failure)], lost=lost(plain(error)))


async def _answers(world: World) -> bool:
    """Whether the box still answers, asked after a program failed (L41). Silence and an exception are a no."""
    answer = False
    with trio.move_on_after(world.plan.bounds.close):
        try:
            answer = await world.present_runtime.alive()
        except Exception:  # noqa: BLE001  (a box that cannot say it is alive is not)
            answer = False
    return answer


async def leave_early(world: World) -> Failure | None:
    """Stop the agent of a segment that is left early; what will not die is a failure that stands (L13)."""
    runtime, bound, started = world.present_runtime, world.plan.bounds.close, trio.current_time()
    dead, why = False, ""
    with trio.CancelScope(deadline=started + bound, shield=True):
        try:
            dead = await runtime.kill()
        except Exception as raised:  # noqa: BLE001  (said below)
            why = f": {type(raised).__name__}: {raised}"
    if dead:
        return None
    assert world.segment is not None
    world.segment.survives = True
    elapsed = trio.current_time() - started
    survivors = f"processes of the agent in runtime {runtime.name!r} survived being killed"
    bounded = f" ({elapsed:g} s passed, timeouts.close = {bound:g} s)"
    return Failure(error=record(SandboxError(survivors + bounded + why)), stands=True)
