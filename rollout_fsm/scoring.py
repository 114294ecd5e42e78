"""Scoring: every expected name first, then the signals, then only what was measured (L60-L65).

A signal's value is recorded when it returns in time, whatever becomes of its siblings; a failure is kept as text and
leaves its name None. What is not here: when scoring happens and what its failures mean for the rollout. The machine
decides that.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Literal, TypeAlias

import trio
from attrs import define, field, frozen

from rollout_fsm.errors import TaskError, attribute, record
from rollout_fsm.hooks import BoundHook, Hooks
from rollout_fsm.judge import Judge
from rollout_fsm.outcome import Failure, interrupts, lost, pass_on, plain
from rollout_fsm.runtime import Runtime
from rollout_fsm.task import Task
from rollout_fsm.trace import Reward, Trace

Kind: TypeAlias = Literal["metric", "reward", "judge"]
ORDER: tuple[Kind, ...] = ("metric", "reward", "judge")
"""The kinds run in this order; the signals of one kind run concurrently (L62)."""


@frozen(kw_only=True, eq=False)
class Signal:
    """One thing to be measured."""

    name: str
    kind: Kind
    weight: float
    measure: Callable[[], Awaitable[object]] = field(repr=False)

    @property
    def said(self) -> str:
        """How an error names it."""
        return f"{self.kind} {self.name!r}"


def signals(
    *,
    task: Task,
    trace: Trace,
    runtime: Runtime | None,
    hooks: Hooks,
    harness_metrics: Sequence[BoundHook] = (),
    judges: Sequence[Judge] = (),
) -> list[Signal]:
    """The signals of a rollout, in the order in which they are started (L30, L62)."""
    available: dict[str, object] = {"task": task, "trace": trace, "runtime": runtime}

    def of(hook: BoundHook, kind: Kind) -> Signal:
        return Signal(name=hook.name, kind=kind, weight=hook.hook.weight, measure=lambda: hook(available))

    def by(judge: Judge) -> Signal:
        return Signal(name=judge.name, kind="judge", weight=judge.weight, measure=lambda: judge.score(task, trace))

    return [
        *(of(hook, "metric") for hook in (*hooks.metrics, *harness_metrics)),
        *(of(hook, "reward") for hook in hooks.rewards),
        *(by(judge) for judge in judges),
    ]


def seed(trace: Trace, expected: Iterable[Signal]) -> None:
    """Put every expected name in the trace with the value None: "expected, not measured" (L60). Earlier values of these
    names go, so that no stale one reads as fresh (L65)."""
    for signal in expected:
        if signal.kind == "metric":
            trace.metrics[signal.name] = None
        else:
            trace.rewards[signal.name] = None


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
    _given: dict[tuple[str, str], Signal] = field(factory=dict, init=False, repr=False)

    async def run(self) -> None:
        """Run the signals, kind by kind. Returns when all have, or raises what interrupted them."""
        for kind in ORDER:
            async with trio.open_nursery() as nursery:
                for signal in self.expected:
                    if signal.kind == kind:
                        nursery.start_soon(self._measure, signal, name=signal.said)

    async def _measure(self, signal: Signal) -> None:
        error: BaseException | None = None
        value: object = None
        try:
            value = await signal.measure()
        except GeneratorExit:
            raise
        except BaseException as raised:  # noqa: BLE001  (foreign code; what it means is judged below)
            error = raised
        in_time = trio.current_effective_deadline() > trio.current_time()
        if not in_time:
            self.late.append(signal)
        try:
            if error is None and in_time:
                self._record(signal, value)
            elif error is not None:
                self._failed(signal, error, in_time=in_time)
            pass_on(error)
        finally:
            error = None  # a frame that keeps an exception is kept by it
        await trio.lowlevel.checkpoint_if_cancelled()

    def _failed(self, signal: Signal, error: BaseException, *, in_time: bool) -> None:
        raised = plain(error)
        if not in_time:
            self.lost += lost(raised)
            return
        if not raised and not interrupts(
            error
        ):  # a Cancelled that nobody's scope sent is a failure like any other (L14a)
            raised = [TaskError(f"{signal.said} raised Cancelled although nothing was cancelled")]
        self.failures += [
            Failure(error=record(attribute(leaf, TaskError, signal.said)), stands=True) for leaf in raised
        ]

    def _record(self, signal: Signal, value: object) -> None:
        """Put a measured value on the trace: all of its names, or none (L61)."""
        try:
            numbers = _numbers(signal, value)
            place = "metrics" if signal.kind == "metric" else "rewards"
            for name in numbers:
                if other := self._given.get((place, name)):
                    raise TaskError(
                        f"{signal.said} gives {name!r}, which {other.said} already gave; rename one of them"
                    )
        except Exception as refused:  # noqa: BLE001  (what a signal returned is foreign code, too)
            self.failures.append(Failure(error=record(attribute(refused, TaskError, signal.said)), stands=True))
            return
        if signal.name not in numbers and (place, signal.name) not in self._given:
            self.trace.metrics.pop(signal.name, None) if signal.kind == "metric" else self.trace.rewards.pop(
                signal.name, None
            )
        for name, number in numbers.items():
            self._given[place, name] = signal
            if signal.kind == "metric":
                self.trace.metrics[name] = number
            else:
                self.trace.rewards[name] = Reward(score=number, weight=signal.weight)


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
