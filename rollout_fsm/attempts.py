"""Owed rollouts, brought to their ends over as many attempts as it takes; the first may be one that a dead process
left (L73)."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import trio
from attrs import evolve, frozen

from rollout_fsm.batch import Job, Permit
from rollout_fsm.errors import text
from rollout_fsm.exact_json import FormatError
from rollout_fsm.identity import Identity
from rollout_fsm.journal import JournalError
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.outcome import pass_on
from rollout_fsm.past import NO_PAST
from rollout_fsm.plan import Plan
from rollout_fsm.pursuit import Pursuit
from rollout_fsm.register import Register
from rollout_fsm.remains import remove_all, take
from rollout_fsm.rollout import Rollout
from rollout_fsm.runtime import Runtime
from rollout_fsm.services import EngineServices
from rollout_fsm.settings import AgentSettings, OneRollout, settle
from rollout_fsm.task import Task
from rollout_fsm.trace import Trace

if TYPE_CHECKING:
    from rollout_fsm.journal import Attempt, Journal, JournalContent
    from rollout_fsm.output import RunFolder, Written

log = logging.getLogger("rollout_fsm")

Begun: TypeAlias = tuple[Rollout, Callable[[], Awaitable[object]]]
"""A rollout, and what brings it as far as its end but for `close`."""


@frozen(eq=False)
class Attempts:
    """Runs the rollouts that the engine itself drives."""

    register: Register

    async def one(self, task: Task, settings: OneRollout) -> Trace:
        """One rollout, whole; the trace of its last attempt."""
        register, pursuit = self.register, Pursuit.of(settings)
        with register.services.flow.driven:
            while True:
                rollout = register.mint(task, pursuit, settings=settings)
                if not await self._another_follows(rollout, pursuit, _ended(rollout, partial(_whole, rollout))):
                    return await register.settled(rollout)

    async def of(self, settings: AgentSettings, job: Job, permit: Permit) -> Trace | None:
        """One rollout of a batch; None if it was not started, since the engine drains. The caller's lifetime bug is
        logged and its trace is aborted: siblings go on (L3, L42). The permit is held while a box may exist, and given
        back between two attempts."""
        pursuit = Pursuit.of(settings, job.past)
        begun = await self._first(job, pursuit, settings)
        if begun is None:
            return None
        while True:
            rollout, begin = begun
            if not await self._another_follows(rollout, pursuit, _ended_as_data(rollout, begin), permit):
                return await self.register.settled(rollout)
            begun = self._fresh(job, pursuit, settings)
            assert begun is not None

    async def owed(
        self, folder: "RunFolder", journal: "Journal", asked: Sequence[Job], over: trio.Event
    ) -> Sequence[Job]:
        """Of what is asked for, what the folder's run still owes and nobody has taken upon himself, until `over`; what
        a dead process left and nobody needs is removed."""
        from rollout_fsm.resuming import resumption  # here, since few engines have a folder to go on with

        register, services = self.register, self.register.services
        register.handed_out = [taken for taken in register.handed_out if not taken[0].is_set()]
        others = frozenset[Identity]().union(*(identities for _, identities in register.handed_out))
        mine = [job for job in asked if job.identity not in others]
        hashes = {job.identity: job.task.hash for job in mine}
        register.handed_out.append((over, frozenset(hashes)))
        await services.flushed()
        written = await trio.to_thread.run_sync(folder.written)
        content = await trio.to_thread.run_sync(journal.read)
        await _catch_up(services, journal, written, content)
        own = [
            attempt.trace
            for attempt in content.attempts
            if attempt.number > journal.inherited or attempt.identity in others
        ]
        found = resumption(hashes, written, content, live=own)
        if strangers := sum(trace.identity not in hashes for trace in written if trace.identity not in others):
            said = "%d traces of %s are of rollouts that are not asked for (any more); they stay there"
            log.warning(said, strangers, folder.traces)
        await trio.to_thread.run_sync(folder.supersede, found.superseded)
        await remove_all(found.leases, journal, services.overdue)
        return [
            evolve(job, past=found.past.get(job.identity, NO_PAST)) for job in mine if job.identity not in found.done
        ]

    async def _another_follows(
        self, rollout: Rollout, pursuit: Pursuit, ended: Awaitable[None], permit: Permit | None = None
    ) -> bool:
        """Bring an attempt to its end, and wait until another begins; whether one does. If one was to follow and does
        not, however the wait ends, this attempt was the last. The permit is given back in between."""
        register, flow = self.register, self.register.services.flow
        try:
            await ended
            if permit is not None:
                permit.give_back()
            if pursuit.again is None:
                return False
            if await flow.rest(pursuit.again) and permit is not None:
                await permit.take()
        except BaseException:
            register.none_follows(rollout)
            raise
        if not flow.draining:
            register.another_follows(rollout)
            return True
        for interrupt in register.none_follows(rollout):
            raise interrupt
        return False

    def _fresh(self, job: Job, pursuit: Pursuit, settings: AgentSettings) -> Begun | None:
        """An attempt from the beginning, and what begins it; None if the engine drains."""
        if self.register.services.flow.draining:
            return None
        rollout = self.register.mint(job.task, pursuit, settings=settings, group=job.group)
        return rollout, partial(_whole, rollout)

    async def _first(self, job: Job, pursuit: Pursuit, settings: AgentSettings) -> Begun | None:
        """The first attempt of this process: one that a dead process left, if its box still stands, or a fresh one."""
        left, services = job.past.left, self.register.services
        if left is None or left.snapshot is None or services.journal is None:
            return self._fresh(job, pursuit, settings)
        plan = settle(job.task, has_user=False, services=services, settings=settings)
        trace = _readable(left) if await self._entered(plan, left.trace) else None
        runtime: Runtime | None = None
        if trace is not None and left.leases:
            runtime = await take(left.leases[-1], services.overdue, bound=plan.bounds.boot)
        if runtime is None:
            await remove_all(left.leases, services.journal, services.overdue)
        stands = runtime is not None or lifecycle().takes(left.snapshot.state, "released")
        if trace is not None and stands:  # held in the very step in which the box is had
            rollout = self.register.hold(plan, trace, pursuit, services.keep_on(trace, left), settings)
            return rollout, partial(rollout.go_on, runtime)
        pursuit.cuts_off(left)
        return self._fresh(job, pursuit, settings)

    async def _entered(self, plan: Plan, rollout: str) -> bool:
        """Whether harness and model are entered, within `timeouts.boot`, as booting has it; what is wrong is said by
        the attempt that boots."""
        services = self.register.services
        for shared, doing in ((plan.harness, "entering the harness"), (plan.model, "entering the model")):
            entering = partial(services.enter, shared)
            entered = await services.overdue.attempt(
                entering, plan.bounds.boot, rollout=rollout, doing=partial(str, doing)
            )
            pass_on(entered.came.error)
            await trio.lowlevel.checkpoint_if_cancelled()
            if entered.came.error is not None or not entered.in_time:
                return False
        return True


async def _catch_up(
    services: EngineServices, journal: "Journal", written: "Iterable[Written]", content: "JournalContent"
) -> None:
    """Tell the journal of traces that are on disk without its knowing: a crash came in between."""
    there = {trace.id for trace in written}
    for left in content.attempts:
        if left.end is None and left.trace in there:
            journal.entry(left.number).ended(left.state, written=True)
    try:
        await journal.durable()
    except JournalError as error:
        services.journal_fails(str(error))


async def _ended(rollout: Rollout, begin: Callable[[], Awaitable[object]]) -> None:
    """Bring a rollout to its end: left, it closes itself."""
    async with rollout:
        await begin()


async def _ended_as_data(rollout: Rollout, begin: Callable[[], Awaitable[object]]) -> None:
    """Bring a rollout of a batch to its end. The owner's bug, or the engine's, is said: its trace is data."""
    try:
        await _ended(rollout, begin)
    except Exception as error:  # noqa: BLE001
        log.error("rollout %s ended %s: %s", rollout.trace.id, rollout.state, text(error))


async def _whole(rollout: Rollout) -> None:
    if await rollout.open():
        await rollout.step()


def _readable(left: "Attempt") -> Trace | None:
    """The trace of an attempt that a dead process left; None, and said, where it cannot be read."""
    from rollout_fsm.trace_json import trace_from_json  # the same

    try:
        return None if left.snapshot is None else trace_from_json(left.snapshot.trace)
    except FormatError as error:
        log.error("the trace of rollout %s was left in the journal, but cannot be read: %s", left.trace, error)
        return None
