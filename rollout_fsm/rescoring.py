"""Scoring finished traces again, offline: the task is rebuilt from the trace's own row, there is no runtime, and no
model is called but the judges' (L65).

Every reward and metric that a trace has is taken off first, whoever gave it: names that a mapping gave, and those of
signals that are gone, cannot be told from the names of those that are to run, and a stale value would read as fresh.
The records of judges go with them. What is there afterwards was measured now. `ok`, transitions, errors and every other
part of the trace stay what the rollout was; what happened here stands in `info["rescored"]`. The ending alone follows:
whether the reward counts is a question about the reward that is there now. A trace is changed whole or not at all: a
cancellation puts back what was there.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Literal, Protocol, TypeAlias

import trio
from attrs import asdict, define, evolve, field, frozen

from rollout_fsm.attempt import attempt
from rollout_fsm.clock import AnchoredClock
from rollout_fsm.ending import ending_of
from rollout_fsm.errors import ErrorRecord, TaskError, text
from rollout_fsm.exact_json import FormatError
from rollout_fsm.foreign import ask
from rollout_fsm.harness import Harness
from rollout_fsm.hooks import BoundHook, Hooks, harness_metrics
from rollout_fsm.in_order import in_order
from rollout_fsm.judge import JUDGED, Judge, check_judge
from rollout_fsm.limits import Bounds, RolloutTimeouts
from rollout_fsm.machine.endings import Endings
from rollout_fsm.messages import JSON
from rollout_fsm.outcome import Blame, Outcome, failed, interrupts, is_cancelled, judge
from rollout_fsm.overdue import Overdue
from rollout_fsm.rows import structure_task
from rollout_fsm.scoring import Scoring, Signal, held_by, judge_signals, seed, signals_of
from rollout_fsm.settings import at_least_one, reserved_conditions
from rollout_fsm.task import Task
from rollout_fsm.trace import Ending, Reward, Trace

__all__ = ["RESCORED", "Rescored", "Rescorings", "Skipped", "TaskSource", "rescore"]

RESCORED = "rescored"
"""Where in a trace's `info` its last scoring again is told."""

SCORING = "scoring"
NO_RUNTIME = "it takes the runtime, which is gone"
NO_STATE = "it reads trace.state, which is not written"
NO_HARNESS = "nothing of the task gave it, so it may be the harness's, and no harness was given"

log = logging.getLogger("rollout_fsm")

protected = trio.lowlevel.enable_ki_protection

TaskSource: TypeAlias = type[Task] | Task | Callable[[Trace], Task | Awaitable[Task]]
"""Where the task of a trace comes from: its class, to be made of the trace's own row; the task itself; or a function,
for rows that were corrected."""

Verdict: TypeAlias = Literal["scored", "never scored", "refused"]


class RescoringServices(Protocol):
    """What an engine does for those who score again."""

    @property
    def overdue(self) -> Overdue:
        """Who is told of everything bounded that begins and ends (L74)."""
        ...

    @property
    def endings(self) -> Endings:
        """The table of endings."""
        ...

    async def enter(self, shared: object) -> None:
        """Enter a harness or a judge that is an async context manager, once for the engine."""
        ...

    def lend(self, shared: object) -> AbstractAsyncContextManager[None]:
        """Have it entered for the length of a block, once for all whose blocks overlap."""
        ...


@frozen(kw_only=True)
class Skipped:
    """A signal that could not be asked; its name stays None on the trace."""

    kind: str
    """`metric`, `reward` or `judge`."""
    name: str
    why: str


@frozen(kw_only=True, eq=False)
class Rescored:
    """What came of one trace."""

    trace: Trace
    verdict: Verdict
    """`scored`: it was scored again. `never scored`: its rollout did not come to scoring, so it stays as it was (P2).
    `refused`: the task could not be made for it, and it stays as it was."""
    why: str = ""
    """Why it stays as it was."""
    rewards: Mapping[str, Reward] = field(factory=dict)
    """The rewards that were measured now."""
    metrics: Mapping[str, float] = field(factory=dict)
    """The metrics that were measured now."""
    skipped: tuple[Skipped, ...] = ()
    failures: tuple[ErrorRecord, ...] = ()
    """What failed now; the trace's `errors` are the rollout's (L40)."""
    dropped: tuple[str, ...] = ()
    """Names that the trace had, such as `rewards.style`, and that nothing gives any more; they are gone from it."""


