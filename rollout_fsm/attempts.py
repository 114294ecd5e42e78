"""Owed rollouts, brought to their ends over as many attempts as it takes; the first may be one that a dead process
left (L73)."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

import trio
from attrs import evolve, frozen

from rollout_fsm.attempt import attempt
from rollout_fsm.batch import Job, Permit
from rollout_fsm.errors import text
from rollout_fsm.exact_json import FormatError
from rollout_fsm.journal import Attempt, Journal
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.outcome import bare, interrupts, plain
from rollout_fsm.output import RunFolder
from rollout_fsm.plan import Plan
from rollout_fsm.pursuit import Pursuit
from rollout_fsm.register import Register
from rollout_fsm.remains import remove_all, take
from rollout_fsm.resuming import NO_PAST, resumption
from rollout_fsm.rollout import Rollout
from rollout_fsm.runtime import Runtime
from rollout_fsm.settings import AgentSettings, OneRollout, settle
from rollout_fsm.task import Task
from rollout_fsm.trace import Trace
from rollout_fsm.trace_json import trace_from_json

log = logging.getLogger("rollout_fsm")

Begin: TypeAlias = Callable[[], Awaitable[object]]
"""Brings a rollout as far as its end but for `close`."""


@frozen(eq=False)
class Attempts:
    """Runs the rollouts that the engine itself drives."""

    register: Register

    async def one(self, task: Task, settings: OneRollout) -> Trace:
        """One rollout, whole; the trace of its last attempt."""
        pursuit, flow = Pursuit.of(settings), self.register.services.flow
        with flow.driven.one():
            while True:
                async with self.register.mint(task, pursuit, settings=settings) as rollout:
                    await _whole(rollout)
                    await rollout.close()
                if pursuit.again is None or not await flow.rest(pursuit.again):
                    return await self.register.settled(rollout, pursuit)

    async def of(self, settings: AgentSettings, job: Job, permit: Permit) -> Trace:
        """One rollout of a batch. The caller's lifetime bug is logged and its trace is aborted: siblings go on (L3,
        L42). The permit is held while a box may exist, and given back between two attempts."""
        pursuit, flow = Pursuit.of(settings, job.past), self.register.services.flow
        rollout, begin = await self._first(job, pursuit, settings)
        while True:
            try:
                async with rollout:
                    await begin()
                    await rollout.close()
            except Exception as error:  # noqa: BLE001  (the owner's bug, or the engine's: said, and its trace is data)
                log.error("rollout %s ended %s: %s", rollout.trace.id, rollout.state, text(error))
            permit.give_back()
            if pursuit.again is None or not await flow.rest(pursuit.again):
                return await self.register.settled(rollout, pursuit)
            await permit.take()
            if flow.draining:
                return await self.register.settled(rollout, pursuit)
            rollout, begin = self._fresh(job, pursuit, settings)

    async def owed(self, folder: RunFolder, journal: Journal, asked: Sequence[Job]) -> Sequence[Job]:
        """Of what is asked for, what the folder's run still owes; what a dead process left and nobody needs is
        removed."""
        services = self.register.services
        own = {rollout.trace.id for rollout in self.register.live}
        await services.flushed()
        written = await trio.to_thread.run_sync(folder.written)
        content = await trio.to_thread.run_sync(journal.read)
        found = resumption({job.identity: job.task.hash for job in asked}, written, content, live=own)
        await trio.to_thread.run_sync(folder.supersede, found.superseded)
        await remove_all(found.leases, journal, services.overdue)
        return [
            evolve(job, past=found.past.get(job.identity, NO_PAST)) for job in asked if job.identity not in found.done
        ]

    def _fresh(self, job: Job, pursuit: Pursuit, settings: AgentSettings) -> tuple[Rollout, Begin]:
        """An attempt from the beginning, and what begins it."""
        rollout = self.register.mint(job.task, pursuit, settings=settings, group=job.group)
        return rollout, partial(_whole, rollout)

    async def _first(self, job: Job, pursuit: Pursuit, settings: AgentSettings) -> tuple[Rollout, Begin]:
        """The first attempt of this process: one that a dead process left, if its box still stands, or a fresh one."""
        left, services = job.past.left, self.register.services
        if left is None or left.snapshot is None or services.journal is None:
            return self._fresh(job, pursuit, settings)
        plan = settle(job.task, has_user=False, services=services, settings=settings)
        runtime: Runtime | None = None
        for lease in left.leases:
            runtime = await take(lease, services.overdue, bound=plan.bounds.boot)
        needs_box = not lifecycle().takes(left.snapshot.state, "released")
        stands = (runtime is not None or not needs_box) and await self._entered(plan)
        trace = _readable(left) if stands else None
        if trace is None or runtime is None:
            await remove_all(left.leases, services.journal, services.overdue)
        if trace is None:
            pursuit.cuts_off(left)
            return self._fresh(job, pursuit, settings)
        rollout = self.register.hold(plan, trace, pursuit, services.keep_on(trace, left), settings)
        return rollout, partial(rollout.go_on, runtime)

    async def _entered(self, plan: Plan) -> bool:
        """Whether the harness is entered, as booting has it; what is wrong is said by the attempt that boots."""
        entered = await attempt(self.register.services.enter, plan.harness)
        try:
            if entered.error is not None and (interrupts(entered.error) or not plain(entered.error)):
                raise bare(entered.error)
            return entered.error is None
        finally:
            del entered  # a frame that keeps an exception which it raises is kept by it


async def _whole(rollout: Rollout) -> None:
    if await rollout.open():
        await rollout.step()


def _readable(left: Attempt) -> Trace | None:
    """The trace of an attempt that a dead process left; None, and said, where it cannot be read."""
    try:
        return None if left.snapshot is None else trace_from_json(left.snapshot.trace)
    except FormatError as error:
        log.error("the trace of rollout %s was left in the journal, but cannot be read: %s", left.trace, error)
        return None
