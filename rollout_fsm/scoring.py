"""Scoring: every expected name first, then the signals, then only what was measured (L60-L65).

A signal's value is recorded when it returns in time, whatever becomes of its siblings; a failure is kept as text and
leaves its name None. What is not here: when scoring happens and what its failures mean for the rollout. The machine
decides that.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from numbers import Real
from typing import Any, Literal, Protocol, TypeAlias

import trio
from attrs import define, field, frozen

from rollout_fsm.attempt import attempt
from rollout_fsm.errors import TaskError, attribute, record
from rollout_fsm.foreign import call
from rollout_fsm.hooks import BoundHook, Hooks
from rollout_fsm.judge import Judge, check_judge
from rollout_fsm.model import Model
from rollout_fsm.outcome import Failure, bare, failed, interrupts, is_cancelled, lost, nobodys, pass_on, plain
from rollout_fsm.runtime import Runtime
from rollout_fsm.task import Task
from rollout_fsm.trace import Reward, Trace
from rollout_fsm.unwritten_state import StateNotWrittenError

Kind: TypeAlias = Literal["metric", "reward", "judge"]
ORDER: tuple[Kind, ...] = ("metric", "reward", "judge")
"""The kinds run in this order; the signals of one kind run concurrently (L62)."""
NAMING = "naming the judges"


class Services(Protocol):
    """Who has entered what judges hold open."""

    async def enter(self, shared: object) -> None:
        """Enter it, once for the engine."""
        ...

    def lend(self, shared: object) -> AbstractAsyncContextManager[None]:
        """Have it entered for the length of a block, once for all whose blocks overlap."""
        ...


@frozen(kw_only=True, eq=False)
class Signal:
    """One thing to be measured."""

    name: str
    kind: Kind
    weight: float
    measure: Callable[[], Awaitable[object]] = field(repr=False)
    needs_runtime: bool = False
    """Whether it takes the runtime, so that it cannot be measured once that is gone (L65)."""

    @property
    def said(self) -> str:
        """How an error names it."""
        return f"{self.kind} {self.name!r}"

    @property
    def place(self) -> Literal["metrics", "rewards"]:
        """Where on the trace its values go; a judge's verdict is a reward (L63)."""
        return "metrics" if self.kind == "metric" else "rewards"


def signals_of(
    *,
    task: Task,
    trace: Trace,
    runtime: Runtime | None,
    hooks: Hooks,
    harness_metrics: Sequence[BoundHook] = (),
) -> list[Signal]:
    """The signals that task and harness declare, in the order in which they are started (L30, L62)."""
    available: dict[str, object] = {"task": task, "trace": trace, "runtime": runtime}

    def of(hook: BoundHook, kind: Kind) -> Signal:
        needs = "runtime" in hook.hook.takes.values()
        measure = partial(hook, available)
        return Signal(name=hook.name, kind=kind, weight=hook.hook.weight, measure=measure, needs_runtime=needs)

    return [
        *(of(hook, "metric") for hook in (*hooks.metrics, *harness_metrics)),
        *(of(hook, "reward") for hook in hooks.rewards),
    ]


def signal_of(judge: Judge, measure: Callable[[Judge], Awaitable[object]]) -> Signal:
    """A judge as a signal. Raises `TypeError` for one without a name or with a weight that is no finite number."""
    name, weight = check_judge(judge)
    return Signal(name=name, kind="judge", weight=weight, measure=partial(measure, judge))


def held_by(judge: Judge) -> list[object]:
    """What may be an async context manager: the judge, and the model that it asks."""
    return [judge, judge.model] if isinstance(judge.model, Model) else [judge]


def judge_signals(
    task: Task, judges: Sequence[Judge], trace: Trace, services: Services
) -> tuple[list[Signal], list[Failure]]:
    """The task's own judges and those of the run, as signals. What those of the run hold is entered once for the
    engine; a task's may be built anew for each rollout, so theirs is open while they are asked. One that cannot be
    asked fails the scoring, and keeps no other signal from running."""

    async def of_the_task(judge: Judge) -> object:
        async with AsyncExitStack() as meanwhile:
            for shared in held_by(judge):
                await meanwhile.enter_async_context(services.lend(shared))
            return await call(judge.score, task, trace)

    async def of_the_run(judge: Judge) -> object:
        for shared in held_by(judge):
            await services.enter(shared)
        return await call(judge.score, task, trace)

    try:
        own = [signal_of(judge, of_the_task) for judge in task.judges()]
        return [*own, *(signal_of(judge, of_the_run) for judge in judges)], []
    except BaseException as raised:  # noqa: BLE001  (the task's own code; said with the other failures)
        pass_on(raised)
        errors = [record(attribute(leaf, TaskError, NAMING)) for leaf in failed(raised, TaskError, NAMING)]
        return [], [Failure(error=error, stands=True) for error in errors]


def seed(trace: Trace, expected: Iterable[Signal]) -> None:
    """Put every expected name in the trace with the value None: "expected, not measured" (L60). Earlier values of these
    names go, so that no stale one reads as fresh (L65)."""
    for signal in expected:
        place: dict[str, Any] = getattr(trace, signal.place)
        place[signal.name] = None