async def rescore(
    traces: Iterable[Trace],
    task: TaskSource,
    *,
    services: RescoringServices,
    deliver: Callable[[Rescored], Awaitable[None]],
    judges: Sequence[Judge] = (),
    harness: Harness | None = None,
    timeouts: RolloutTimeouts | None = None,
    max_concurrent: int = 32,
) -> None:
    """Score traces again, at most `max_concurrent` at once; each is delivered, in their order, when it is done.

    `traces` is asked for the next one only when there is room for it. Raises `TypeError` and `ValueError` for what does
    not fit together, before anything is scored, and what entering a judge or the harness raises.
    """
    if isinstance(traces, str | os.PathLike):
        raise TypeError(f"{traces!r} names traces; read them: engine.rescore(read_traces({traces!r}), …)")
    at_least_one("max_concurrent", max_concurrent)
    rescorer = _Rescorer.of(task, services, judges=judges, harness=harness, timeouts=timeouts)
    await rescorer.enter()
    await in_order(traces, rescorer.rescore, deliver, max_concurrent=max_concurrent)


@define(eq=False)
class Rescorings:
    """The calls of `rescore` that an engine has in progress. Their judges are its services, so it ends them before it
    lets go of those (L75)."""

    _going_on: dict[trio.CancelScope, trio.Event] = field(factory=dict, init=False)

    @contextmanager
    def one(self) -> Iterator[None]:
        """One is going on. Raises `RuntimeError` if `end` ended it."""
        scope = trio.CancelScope()
        ended = self._going_on[scope] = trio.Event()
        try:
            with scope:
                yield
        finally:
            del self._going_on[scope]
            ended.set()
        if scope.cancelled_caught:
            raise RuntimeError("the engine was left while it scored traces again; they are as they were")

    async def end(self) -> None:
        """End those that are going on, and wait until they have."""
        for scope in self._going_on:
            scope.cancel()
        for ended in tuple(self._going_on.values()):
            await ended.wait()


def came_to_scoring(trace: Trace) -> bool:
    """Whether the rollout was scored, or failed at it. A trace without transitions, from elsewhere, is asked for its
    span and its flag."""
    if trace.transitions:
        return any(taken.target == SCORING for taken in trace.transitions)
    return trace.ok or trace.timing.scoring is not None


