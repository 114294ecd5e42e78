"""The engine: it mints rollouts, holds each until it is final, and ends what nobody else ended (L75).

`run`, `run_all` and `interaction` are written on `rollout`; there is one way to run one. What the engine holds open for
its rollouts is in `services`, what becomes of many at once in `batch`.
"""

import logging
import uuid
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Unpack
from weakref import WeakValueDictionary

import trio
from attrs import define, field

from rollout_fsm.attempt import attempt
from rollout_fsm.batch import Batch, Job, jobs
from rollout_fsm.errors import text
from rollout_fsm.interaction import Interaction
from rollout_fsm.outcome import Interrupt, bare, interrupts, pass_on, plain
from rollout_fsm.output import RunFolder
from rollout_fsm.rollout import Rollout
from rollout_fsm.services import EngineServices, LostTrace
from rollout_fsm.settings import AgentSettings, OneRollout, agent_config, settle, task_info
from rollout_fsm.shield import shielded
from rollout_fsm.task import Task
from rollout_fsm.trace import AgentInfo, RunInfo, Trace, TransitionRecord

log = logging.getLogger("rollout_fsm")

EVENTS = ("on_trace", "on_transition", "on_finished")
"""What an observer may have."""


@define(eq=False, repr=False)
class Engine:
    """Runs rollouts. Made by `open_engine`, used inside its `async with`."""

    _folder: RunFolder | None
    _run_info: RunInfo
    _host: str
    _port: int
    _with_gateway: bool
    _observers: tuple[object, ...]
    _manager: AbstractAsyncContextManager[trio.Nursery] | None = field(init=False, default=None)
    _nursery: trio.Nursery | None = field(init=False, default=None)
    _services: EngineServices | None = field(init=False, default=None)
    _live: dict[Rollout, tuple[object, ...]] = field(init=False, factory=dict)
    """Every rollout that is not final, and who watches it."""
    _open: bool = field(init=False, default=False)
    """Whether rollouts may be minted: inside the block, until it is left."""
    _unwritten: "WeakValueDictionary[str, trio.Event]" = field(init=False, factory=WeakValueDictionary)
    """Finished traces on their way to the file, by id; the writer holds them."""

    # ---- rollouts

    def rollout(self, task: Task, *, has_user: bool = False, **settings: Unpack[OneRollout]) -> Rollout:
        """A rollout, minted but not opened: the three verbs by hand, best with `async with`.

        Raises `TypeError` for what does not fit together (a wrong hook, a harness that is none), `FormatError` (a
        `ValueError`) for a task whose fields are no JSON, `RuntimeError` outside
        of the engine's block.
        """
        services = self._present()
        observers = (*self._observers, *_checked_observers(settings.get("observers", ())))
        plan = settle(task, has_user=has_user, services=services, settings=settings)
        trace = Trace(
            id=settings.get("id") or uuid.uuid4().hex,
            task=task_info(task),
            agent=AgentInfo(config=agent_config(plan)),
            run=self._run_info,
            group=settings.get("group"),
        )
        rollout = Rollout(plan, trace, self)
        self._live[rollout] = observers
        for interrupt in self._tell(observers, "on_trace", trace):
            raise interrupt
        return rollout

    async def run(self, task: Task, **settings: Unpack[OneRollout]) -> Trace:
        """One rollout, whole: open, one segment, close. Returns its trace, whatever became of it.

        Raises only a cancellation, a caller's mistake (`TypeError`) and a caller's lifetime bug
        (`RuntimeLifetimeError`).
        """
        async with self.rollout(task, **settings) as rollout:
            if await rollout.open():
                await rollout.step()
            trace = await rollout.close()
        await self._on_disk(trace)
        return trace

    def run_all(
        self,
        tasks: Iterable[Task],
        *,
        rollouts_per_task: int = 1,
        max_concurrent: int | None = None,
        **settings: Unpack[AgentSettings],
    ) -> Batch:
        """Many rollouts: `async with engine.run_all(tasks, …) as traces: async for trace in traces: …`.

        At most `max_concurrent` at once, from boot to confirmed release (None: no bound). Traces come as they finish; a
        failed rollout is a trace like any other (L42). Leaving the block cancels what is left. Raises `TypeError` and
        `ValueError` for what does not fit together, before anything starts.
        """
        services = self._present()
        _at_least_one("rollouts_per_task", rollouts_per_task)
        _at_least_one("max_concurrent", 1 if max_concurrent is None else max_concurrent)
        owed = list(tasks)
        for task in {type(task): task for task in owed}.values():
            settle(task, has_user=False, services=services, settings=settings)
        for task in owed:
            task_info(task)
        assert self._nursery is not None

        async def run(job: Job) -> Trace:
            return await self._run_job(job, settings)

        return Batch(self._nursery, list(jobs(owed, rollouts_per_task)), run, max_concurrent)

    def interaction(self, task: Task, **settings: Unpack[OneRollout]) -> Interaction:
        """A rollout whose user is the caller: `async with engine.interaction(task, …) as interaction: await
        interaction.turn(…)`."""
        return Interaction(self.rollout(task, has_user=True, **settings))

    @property
    def lost(self) -> Sequence[LostTrace]:
        """Finished traces that could not be written, by name."""
        return tuple(self._services.lost) if self._services is not None else ()

    @property
    def url(self) -> str:
        """Base URL of the gateway; empty where there is none."""
        gateway = self._services.gateway if self._services is not None else None
        return "" if gateway is None else gateway.url

    def __repr__(self) -> str:
        return f"<Engine {'open' if self._open else 'closed'} live={len(self._live)} {self.url}>"

    # ---- the engine's own life

    async def __aenter__(self) -> "Engine":
        if self._manager is not None:
            raise RuntimeError("an engine is entered once; open another with open_engine()")
        if self._folder is not None:
            self._folder.open()
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        services = EngineServices(self._nursery, self._folder)
        problem: BaseException | None = None
        try:
            await services.start(host=self._host, port=self._port, gateway=self._with_gateway)
        except BaseException as raised:  # noqa: BLE001  (raised again once the nursery is left)
            problem = raised
        if problem is not None:
            self._nursery.cancel_scope.cancel()
            await self._manager.__aexit__(None, None, None)
            if self._folder is not None:
                self._folder.abandon()
            try:
                raise bare(problem)
            finally:
                problem = None
        self._services, self._open = services, True
        return self

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._manager is not None
        self._open = False
        raised = await shielded(self._shut_down, name="leaving the engine")
        # the block's own exception is not shown to the nursery: it would come out in a group
        crashed = (await attempt(self._manager.__aexit__, None, None, None)).error
        found = [struck for struck in (raised, crashed) if struck is not None]
        if plain(error):  # it stands; a mere Cancelled gives way to a crash, which the block met as that
            found = [struck for struck in found if interrupts(struck)]
        try:
            if found:
                raise bare(found[0])
        finally:
            error = raised = crashed = None  # a frame that keeps an exception which it raises is kept by it
            found.clear()

    async def _shut_down(self) -> None:
        """End every rollout that is left, then the services: never while a release may need them (L75)."""
        try:
            async with trio.open_nursery() as nursery:
                for rollout in tuple(self._live):
                    nursery.start_soon(self._end, rollout)
        finally:
            if self._services is not None:
                await self._services.stop()
            if self._folder is not None:
                self._folder.close()

    async def _end(self, rollout: Rollout) -> None:
        with trio.CancelScope(shield=True):  # what came out of a sibling's release cuts nobody's release short
            ended = await attempt(rollout.cancel)
        for bug in plain(ended.error):
            log.error("rollout %s could not be ended: %s", rollout.trace.id, text(bug), exc_info=bug)
        self._live.pop(rollout, None)
        pass_on(ended.error)

    def _present(self) -> EngineServices:
        if self._services is None or not self._open:
            raise RuntimeError("the engine is not open: use it inside `async with open_engine() as engine`")
        return self._services

    # ---- what rollouts tell

    def on_transition(self, rollout: Rollout, transition: TransitionRecord) -> list[Interrupt]:
        """A transition was taken; observers are told. Raises nothing; returns the interrupts that they raised."""
        return self._tell(self._live.get(rollout, ()), "on_transition", rollout.trace, transition)

    def on_finished(self, rollout: Rollout) -> list[Interrupt]:
        """A rollout is final: it is let go of, written, told and logged (L57, L73, L75). Raises nothing."""
        trace, observers = rollout.trace, self._live.pop(rollout, ())
        if self._services is not None and (written := self._services.submit(trace)) is not None:
            self._unwritten[trace.id] = written
        interrupts_met = self._tell(observers, "on_finished", trace)
        stop = trace.errors[0].type if trace.errors else trace.stop_condition
        said = "rollout done: id=%s task=%s reward=%s turns=%d stop=%s"
        log.info(said, trace.id, trace.task.type, trace.reward, trace.num_turns, stop)
        try:
            return interrupts_met
        finally:
            del interrupts_met  # a frame that keeps an exception that was raised through it is kept by it

    async def _on_disk(self, trace: Trace) -> None:
        """Wait until a finished trace is on disk, or known to be lost (L73)."""
        written = self._unwritten.get(trace.id)
        if written is not None:
            await written.wait()

    async def _run_job(self, job: Job, settings: AgentSettings) -> Trace:
        """One rollout of a batch. The caller's lifetime bug is logged and its trace is aborted: siblings go on (L3,
        L42)."""
        rollout = self.rollout(job.task, group=job.group, **settings)
        try:
            async with rollout:
                if await rollout.open():
                    await rollout.step()
                await rollout.close()
        except Exception as error:  # noqa: BLE001  (the owner's bug, or the engine's: said, and its trace is data)
            log.error("rollout %s ended %s: %s", rollout.trace.id, rollout.state, text(error))
        await self._on_disk(rollout.trace)
        return rollout.trace

    @staticmethod
    def _tell(observers: Iterable[object], event: str, *about: object) -> list[Interrupt]:
        """Tell observers; what one raises is logged and disturbs nothing (L42). Returns the interrupts among it."""
        met: list[Interrupt] = []
        try:
            for observer in observers:
                try:
                    if (tell := getattr(observer, event, None)) is not None:
                        tell(*about)
                except BaseException as raised:
                    met += interrupts(raised)
                    log.exception("observer %s raised in %s", type(observer).__name__, event)
            return met
        finally:
            del met  # a frame that keeps an exception that was raised through it is kept by it