@define(eq=False)
class Scoring:
    """One scoring of one trace."""

    trace: Trace
    expected: Sequence[Signal]
    failures: list[Failure] = field(factory=list, init=False)
    """What failed while there was still time, in the order in which it failed; it stands, however the phase ends
    (L63)."""
    lost: list[str] = field(factory=list, init=False)
    """What signals raised when they were interrupted."""
    late: list[Signal] = field(factory=list, init=False)
    """Signals that were still running when the scoring was interrupted."""
    unmeasurable: list[Signal] | None = None
    """Where it is a list: signals that read the state of a trace that was read from a file; elsewhere these fail."""
    _given: dict[tuple[str, str], Signal] = field(factory=dict, init=False, repr=False)
    _rewards: dict[str, Reward] = field(factory=dict, init=False, repr=False)
    """The rewards that signals returned."""

    async def run(self) -> None:
        """Run the signals, kind by kind. Returns when all have, or raises what interrupted them."""
        for kind in ORDER:
            signals = [signal for signal in self.expected if signal.kind == kind]
            if signals:
                async with trio.open_nursery() as nursery:
                    for signal in signals:
                        nursery.start_soon(self._measure, signal, name=signal.said)
            if self.late and not is_cancelled():  # whatever stopped them was no cancellation
                for signal in self.late:
                    self._failed(signal, nobodys(TaskError, signal.said))
                self.late.clear()

    async def _measure(self, signal: Signal) -> None:
        measured = await attempt(signal.measure)
        try:
            if is_cancelled():
                self.late.append(signal)
                self.lost += lost(plain(measured.error))
            elif measured.error is None:
                self._record(signal, measured.value)
            elif self.unmeasurable is not None and isinstance(measured.error, StateNotWrittenError):
                self.unmeasurable.append(signal)
            elif plain(measured.error) or not interrupts(measured.error):
                self._failed(signal, *failed(measured.error, TaskError, signal.said))
            if measured.error is not None:
                pass_on(bare(measured.error))  # what stood beside an interrupt has been told
            await trio.lowlevel.checkpoint_if_cancelled()
        finally:
            del measured  # a frame that keeps an exception which it raises is kept by it

    def _failed(self, signal: Signal, *errors: BaseException) -> None:
        told = (record(attribute(error, TaskError, signal.said)) for error in errors)
        self.failures += [Failure(error=error, stands=True) for error in told]

    def _record(self, signal: Signal, value: object) -> None:
        """Put a measured value on the trace: all of its names, or none (L61)."""
        try:
            numbers = _numbers(signal, value)
            for name in numbers:
                if other := self._given.get((signal.place, name)):
                    raise TaskError(f"{signal.said} gives {name!r}, which {other.said} already gave; rename one")
        except Exception as refused:  # noqa: BLE001  (what a signal returned is foreign code, too)
            self._failed(signal, refused)
            return
        place: dict[str, Any] = getattr(self.trace, signal.place)
        if signal.name not in numbers and (signal.place, signal.name) not in self._given:
            place.pop(signal.name, None)
        for name, number in numbers.items():
            self._given[signal.place, name] = signal
            if signal.kind == "metric":
                self.trace.metrics[name] = number
            else:
                self.trace.rewards[name] = self._rewards[name] = Reward(score=number, weight=signal.weight)

    def check_foreign_values(self) -> None:
        """What the task's own code wrote among the rewards and metrics is no measurement: it goes, and is a failure. So
        is a reward that no signal returned, however well it is formed: whoever reads it takes it for a verdict. So are
        rewards that add up to more than a float holds."""
        rewards, metrics = self.trace.rewards, self.trace.metrics
        for name, value in [*rewards.items()]:
            measured = self._rewards.get(name)
            if value is not None and value is not measured:
                rewards[name] = measured
                if measured is None and not any((each.place, each.name) == ("rewards", name) for each in self.expected):
                    del rewards[name]
                self._written("rewards", name, value)
        for name, number in [*metrics.items()]:
            if number is not None and not _is_metric(number):
                self._written("metrics", name, metrics.pop(name))
        if self.trace.reward is None and any(rewards.values()):
            said = "the rewards add up to no finite number; give them smaller weights"
            self.failures.append(Failure(error=record(TaskError(said)), stands=True))

    def _written(self, place: str, name: object, value: object) -> None:
        said = f"trace.{place}[{name!r}] was set to what is no measurement ({type(value).__name__})"
        self.failures.append(Failure(error=record(TaskError(f"{said}; return it from a signal")), stands=True))


def _numbers(signal: Signal, value: object) -> dict[str, float]:
    """What a signal returned, as names and finite numbers. Raises `TaskError` for anything else."""
    values: Mapping[object, object] = value if isinstance(value, Mapping) else {signal.name: value}
    numbers: dict[str, float] = {}
    for name, number in values.items():
        finite = _finite(number, signal.weight)
        if finite is None or not isinstance(name, str):
            what = f"{name!r}: {number!r}" if isinstance(value, Mapping) else repr(number)
            raise TaskError(
                f"{signal.said} returned {what}; a signal returns a finite number, or a mapping of names to them"
            )
        numbers[name] = finite
    return numbers


def _is_metric(value: object) -> bool:
    return isinstance(value, int | float) and _finite(value, 1.0) is not None


def _finite(number: object, weight: float) -> float | None:
    """The number as a float, a whole one as it is; None if it, or what it adds, is not finite. True counts as 1."""
    if not isinstance(number, Real):
        return None
    try:
        as_float = float(number)
    except OverflowError:
        return None
    if not math.isfinite(as_float) or not math.isfinite(as_float * weight):
        return None
    return number if isinstance(number, int) and not isinstance(number, bool) else as_float
