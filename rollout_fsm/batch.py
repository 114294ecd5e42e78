"""Many rollouts at once: a bounded number of them, their traces as they finish, none disturbed by another (L42)."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import trio
from attrs import define, field, frozen

from rollout_fsm.flow import Flow
from rollout_fsm.identity import Identity
from rollout_fsm.outcome import bare, interrupts, plain
from rollout_fsm.past import NO_PAST, Past
from rollout_fsm.shield import shielded
from rollout_fsm.task import Task
from rollout_fsm.trace import GroupInfo, Trace

log = logging.getLogger("rollout_fsm")

T = TypeVar("T")
C = TypeVar("C", covariant=True)


@frozen(kw_only=True, eq=False)
class Job:
    """One rollout that is owed."""

    task: Task
    identity: Identity
    past: Past = NO_PAST

    @property
    def group(self) -> GroupInfo:
        """The rollouts of one task are a group."""
        return GroupInfo(id=self.identity.group, index=self.identity.index)


def jobs(tasks: Iterable[Task], rollouts_per_task: int) -> Iterator[Job]:
    """Every rollout of every task. Equal keys are told apart by their place."""
    seen: Counter[str] = Counter()
    for task in tasks:
        seen[task.key] += 1
        for index in range(rollouts_per_task):
            yield Job(task=task, identity=Identity(task.key, seen[task.key], index))


class Collector(Protocol[C]):
    """What becomes of finished traces."""

    def expect(self, owed: Iterable[Job]) -> None:
        """These will be run."""
        ...

    def add(self, trace: Trace) -> Iterable[C]:
        """A trace is finished: what is to be handed on now."""
        ...

    def rest(self) -> Iterable[C]:
        """No more will come: what is left to be handed on."""
        ...


@frozen
class OneByOne(Collector[Trace]):
    """Each trace as it finishes."""

    def expect(self, owed: Iterable[Job]) -> None:
        """It makes no difference."""

    def add(self, trace: Trace) -> Iterable[Trace]:
        """The trace."""
        return (trace,)

    def rest(self) -> Iterable[Trace]:
        """Nothing."""
        return ()


@define
class ByTask(Collector[list[Trace]]):
    """The traces of each task together, in the order of their index, once its last one is finished."""

    _sizes: Counter[str] = field(factory=Counter, init=False)
    """How many rollouts of each group are run."""
    _groups: dict[str, list[Trace]] = field(factory=dict, init=False)

    def expect(self, owed: Iterable[Job]) -> None:
        """A group is whole when all of its rollouts that are run have finished."""
        self._sizes.update(job.group.id for job in owed)

    def add(self, trace: Trace) -> Iterable[list[Trace]]:
        """The trace's group, if it is whole now."""
        assert trace.group is not None
        group = self._groups.setdefault(trace.group.id, [])
        group.append(trace)
        if len(group) == self._sizes[trace.group.id]:
            yield _in_order(self._groups.pop(trace.group.id))

    def rest(self) -> Iterable[list[Trace]]:
        """Groups that will not be whole any more, since the engine drains."""
        while self._groups:
            yield _in_order(self._groups.pop(next(iter(self._groups))))


def _in_order(group: list[Trace]) -> list[Trace]:
    return sorted(group, key=lambda trace: trace.group.index or 0 if trace.group else 0)


@define(eq=False)
class Permit:
    """Of one rollout, held while its box may exist: from boot to confirmed release."""

    _permits: trio.CapacityLimiter
    _held: bool = field(default=False, init=False)

    async def take(self) -> None:
        """Wait for it."""
        await self._permits.acquire_on_behalf_of(self)
        self._held = True

    def give_back(self) -> None:
        """Let another rollout have it; once more changes nothing."""
        if self._held:
            self._held = False
            self._permits.release_on_behalf_of(self)


@define(eq=False)
class Batch(AsyncIterator[T], Generic[T]):
    """The rollouts of `run_all`: an async context manager around an async iterator of what comes of them.

    Leaving the block cancels what is left and waits for its release. The workers live in the engine's nursery, so
    nothing of the caller's is ever wrapped in a group.
    """

    _nursery: trio.Nursery
    _jobs: Callable[[trio.Event], Awaitable[Sequence[Job]]]
    """Says what is owed, when the block is entered; it is given what is set when all of it is over."""
    _run: Callable[[Job, Permit], Awaitable[Trace | None]]
    """Runs it; None if it was not started, since the engine drains."""
    _collector: Collector[T]
    _flow: Flow
    _max_concurrent: int | None
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _done: trio.Event = field(factory=trio.Event, init=False)
    _finished: trio.MemoryReceiveChannel[T] | None = field(default=None, init=False)
    _bug: BaseException | None = field(default=None, init=False)

    async def __aenter__(self) -> "Batch[T]":
        try:
            owed = await self._jobs(self._done)
        except BaseException:
            self._done.set()
            raise
        self._collector.expect(owed)
        finished, self._finished = trio.open_memory_channel[T](float("inf"))
        self._nursery.start_soon(self._feed, owed, finished)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._scope.cancel()
        raised = await shielded(self._done.wait, name="leaving run_all")
        if self._finished is not None:
            self._finished.close()
        bug, self._bug = self._bug or raised, None
        try:
            if bug is not None and (error is None or interrupts(bug)):
                raise bare(bug)
        finally:
            del bug, raised, error

    def __aiter__(self) -> "Batch[T]":
        return self

    async def __anext__(self) -> T:
        if self._finished is None:
            raise RuntimeError(
                "run_all() is a context manager: async with engine.run_all(...) as traces: async for trace in traces"
            )
        try:
            return await self._finished.receive()
        except trio.EndOfChannel:
            if (bug := self._bug) is not None:
                self._bug = None
                raise bug from None
            raise StopAsyncIteration from None

    async def _feed(self, owed: Iterable[Job], finished: trio.MemorySendChannel[T]) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as workers:
                    permits = trio.CapacityLimiter(self._max_concurrent or float("inf"))
                    for job in owed:
                        permit = Permit(permits)
                        await permit.take()
                        if self._flow.draining:
                            permit.give_back()
                            break
                        workers.start_soon(self._work, job, permit, finished)
                for left in self._collector.rest():
                    finished.send_nowait(left)
        except BaseException as raised:  # noqa: BLE001  (handed to whoever iterates, or leaves)
            self._bug = bare(raised) if plain(raised) or interrupts(raised) else None
        finally:
            finished.close()
            self._done.set()

    async def _work(self, job: Job, permit: Permit, finished: trio.MemorySendChannel[T]) -> None:
        try:
            with self._flow.driven:
                trace = await self._run(job, permit)
        finally:
            permit.give_back()
        for whole in self._collector.add(trace) if trace is not None else ():
            finished.send_nowait(whole)
