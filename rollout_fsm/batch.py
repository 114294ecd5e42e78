"""Many rollouts at once: a bounded number of them, their traces as they finish, none disturbed by another (L42)."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from types import TracebackType

import trio
from attrs import define, field, frozen

from rollout_fsm.outcome import bare, interrupts, plain
from rollout_fsm.shield import shielded
from rollout_fsm.task import Task
from rollout_fsm.trace import GroupInfo, Trace

log = logging.getLogger("rollout_fsm")


@frozen(kw_only=True, eq=False)
class Job:
    """One rollout that is owed."""

    task: Task
    group: GroupInfo


def jobs(tasks: Iterable[Task], rollouts_per_task: int) -> Iterator[Job]:
    """Every rollout of every task. The rollouts of one task are a group; equal keys are told apart by their place."""
    seen: Counter[str] = Counter()
    for task in tasks:
        seen[task.key] += 1
        place = seen[task.key]
        group = task.key if place == 1 else f"{task.key}-{place}"
        for index in range(rollouts_per_task):
            yield Job(task=task, group=GroupInfo(id=group, index=index))


@define(eq=False)
class Batch(AsyncIterator[Trace]):
    """The rollouts of `run_all`: an async context manager around an async iterator of traces.

    A permit spans boot to confirmed release. Leaving the block cancels what is left and waits for its release. The
    workers live in the engine's nursery, so nothing of the caller's is ever wrapped in a group.
    """

    _nursery: trio.Nursery
    _jobs: Iterable[Job]
    _run: Callable[[Job], Awaitable[Trace]]
    _max_concurrent: int | None
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _done: trio.Event = field(factory=trio.Event, init=False)
    _traces: trio.MemoryReceiveChannel[Trace] | None = field(default=None, init=False)
    _bug: BaseException | None = field(default=None, init=False)

    async def __aenter__(self) -> "Batch":
        finished, self._traces = trio.open_memory_channel[Trace](float("inf"))
        self._nursery.start_soon(self._feed, finished)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._scope.cancel()
        raised = await shielded(self._done.wait, name="leaving run_all")
        if self._traces is not None:
            self._traces.close()
        bug, self._bug = self._bug or raised, None
        try:
            if bug is not None and (error is None or interrupts(bug)):
                raise bare(bug)
        finally:
            del bug, raised, error

    def __aiter__(self) -> "Batch":
        return self

    async def __anext__(self) -> Trace:
        if self._traces is None:
            raise RuntimeError(
                "run_all() is a context manager: async with engine.run_all(...) as traces: async for trace in traces"
            )
        try:
            return await self._traces.receive()
        except trio.EndOfChannel:
            if (bug := self._bug) is not None:
                self._bug = None
                raise bug from None
            raise StopAsyncIteration from None

    async def _feed(self, finished: trio.MemorySendChannel[Trace]) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as workers:
                    permits = trio.CapacityLimiter(self._max_concurrent or float("inf"))
                    for job in self._jobs:
                        await permits.acquire_on_behalf_of(job)
                        workers.start_soon(self._work, job, permits, finished)
        except BaseException as raised:  # noqa: BLE001  (handed to whoever iterates, or leaves)
            self._bug = bare(raised) if plain(raised) or interrupts(raised) else None
        finally:
            finished.close()
            self._done.set()

    async def _work(self, job: Job, permits: trio.CapacityLimiter, finished: trio.MemorySendChannel[Trace]) -> None:
        try:
            finished.send_nowait(await self._run(job))
        finally:
            permits.release_on_behalf_of(job)
