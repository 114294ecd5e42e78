"""The numbers of a run: how its rollouts ended, what was measured and in how many of them, what they spent.

A `Summary` takes traces one by one and keeps numbers only, so a run of any length fits. Every number says of how many
rollouts it is: a mean over half of them is another thing than a mean over all. What it looks like on a screen is
decided elsewhere.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median, quantiles

from attrs import define, field, frozen

from rollout_fsm.machine.endings import Ending
from rollout_fsm.machine.vocabulary import SPANS
from rollout_fsm.pursuit import ATTEMPTS
from rollout_fsm.trace import Trace

__all__ = ["Outcome", "Signal", "Spread", "Summary", "Total", "p95"]

SHARES = ("model", "harness")
"""How the time of the agent's span is shared (L80)."""

CUT_OFF = "(its process ended)"
"""What an attempt ended with that was no failure of its own."""

COUNTS = ("turns", "input_tokens", "output_tokens", "total_tokens")
"""What is counted, under the names that a trace's `num_…` has."""


@frozen(kw_only=True)
class Outcome:
    """How a rollout ended: its final state, its stop condition, and for one that is not ok the type of the primary
    error."""

    state: str
    stop_condition: str | None
    error: str | None = None

    @classmethod
    def of(cls, trace: Trace) -> "Outcome":
        """The outcome of a trace. One without transitions, from elsewhere, has the state that its flags claim."""
        claimed = "completed" if trace.ok else "failed" if trace.is_completed else "unfinished"
        state = trace.transitions[-1].target if trace.transitions else claimed
        error = trace.errors[0].type if trace.errors and not trace.ok else None
        return cls(state=state, stop_condition=trace.stop_condition, error=error)


@frozen(kw_only=True)
class Signal:
    """A reward or a metric: its mean over the rollouts in which it was measured, and how many of all these are."""

    name: str
    mean: float | None
    """None if it was measured nowhere. A reward's is that of its scores, without weight."""
    measured: int
    of: int
    weights: tuple[float, ...] = ()
    """The weights that a reward had, in ascending order; nearly always one."""

    @property
    def missing(self) -> int:
        """In how many rollouts it was not measured."""
        return self.of - self.measured


@frozen(kw_only=True)
class Spread:
    """A stretch of time over rollouts, in seconds. The 95th percentile is interpolated linearly."""

    name: str
    median: float
    p95: float
    measured: int
    of: int


@frozen(kw_only=True)
class Total:
    """Something that is counted: turns, or tokens. `known` is in how many of the rollouts it is: unknown usage is not
    zero (L15)."""

    name: str
    total: int
    mean: float | None
    most: int | None
    known: int
    of: int


