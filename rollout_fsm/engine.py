"""The engine: its verbs, and its own life, which ends what nobody else ended (L75).

The rollouts that live are in `register`, what the engine holds open for them in `services`. Those that it drives itself
are run in `attempts`, many at once by `batch`; what is let through when is `flow`'s.
"""

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

import trio
from attrs import define, field

from rollout_fsm.attempt import attempt
from rollout_fsm.attempts import Attempts
from rollout_fsm.batch import Batch, ByTask, Job, OneByOne, jobs
from rollout_fsm.ending import settle_endings
from rollout_fsm.errors import TaskError, attribute
from rollout_fsm.flow import Quiet
from rollout_fsm.harness import Harness
from rollout_fsm.interaction import Interaction
from rollout_fsm.judge import Judge
from rollout_fsm.limits import RolloutTimeouts
from rollout_fsm.machine.endings import EndingChange, Endings
from rollout_fsm.observers import Observers
from rollout_fsm.outcome import bare, interrupts, plain
from rollout_fsm.pursuit import Pursuit
from rollout_fsm.register import Register
from rollout_fsm.rescoring import Rescored, Rescorings, TaskSource, rescore
from rollout_fsm.retry import RetryPolicy
from rollout_fsm.rollout import Rollout
from rollout_fsm.services import EngineServices, LostTrace
from rollout_fsm.settings import AgentSettings, ManyRollouts, OneRollout, at_least_one, settle, task_info
from rollout_fsm.shield import shielded
from rollout_fsm.task import Task
from rollout_fsm.trace import RunInfo, Trace

if TYPE_CHECKING:
    from rollout_fsm.journal import Journal
    from rollout_fsm.output import RunFolder

log = logging.getLogger("rollout_fsm")


