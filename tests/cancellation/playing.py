"""Playing a plan: one engine on a virtual clock and one fixed schedule, with the collector off."""

import gc
import logging
import signal

import trio
from trio.testing import MockClock

from rollout_fsm import open_engine
from rollout_fsm.errors import text
from tests.cancellation.cases import CASES
from tests.cancellation.parties import noted_slots
from tests.cancellation.plan import Plan
from tests.cancellation.stage import Stage

HANG = 3600.0
"""Virtual seconds after which a play is taken for hung: far more than all bounds together."""

log = logging.getLogger("rollout_fsm")


class _Errors(logging.Handler):
    """Keeps what is logged as an error, as text."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def play(plan: Plan) -> Stage:
    """Play it and return what it left."""
    stage = Stage(plan, CASES[plan.case])
    clock, instruments = MockClock(autojump_threshold=0), [stage.schedule]
    errors, collecting = _Errors(stage.logged), gc.isenabled()
    log.addHandler(errors)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores Ctrl-C
    gc.disable()
    try:
        trio._core._run._r.seed(0)
        with noted_slots(stage.world_of, stage.slot_fails):
            trio.run(_run, stage, clock=clock, instruments=instruments)
    except (KeyboardInterrupt, BaseExceptionGroup) as late:
        stage.logged.append(f"{type(late).__name__} came out of the event loop itself")
    finally:
        stage.look()
        signal.signal(signal.SIGINT, handler)
        log.removeHandler(errors)
        if collecting:
            gc.enable()
    return stage


async def _run(stage: Stage) -> None:
    began = trio.current_time()
    async with trio.open_nursery() as others:
        trio.lowlevel.spawn_system_task(_end_what_hangs, stage, others.cancel_scope)
        try:
            with trio.CancelScope() as scope:
                await _in_scope(stage, scope, others)
            await trio.lowlevel.checkpoint()
        except KeyboardInterrupt:  # one that came when there was nothing left to strike
            stage.raised = KeyboardInterrupt
    stage.seconds = trio.current_time() - began


async def _in_scope(stage: Stage, scope: trio.CancelScope, others: trio.Nursery) -> None:
    for strike in stage.plan.strikes:
        stage.schedule.acts[strike.point] = stage.strike(strike.means, scope)
    try:
        async with open_engine(gateway=False, observers=[stage]) as engine:
            stage.begin(engine, others)
            await stage.case.way(stage, engine)
        await trio.lowlevel.checkpoint()  # what is still pending strikes here
    except BaseException as raised:
        stage.raised = type(raised)
        if isinstance(raised, trio.Cancelled):
            raise
        if not isinstance(raised, KeyboardInterrupt | SystemExit):
            stage.logged.append(f"{text(raised)} came out of the engine's block")
    finally:
        stage.end()


async def _end_what_hangs(stage: Stage, everything: trio.CancelScope) -> None:
    """End a play that would never end, though what hangs in it may be shielded: so that its failure can be told."""
    await trio.sleep(HANG)
    stage.logged.append("it hung, and was ended by force")
    while True:
        everything.cancel()
        for task in tuple(trio.lowlevel.current_task()._runner.tasks):
            status: trio._core._run.CancelStatus | None = task._cancel_status
            while status is not None:
                status._scope.shield = False
                status = status._parent
        await trio.sleep(1)