def open_engine(
    *,
    output_dir: str | Path | None = None,
    run_name: str | None = None,
    run_id: str | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    observers: Sequence[object] = (),
    gateway: bool = True,
) -> Engine:
    """An engine, for `async with`. Leaving it cancels what is not final and waits for its release (L75).

    `output_dir`: finished traces go to its `traces.jsonl`; without it nothing is written.
    `run_name` and `run_id` (uuid4 hex unless given) stand on every trace. `host`, `port`: where the
    gateway listens, 0 takes a free port; `gateway=False` for harnesses in this process only. `observers` have any of
    `on_trace(trace)`, `on_transition(trace, transition)`, `on_finished(trace)`. Entering raises `OSError` for a port in
    use or a folder that cannot be written, `FileExistsError` for a folder that already holds a run.
    """
    return Engine(
        RunFolder(Path(output_dir)) if output_dir is not None else None,
        RunInfo(id=run_id or uuid.uuid4().hex, name=run_name),
        host,
        port,
        gateway,
        _checked_observers(observers),
    )


def _checked_observers(observers: Iterable[object]) -> tuple[object, ...]:
    checked = tuple(observers)
    for observer in checked:
        if not any(callable(getattr(observer, event, None)) for event in EVENTS):
            raise TypeError(f"an observer has any of {', '.join(EVENTS)}; {observer!r} has none")
    return checked


def _at_least_one(name: str, value: int) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