@define(eq=False, repr=False)
class Engine:
    """Runs rollouts. Made by `open_engine`, used inside its `async with`."""

    _folder: "RunFolder | None"
    _run_info: RunInfo
    _host: str
    _port: int
    _with_gateway: bool
    _observers: Observers
    _max_active_segments: int | None
    _endings: Endings
    _resumes: bool
    """Whether its folder holds a run that is gone on with."""
    _manager: AbstractAsyncContextManager[trio.Nursery] | None = field(init=False, default=None)
    _nursery: trio.Nursery | None = field(init=False, default=None)
    _register: Register | None = field(init=False, default=None)
    _journal_gone: str | None = field(init=False, default=None)
    """Why nothing is known of what a dead process left."""
    _rescorings: Rescorings = field(init=False, factory=Rescorings)

    # ---- rollouts

    def rollout(self, task: Task, *, has_user: bool = False, **settings: Unpack[OneRollout]) -> Rollout:
        """A rollout, minted but not opened: the three verbs by hand, best with `async with`.

        Raises `TypeError` for what does not fit together (a wrong hook, a harness that is none), `FormatError` (a
        `ValueError`) for a task whose fields are no JSON, `RuntimeError` outside
        of the engine's block.
        """
        _refuse_retries("rollout", settings)
        return self._present.mint(task, Pursuit(), has_user=has_user, settings=settings)

    async def run(self, task: Task, **settings: Unpack[OneRollout]) -> Trace:
        """One rollout, whole: open, one segment, close. Returns its trace, whatever became of it; with `retry=`, that
        of the last attempt.

        Raises only a cancellation, a caller's mistake (`TypeError`) and a caller's lifetime bug
        (`RuntimeLifetimeError`).
        """
        return await Attempts(self._present).one(task, settings)

    @overload
    def run_all(
        self, tasks: Iterable[Task], *, group_by_task: Literal[False] = False, **settings: Unpack[ManyRollouts]
    ) -> Batch[Trace]: ...
    @overload
    def run_all(
        self, tasks: Iterable[Task], *, group_by_task: Literal[True], **settings: Unpack[ManyRollouts]
    ) -> Batch[list[Trace]]: ...
    def run_all(
        self,
        tasks: Iterable[Task],
        *,
        rollouts_per_task: int = 1,
        max_concurrent: int | None = None,
        group_by_task: bool = False,
        **settings: Unpack[AgentSettings],
    ) -> Batch[Trace] | Batch[list[Trace]]:
        """Many rollouts: `async with engine.run_all(tasks, …) as traces: async for trace in traces: …`.

        At most `max_concurrent` at once, from boot to confirmed release (None: no bound); what waits for a retry is not
        among them. Traces come as they finish, or with `group_by_task` as lists, those of a task together once its
        last one is finished; a failed rollout is a trace like any other (L42). Leaving the block cancels what is left.
        Raises `TypeError` and `ValueError` for what does not fit together, before anything starts.
        """
        owed = self._jobs(tasks, rollouts_per_task, max_concurrent, settings)

        async def all_of_them(over: trio.Event) -> Sequence[Job]:
            return owed

        return self._batch(all_of_them, group_by_task, max_concurrent, settings)

    def interaction(self, task: Task, **settings: Unpack[OneRollout]) -> Interaction:
        """A rollout whose user is the caller: `async with engine.interaction(task, …) as interaction: await
        interaction.turn(…)`."""
        _refuse_retries("interaction", settings)
        return Interaction(self._present.mint(task, Pursuit(), has_user=True, settings=settings))

    # ---- all rollouts at once

    def pause(self) -> Quiet:
        """Hold new turns: those that go on end, the clocks of agent, drain and hooks stand still (L12).

        Takes effect at once; awaited, it returns when no turn is going on any more: the time to change a model's
        weights. Everything else goes on: rollouts boot, are scored and released, and a cancellation is acted on.
        """
        return self._present.services.flow.pause()

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
    def resume(
        self,
        tasks: Iterable[Task] | None = None,
        *,
        rollouts_per_task: int = 1,
        max_concurrent: int | None = None,
        group_by_task: bool = False,
        **settings: Any,
    ) -> Batch[Trace] | Batch[list[Trace]] | None:
        """Without tasks: go on after a `pause`. Held turns are admitted, and every clock has what it had.

        With tasks: go on with the run of the folder that `open_engine(output_dir=…, resume=True)` named. As `run_all`,
        but it runs what the run still owes, and yields those traces (with `group_by_task` those of a task that are
        owed). A rollout is told by its task's key, its place among equal keys and its index; one whose task has another
        content now is owed again, and so is one that was aborted or drained, its trace kept in `superseded.jsonl`.
        Processes and workspaces that the dead process left are removed first; where an exchange was over and its box
        still stands, the rollout goes on there.
        """
        if tasks is None:
            if settings or group_by_task:
                raise TypeError("resume() without tasks ends a pause; to go on with a run, name its tasks")
            self._present.services.flow.resume()
            return None
        register, folder = self._present, self._folder
        if not self._resumes or folder is None or register.services.journal is None:
            raise RuntimeError("this engine resumes no run: open_engine(output_dir=…, resume=True) opens one that does")
        given = cast("AgentSettings", settings)
        asked = self._jobs(tasks, rollouts_per_task, max_concurrent, given)
        owed = partial(Attempts(register).owed, folder, register.services.journal, asked)
        return self._batch(owed, group_by_task, max_concurrent, given)

    def drain(self) -> Quiet:
        """Stop every rollout at its next turn, with the stop condition `drained`, and start no new one, for good; a
        pause is over. A rollout that ends without a further turn ends as it would have.

        Takes effect at once; awaited, it returns when every rollout of `run` and `run_all` has ended. Those that a
        caller drives end when their caller closes them.
        """
        return self._present.services.flow.drain()

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
        judges: Sequence[Judge] = (),
        harness: Harness | None = None,
        timeouts: RolloutTimeouts | None = None,
        max_concurrent: int = 32,
        deliver: Callable[[Rescored], Awaitable[None]] | None = None,
    ) -> Rescored | list[Rescored]:
        """Score finished traces again, offline and in place: no runtime, and no model but the judges' (L65).

        `task` is the class of the tasks, each rebuilt from its trace's row; or a task; or a function of a trace.
        Returns what came of the trace, or of each, in their order. For more than memory should hold, `traces` may be a
        generator, which is asked for one when there is room, and `deliver` is then given each result, in order; the
        list is empty. Only traces that came to scoring are scored again; the others stay as they were, and it is said
        why. Each is bounded by `timeouts.scoring`; at most `max_concurrent` are scored at once. A trace is to be in
        one call at a time.

        Raises `TypeError` and `ValueError` for what does not fit together before anything is scored, what `traces` and
        `deliver` raise, and a cancellation; the traces that were being scored are then as they were.
        """
        services = self._present.services
        results: list[Rescored] = []

        async def keep(rescored: Rescored) -> None:
            results.append(rescored)

        with self._rescorings.one():
            await rescore(
                [traces] if isinstance(traces, Trace) else traces,
                task,
                services=services,
                deliver=deliver or keep,
                judges=judges,
                harness=harness,
                timeouts=timeouts,
                max_concurrent=max_concurrent,
            )
        return results[0] if isinstance(traces, Trace) else results

    @property
    def lost(self) -> Sequence[LostTrace]:
        """Finished traces that could not be written, by name."""
        return tuple(self._register.services.lost) if self._register is not None else ()

    @property
    def journal_failed(self) -> str | None:
        """Why something could not be kept for a crash; None if everything was. No rollout ends for that."""
        return self._register.services.journal_failed if self._register is not None else None

    @property
    def url(self) -> str:
        """Base URL of the gateway; empty where there is none."""
        gateway = self._register.services.gateway if self._register is not None else None
        return "" if gateway is None else gateway.url

    def __repr__(self) -> str:
        register = self._register
        live = 0 if register is None else len(register.live)
        return f"<Engine {'closed' if register is None or register.closed else 'open'} live={live} {self.url}>"

    # ---- the engine's own life

    async def __aenter__(self) -> "Engine":
        if not trio.lowlevel.in_trio_task():
            raise RuntimeError(
                "this engine runs on trio; in an asyncio program: async with rollout_fsm.aio.open_engine() as engine"
            )
        if self._manager is not None:
            raise RuntimeError("an engine is entered once; open another with open_engine()")
        journal = self._open_folder()
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        services = EngineServices(self._nursery, self._folder, journal, self._endings, self._max_active_segments)
        problem: BaseException | None = None
        try:
            await services.start(host=self._host, port=self._port, gateway=self._with_gateway)
        except BaseException as raised:  # noqa: BLE001  (raised again once the nursery is left)
            problem = raised
        if problem is not None:
            await shielded(services.stop, name="opening the engine")
            self._nursery.cancel_scope.cancel()
            await self._manager.__aexit__(None, None, None)
            if self._folder is not None:
                self._folder.abandon()
            try:
                raise bare(problem)
            finally:
                problem = None
        if self._journal_gone is not None:
            services.journal_fails(self._journal_gone)
        self._register = Register(services, self._run_info, self._observers)
        return self

    def _open_folder(self) -> "Journal | None":
        """Take the run's folder, and open its journal; a run that is gone on with keeps its id."""
        if self._folder is None:
            return None
        from rollout_fsm.journal import Journal  # here, since without a folder there is none

        self._folder.open(resume=self._resumes, run_id=self._run_info.id)
        journal: Journal | None = None
        try:
            journal = Journal.open(self._folder.journal)
            before = journal.read().processes if self._resumes else ()
            if before:
                name = self._run_info.name or before[0].name
                self._run_info = RunInfo(id=before[0].run_id, name=name)
            elif self._resumes and self._folder.traces.stat().st_size:
                self._journal_gone = f"{self._folder.journal} says nothing: what a dead process left is not found"
                log.error("%s", self._journal_gone)
            journal.process(run_id=self._run_info.id, name=self._run_info.name)
        except BaseException:
            if journal is not None:
                journal.close()
            self._folder.abandon()
            raise
        return journal

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._manager is not None
        if self._register is not None:
            self._register.close()
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
            await self._rescorings.end()
            if self._register is not None:
                await self._register.end_all()
        finally:
            if self._register is not None:
                await self._register.services.stop()
            if self._folder is not None:
                self._folder.close()

    @property
    def _present(self) -> Register:
        if self._register is None or self._register.closed:
            raise RuntimeError("the engine is not open: use it inside `async with open_engine() as engine`")
        return self._register

    # ---- many at once

    def _jobs(
        self, tasks: Iterable[Task], rollouts_per_task: int, max_concurrent: int | None, settings: AgentSettings
    ) -> Sequence[Job]:
        """What is asked for; raises for whatever does not fit together, before anything starts."""
        services = self._present.services
        at_least_one("rollouts_per_task", rollouts_per_task)
        at_least_one("max_concurrent", 1 if max_concurrent is None else max_concurrent)
        asked = list(tasks)
        for task in {type(task): task for task in asked}.values():
            settle(task, has_user=False, services=services, settings=settings)
        if taken := sorted({"id", "group"} & settings.keys()):
            raise TypeError(f"each of many rollouts has an id and a group of its own; leave {taken[0]}= to run()")
        for place, task in enumerate(asked):
            _described(task, place)
        self._present.observers.joined_by(settings.get("observers", ()))
        return list(jobs(asked, rollouts_per_task))

    def _batch(
        self,
        owed: Callable[[trio.Event], Awaitable[Sequence[Job]]],
        group_by_task: bool,
        max_concurrent: int | None,
        settings: AgentSettings,
    ) -> Batch[Trace] | Batch[list[Trace]]:
        assert self._nursery is not None
        register = self._present
        parts = self._nursery, owed, partial(Attempts(register).of, settings)
        if group_by_task:
            return Batch(*parts, ByTask(), register.services.flow, max_concurrent)
        return Batch(*parts, OneByOne(), register.services.flow, max_concurrent)