@define(eq=False)
class Summary:
    """The numbers of the traces that were added."""

    rollouts: int = 0
    ok: int = 0
    outcomes: Counter[Outcome] = field(factory=Counter)
    endings: Counter[Ending] = field(factory=Counter)
    """Why they ended, who caused it, and whether the reward counts."""
    retried: int = 0
    """How many rollouts needed more than one attempt."""
    earlier: Counter[str] = field(factory=Counter)
    """What the attempts before the last ended with: the type of the primary error, else the ending."""
    reasons: dict[str, str] = field(factory=dict)
    """For each type of primary error the first message that was met."""
    warnings: Counter[str] = field(factory=Counter)
    """Warnings by kind (L51)."""
    _reward: "array[float]" = field(factory=lambda: array("d"))
    _scores: dict[str, "array[float]"] = field(factory=dict)
    _weights: dict[str, set[float]] = field(factory=dict)
    _metrics: dict[str, "array[float]"] = field(factory=dict)
    _seconds: dict[str, "array[float]"] = field(factory=dict)
    _counts: dict[str, list[int]] = field(factory=dict)

    @classmethod
    def of(cls, traces: Iterable[Trace]) -> "Summary":
        """The summary of these traces."""
        summary = cls()
        for trace in traces:
            summary.add(trace)
        return summary

    def add(self, trace: Trace) -> None:
        """Count a finished trace in."""
        self.rollouts += 1
        self.ok += trace.ok
        self.outcomes[Outcome.of(trace)] += 1
        if trace.ending is not None:
            self.endings[trace.ending] += 1
        earlier = list(_earlier(trace))
        self.retried += bool(earlier)
        self.earlier.update(earlier)
        if trace.errors and not trace.ok:
            self.reasons.setdefault(trace.errors[0].type, trace.errors[0].message)
        self.warnings.update(warning.kind for warning in trace.warnings)
        if trace.reward is not None:
            self._reward.append(trace.reward)
        for name, reward in trace.rewards.items():
            scores = self._scores.setdefault(name, array("d"))
            if reward is not None:
                scores.append(reward.score)
                self._weights.setdefault(name, set()).add(reward.weight)
        for name, number in trace.metrics.items():
            numbers = self._metrics.setdefault(name, array("d"))
            if number is not None:
                numbers.append(number)
        for name, seconds in _durations(trace):
            self._seconds.setdefault(name, array("d")).append(seconds)
        for name in COUNTS:
            if name == "turns" or _usage_known(trace):
                self._counts.setdefault(name, []).append(getattr(trace, f"num_{name}"))

    @property
    def not_ok(self) -> int:
        """How many rollouts failed or were aborted."""
        return self.rollouts - self.ok

    @property
    def reward(self) -> Signal:
        """The reward as a whole: the weighted sum, where any reward was measured (L64)."""
        return self._signal("reward", self._reward)

    @property
    def rewards(self) -> Sequence[Signal]:
        """Each reward, in the order of first appearance."""
        return [
            self._signal(name, scores, tuple(sorted(self._weights.get(name, ()))))
            for name, scores in self._scores.items()
        ]

    @property
    def metrics(self) -> Sequence[Signal]:
        """Each metric, in the order of first appearance."""
        return [self._signal(name, numbers) for name, numbers in self._metrics.items()]

    @property
    def spans(self) -> Sequence[Spread]:
        """The spans that any rollout had, in the order of the lifecycle; the agent's with its shares."""
        names = [
            name
            for span in SPANS
            for name in ((span, *(f"agent.{share}" for share in SHARES)) if span == "agent" else (span,))
        ]
        return [
            Spread(
                name=name,
                median=median(self._seconds[name]),
                p95=p95(self._seconds[name]),
                measured=len(self._seconds[name]),
                of=self.rollouts,
            )
            for name in names
            if name in self._seconds
        ]

    @property
    def totals(self) -> Mapping[str, Total]:
        """Turns and tokens, by name."""
        return {name: self._total(name, self._counts.get(name, [])) for name in COUNTS}

    def _signal(self, name: str, numbers: Sequence[float], weights: tuple[float, ...] = ()) -> Signal:
        mean = math.fsum(numbers) / len(numbers) if numbers else None
        return Signal(name=name, mean=mean, measured=len(numbers), of=self.rollouts, weights=weights)

    def _total(self, name: str, numbers: Sequence[int]) -> Total:
        total = sum(numbers)
        return Total(
            name=name,
            total=total,
            mean=total / len(numbers) if numbers else None,
            most=max(numbers, default=None),
            known=len(numbers),
            of=self.rollouts,
        )


def p95(numbers: Sequence[float]) -> float:
    """The 95th percentile, interpolated linearly between the two nearest numbers. Raises `ValueError` for none at
    all."""
    if not numbers:
        raise ValueError("nothing has no percentile")
    return numbers[0] if len(numbers) == 1 else quantiles(numbers, n=20, method="inclusive")[-1]


def _earlier(trace: Trace) -> Iterable[str]:
    """What each attempt before this one ended with, as the trace tells it; others may have written that too."""
    attempts = trace.info.get(ATTEMPTS) if isinstance(trace.info, dict) else None
    for attempt in attempts if isinstance(attempts, list) else ():
        if not isinstance(attempt, dict):
            continue
        errors = attempt.get("errors")
        primary = errors[0] if isinstance(errors, list) and errors else None
        kind = primary.get("type") if isinstance(primary, dict) else attempt.get("ending")
        yield kind if isinstance(kind, str) else CUT_OFF if "cut_off" in attempt else "?"


def _durations(trace: Trace) -> Iterable[tuple[str, float]]:
    for name in SPANS:
        span = getattr(trace.timing, name)
        if span is not None and span.end is not None:
            yield name, span.duration
    agent = trace.timing.agent
    if agent is not None and agent.end is not None:
        for share in SHARES:
            yield f"agent.{share}", getattr(agent, share).duration


def _usage_known(trace: Trace) -> bool:
    """Whether every reply said what it used; a rollout without a reply used nothing, and that is known."""
    return all(call.usage is not None for call in trace.calls if call.node is not None)
