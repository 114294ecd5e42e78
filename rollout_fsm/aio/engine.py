"""The engine, for asyncio: the names of the one on trio, awaited from asyncio and cancelled by it."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial, wraps
from types import TracebackType
from typing import Any, Literal, ParamSpec, Unpack, cast, overload

from attrs import define

from rollout_fsm import engine as trio_engine
from rollout_fsm import foreign
from rollout_fsm.aio.batch import Batch
from rollout_fsm.aio.delegation import StandsFor, plain, read, verb
from rollout_fsm.aio.interaction import Interaction
from rollout_fsm.aio.life import EngineLife
from rollout_fsm.aio.rollout import Rollout
from rollout_fsm.harness import Harness
from rollout_fsm.judge import Judge
from rollout_fsm.limits import RolloutTimeouts
from rollout_fsm.rescoring import Rescored, TaskSource
from rollout_fsm.settings import ManyRollouts, OneRollout
from rollout_fsm.task import Task
from rollout_fsm.trace import Trace

P = ParamSpec("P")


@define(eq=False, repr=False)
class Engine(StandsFor[trio_engine.Engine]):
    """Runs rollouts. Made by `aio.open_engine`, used inside its `async with`."""

    _caller: EngineLife

    run = verb(trio_engine.Engine.run)
    pause = plain(trio_engine.Engine.pause)
    drain = plain(trio_engine.Engine.drain)
    lost = read(trio_engine.Engine.lost)
    journal_failed = read(trio_engine.Engine.journal_failed)
    url = read(trio_engine.Engine.url)

    def rollout(self, task: Task, *, has_user: bool = False, **settings: Unpack[OneRollout]) -> Rollout:
        """A rollout, minted but not opened: the three verbs by hand, best with `async with`."""
        return Rollout(_plain_rollout(self, task, has_user=has_user, **settings), self._caller)

    def interaction(self, task: Task, **settings: Unpack[OneRollout]) -> Interaction:
        """A rollout whose user is the caller: `async with engine.interaction(task, …) as interaction: await
        interaction.turn(…)`."""
        return Interaction(_plain_interaction(self, task, **settings), self._caller)

    @overload
    def run_all(
        self, tasks: Iterable[Task], *, group_by_task: Literal[False] = False, **settings: Unpack[ManyRollouts]
    ) -> Batch[Trace]: ...
    @overload
    def run_all(
        self, tasks: Iterable[Task], *, group_by_task: Literal[True], **settings: Unpack[ManyRollouts]
    ) -> Batch[list[Trace]]: ...
    def run_all(self, tasks: Iterable[Task], **settings: Any) -> Batch[Any]:
        """Many rollouts: `async with engine.run_all(tasks, …) as traces: async for trace in traces: …`.

        As on trio: traces as they finish, or those of a task together; leaving the block cancels what is left.
        """
        return Batch(_plain_run_all(self, tasks, **settings), self._caller)

    @overload
    def resume(self) -> None: ...
    @overload
    def resume(
        self, tasks: Iterable[Task], *, group_by_task: Literal[False] = False, **settings: Unpack[ManyRollouts]
    ) -> Batch[Trace]: ...
    @overload
    def resume(
        self, tasks: Iterable[Task], *, group_by_task: Literal[True], **settings: Unpack[ManyRollouts]
    ) -> Batch[list[Trace]]: ...
    def resume(self, tasks: Iterable[Task] | None = None, **settings: Any) -> Batch[Any] | None:
        """Without tasks: go on after a `pause`. With tasks: go on with the run of the engine's folder, as on trio."""
        batch = _plain_resume(self, tasks, **settings)
        return None if batch is None else Batch(batch, self._caller)

    @overload
    async def rescore(
        self,
        traces: Trace,
        task: TaskSource,
        *,
        judges: Sequence[Judge] = ...,
        harness: Harness | None = ...,
        timeouts: RolloutTimeouts | None = ...,
    ) -> Rescored: ...
    @overload
    async def rescore(
        self,
        traces: Iterable[Trace],
        task: TaskSource,
        *,
        judges: Sequence[Judge] = ...,
        harness: Harness | None = ...,
        timeouts: RolloutTimeouts | None = ...,
        max_concurrent: int = ...,
        deliver: Callable[[Rescored], Awaitable[None]] | None = ...,
    ) -> list[Rescored]: ...
    async def rescore(
        self,
        traces: Trace | Iterable[Trace],
        task: TaskSource,
        *,
        deliver: Callable[[Rescored], Awaitable[None]] | None = None,
        **settings: Any,
    ) -> Rescored | list[Rescored]:
        """Score finished traces again, offline and in place: no runtime, and no model but the judges' (L65)."""
        if deliver is not None:
            settings["deliver"] = partial(_delivered, deliver)
        return cast("Rescored | list[Rescored]", await _rescore(self, traces, task, **settings))

    async def __aenter__(self) -> "Engine":
        await self._caller.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._caller.end(error)
        finally:
            del error  # a frame that keeps an exception which it raises is kept by it


_plain_rollout = plain(trio_engine.Engine.rollout)
_plain_interaction = plain(trio_engine.Engine.interaction)
_plain_run_all: Callable[..., Any] = plain(trio_engine.Engine.run_all)
_plain_resume: Callable[..., Any] = plain(trio_engine.Engine.resume)
_rescore: Callable[..., Any] = verb(trio_engine.Engine.rescore)


async def _delivered(deliver: Callable[[Rescored], Awaitable[None]], rescored: Rescored) -> None:
    await foreign.call(deliver, rescored)


def _for_asyncio(make: Callable[P, trio_engine.Engine]) -> Callable[P, Engine]:
    @wraps(make)
    def open_engine(*args: P.args, **kwargs: P.kwargs) -> Engine:
        engine = make(*args, **kwargs)
        return Engine(engine, EngineLife(engine))

    return open_engine


open_engine = _for_asyncio(trio_engine.open_engine)