def open_engine(
    *,
    output_dir: str | Path | None = None,
    run_name: str | None = None,
    run_id: str | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    resume: bool = False,
    endings: Mapping[str, EndingChange] | Endings | None = None,
    max_active_segments: int | None = None,
    observers: Sequence[object] = (),
    gateway: bool = True,
) -> Engine:
    """An engine, for `async with`. Leaving it cancels what is not final and waits for its release (L75).

    `output_dir`: finished traces go to its `traces.jsonl`, and what a crash must not lose to its journal; without it
    nothing is written. `resume`: go on with the run that the folder holds, by `engine.resume(tasks, …)`; new traces
    join its old ones. `endings`: what is to be changed of `trace.ending`, by the ending's name
    (`{"agent_timeout": {"counts": True}}`), or a whole table (`load_endings()`, changed).
    `run_name` and `run_id` (uuid4 hex unless given) stand on every trace. `host`, `port`: where the gateway listens, 0
    takes a free port; `gateway=False` for harnesses in this process only. `max_active_segments`: how many segments run
    at once, None for any number; waiting for a permit costs no agent budget (L12). `observers` have any of
    `on_trace(trace)`, `on_transition(trace, transition)`, `on_activity(trace, activity)`, `on_finished(trace)`, and
    `on_retry(trace, seconds)` instead of the last where another attempt follows. Entering raises `OSError` for a port
    in use or a folder that cannot be written, `FileExistsError` for a folder that already holds a run,
    `FileNotFoundError` for one that holds none to resume, `FolderInUseError` (an `OSError`) naming the process that
    uses it.
    """
    if resume and output_dir is None:
        raise TypeError("there is no run to resume: name its folder, open_engine(output_dir=…, resume=True)")
    at_least_one("max_active_segments", 1 if max_active_segments is None else max_active_segments)
    return Engine(
        _folder(Path(output_dir)) if output_dir is not None else None,
        RunInfo(id=run_id or uuid.uuid4().hex, name=run_name),
        host,
        port,
        gateway,
        Observers(observers),
        max_active_segments,
        settle_endings(endings),
        resume,
    )


def _folder(path: Path) -> "RunFolder":
    from rollout_fsm.output import RunFolder  # here, since who keeps nothing does without

    return RunFolder(path)


def _refuse_retries(verb: str, settings: AgentSettings) -> None:
    if isinstance(policy := settings.get("retry"), RetryPolicy) and policy.max_retries:
        raise TypeError(
            f"{verb}() is driven by its caller, so the engine cannot try it again; leave retry= to run() and run_all()"
        )


def _described(task: Task, place: int) -> None:
    """Raises what keeps a task from standing on a trace; what its own code raises is a `TaskError`."""
    try:
        task_info(task)
    except (TypeError, ValueError):
        raise
    except Exception as error:
        doing = f"reading key, hash and row of task {place} ({type(task).__name__})"
        raise attribute(error, TaskError, doing) from error