@define(kw_only=True, eq=False)
class _Rescorer:
    """Scores traces of one kind again."""

    task: TaskSource
    services: RescoringServices
    judges: tuple[Judge, ...]
    harness: Harness | None
    timeouts: RolloutTimeouts | None
    harness_metrics: tuple[BoundHook, ...]
    clock: AnchoredClock = field(factory=AnchoredClock.anchor)

    @classmethod
    def of(
        cls,
        task: TaskSource,
        services: RescoringServices,
        *,
        judges: Sequence[Judge],
        harness: Harness | None,
        timeouts: RolloutTimeouts | None,
    ) -> "_Rescorer":
        """Checked: whatever the caller got wrong is said before anything is scored."""
        if isinstance(task, type):
            if not issubclass(task, Task):
                raise TypeError(f"{task.__name__} is no class of tasks; derive it from Task")
            Hooks.of(object.__new__(task), reserved=reserved_conditions())
        elif isinstance(task, Task):
            Hooks.of(task, reserved=reserved_conditions())
        elif not callable(task):
            raise TypeError(f"scoring again needs a class of tasks, a task, or a function of a trace, not {task!r}")
        for name, given, kind in (("harness", harness, Harness), ("timeouts", timeouts, RolloutTimeouts)):
            if given is not None and not isinstance(given, kind):
                raise TypeError(f"{name} must be a {kind.__name__}, not {given!r}")
        for asked in judges:
            check_judge(asked)
        return cls(
            task=task,
            services=services,
            judges=tuple(judges),
            harness=harness,
            timeouts=timeouts,
            harness_metrics=harness_metrics(harness) if harness is not None else (),
        )

    async def enter(self) -> None:
        """Enter what holds something open, once, before the first trace."""
        held = [shared for asked in self.judges for shared in held_by(asked)]
        for shared in (*held, *([self.harness] if self.harness_metrics else [])):
            await self.services.enter(shared)

    @protected
    async def rescore(self, trace: Trace) -> Rescored:
        """Score a trace again. Raises only a cancellation; the trace is then as it was."""
        if not trace.is_completed:
            return Rescored(trace=trace, verdict="never scored", why="its rollout has not ended")
        if not came_to_scoring(trace):
            end = trace.transitions[-1].target if trace.transitions else "ended"
            return Rescored(trace=trace, verdict="never scored", why=f"its rollout {end} before scoring")
        made = await attempt(self._task_of, trace)
        if made.error is not None:
            await _pass_on(made.error)
            leaf = failed(made.error, TaskError, "making the task")[0]
            return Rescored(trace=trace, verdict="refused", why=str(leaf) if _is_a_fault(leaf) else text(leaf))
        assert made.value is not None
        return await self._score(trace, *made.value)

    async def _task_of(self, trace: Trace) -> tuple[Task, Hooks]:
        source = self.task
        if isinstance(source, type):
            task: Task = structure_task(source, trace.task.data)
        elif isinstance(source, Task):
            task = source
            if trace.task.key not in (None, task.key):
                raise _MisfitError(
                    f"it is of another task (its key is {trace.task.key!r}, this one's {task.key!r}); pass the class "
                    f"of the task, or a function that gives the task of a trace"
                )
        else:
            given = await ask(source, trace)
            if not isinstance(given, Task):
                raise _MisfitError(f"the function gave no Task for it but {type(given).__name__}")
            task = given
        return task, Hooks.of(task, reserved=reserved_conditions())

    async def _score(self, trace: Trace, task: Task, hooks: Hooks) -> Rescored:
        earlier = _Earlier.of(trace)
        try:
            declared = signals_of(
                task=task, trace=trace, runtime=None, hooks=hooks, harness_metrics=self.harness_metrics
            )
            judging, faults = judge_signals(task, self.judges, trace, self.services)
            expected = [*declared, *judging]
            trace.rewards.clear()
            trace.metrics.clear()
            trace.info = {name: value for name, value in earlier.info.items() if name != JUDGED}
            seed(trace, expected)
            scoring = Scoring(trace, [signal for signal in expected if not signal.needs_runtime], unmeasurable=[])
            scoring.failures += faults
            outcome = await self._run(scoring, Bounds.settle(self.timeouts, task.timeouts).scoring)
        except BaseException:
            earlier.put_back(trace)
            raise
        skipped = [_skipped(signal, NO_RUNTIME) for signal in expected if signal.needs_runtime]
        skipped += [_skipped(signal, NO_STATE) for signal in scoring.unmeasurable or ()]
        if self.harness is None:
            unknown = [name for name in earlier.metrics if name not in trace.metrics]
            trace.metrics.update(dict.fromkeys(unknown))
            skipped += [Skipped(kind="metric", name=name, why=NO_HARNESS) for name in unknown]
        rescored = Rescored(
            trace=trace,
            verdict="scored",
            rewards={name: reward for name, reward in trace.rewards.items() if reward is not None},
            metrics={name: number for name, number in trace.metrics.items() if number is not None},
            skipped=tuple(skipped),
            failures=tuple(failure.error for failure in outcome.failures),
            dropped=earlier.not_in(trace),
        )
        self._tell(rescored, earlier, type(task).__name__, outcome.lost)
        self._judge_again(trace, hooks, whole=trace.reward is not None and not outcome.failures)
        return rescored

    def _judge_again(self, trace: Trace, hooks: Hooks, *, whole: bool) -> None:
        """Whether the reward counts: never without one, nor where a signal failed, and else as the table has it for a
        rollout that ended so."""
        ending = trace.ending
        if not isinstance(ending, Ending) or not ending.graded or ending.counts == whole:
            return
        counts = False
        if whole:
            try:
                counts = ending_of(trace, self.services.endings, stops=hooks.stop_names).counts
            except (LookupError, ValueError) as unknown:  # of states that this table does not know
                log.debug("trace %s: its ending cannot be looked up again: %s", trace.id, unknown)
        trace.ending = evolve(ending, counts=counts)

    async def _run(self, scoring: Scoring, limit: float) -> Outcome:
        """Run the signals under their bound, and judge the outcome as a rollout's would be (L14a, L63). Raises what
        interrupted it."""
        trace = scoring.trace
        ran = await self.services.overdue.attempt(
            scoring.run, limit, rollout=trace.id, doing=lambda: "scoring it again"
        )
        scoring.check_foreign_values()
        late = ", ".join(signal.said for signal in scoring.late)
        blame = Blame(boundary=TaskError, doing=SCORING, note=f"; still running: {late}" if late else "")
        outcome = judge(
            cancelled=is_cancelled() or bool(interrupts(ran.came.error)),
            expired=not ran.in_time,
            timeout=lambda: blame.timed_out(elapsed=ran.elapsed, setting=SCORING, limit=limit),
            error=ran.came.error,
            outcome=Outcome(trigger="scored"),
            blame=blame,
            standing=scoring.failures,
            kept=scoring.lost,
        )
        if outcome.trigger == "cancel":
            await _pass_on(ran.came.error)
        return outcome

    def _tell(self, rescored: Rescored, earlier: "_Earlier", task: str, lost: Sequence[str]) -> None:
        """Say on the trace that it was scored again, and what the rollout itself had measured."""
        trace = rescored.trace
        info = trace.info if isinstance(trace.info, dict) else earlier.info
        before = earlier.info.get(RESCORED)
        told: dict[str, JSON] = {
            "at": self.clock.now(),
            "times": 1,
            "task": task,
            "failures": [_without_nulls(asdict(error)) for error in rescored.failures],
            "skipped": [asdict(skipped) for skipped in rescored.skipped],
            "dropped": list(rescored.dropped),
            "rollout": earlier.measured(),
        }
        if isinstance(before, dict) and isinstance(measured := before.get("rollout"), dict):
            times = before.get("times")
            told |= {"times": times + 1 if isinstance(times, int) else 2, "rollout": measured}
        if lost:
            told["after_timeout"] = list(lost)
        trace.info = {**info, RESCORED: told}


@frozen(kw_only=True, eq=False)
class _Earlier:
    """What a trace had before it was scored again."""

    rewards: dict[str, Reward | None]
    metrics: dict[str, float | None]
    info: dict[str, JSON]
    ending: Ending | None
    spent: int

    @classmethod
    def of(cls, trace: Trace) -> "_Earlier":
        return cls(
            rewards=dict(trace.rewards),
            metrics=dict(trace.metrics),
            info=dict(trace.info) if isinstance(trace.info, dict) else {},
            ending=trace.ending if isinstance(trace.ending, Ending) else None,
            spent=len(trace.extra_usage),
        )

    def put_back(self, trace: Trace) -> None:
        for place, values in ((trace.rewards, self.rewards), (trace.metrics, self.metrics)):
            place.clear()
            place.update(values)  # type: ignore[arg-type]
        trace.info, trace.ending = self.info, self.ending
        del trace.extra_usage[self.spent :]

    def not_in(self, trace: Trace) -> tuple[str, ...]:
        return tuple(
            f"{place}.{name}"
            for place, had, has in (
                ("rewards", self.rewards, trace.rewards),
                ("metrics", self.metrics, trace.metrics),
            )
            for name in had
            if name not in has
        )

    def measured(self) -> dict[str, JSON]:
        """What the rollout itself had measured, and whether it counted."""
        rewards: dict[str, JSON] = {
            name: None if reward is None else asdict(reward) for name, reward in self.rewards.items()
        }
        counted: dict[str, JSON] = {} if self.ending is None else {"counts": self.ending.counts}
        return {"rewards": rewards, "metrics": dict(self.metrics), **counted}


class _MisfitError(Exception):
    """Why a trace is refused, in a sentence."""


def _is_a_fault(error: BaseException) -> bool:
    """Whether its message says all: the engine's own, not what foreign code raised."""
    return isinstance(error, FormatError | _MisfitError)


def _skipped(signal: Signal, why: str) -> Skipped:
    return Skipped(kind=signal.kind, name=signal.name, why=why)


def _without_nulls(record: dict[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in record.items() if value is not None}


async def _pass_on(error: BaseException | None) -> None:
    """Raise what interrupted the caller, if something did: an interrupt bare, a cancellation fresh (L70)."""
    try:
        for struck in interrupts(error):
            raise struck
        await trio.lowlevel.checkpoint_if_cancelled()
    finally:
        del error  # a frame that keeps an exception which it raises is kept by it
