"""What a rollout may spend: turns and tokens, seconds, and what happens when they run out."""

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Literal, get_args

from attrs import Attribute, asdict, field, fields, frozen

from rollout_fsm.trace import Trace


def _cap(instance: object, attribute: "Attribute[int | None]", value: int | None) -> None:
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{attribute.name} must be a whole number of at least 0, or None for no cap, not {value!r}")


def _seconds(instance: object, attribute: "Attribute[float | None]", value: float | None) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
        raise ValueError(f"{attribute.name} must be a number of seconds of at least 0, or None, not {value!r}")


def _one_of(*allowed: str) -> "Callable[[object, Attribute[Any], str], None]":
    def check(instance: object, attribute: "Attribute[Any]", value: str) -> None:
        if value not in allowed:
            raise ValueError(f"{attribute.name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")

    return check


@frozen(kw_only=True)
class RolloutLimits:
    """Caps asked before each turn, in this order, against the trace's aggregate of the same name (L15). None = no
    cap."""

    max_turns: int | None = field(default=None, validator=_cap)
    max_input_tokens: int | None = field(default=None, validator=_cap)
    max_output_tokens: int | None = field(default=None, validator=_cap)
    max_total_tokens: int | None = field(default=None, validator=_cap)

    @property
    def cap_tokens(self) -> bool:
        """Whether a cap counts tokens, so that a reply without usage makes it unenforceable (L15)."""
        return not self.max_input_tokens is self.max_output_tokens is self.max_total_tokens is None

    def reached(self, trace: Trace, in_flight: int) -> str | None:
        """The name of the first cap that the trace has met, None within all. Calls in flight count as turns (L15)."""
        if self.max_turns is not None and trace.num_turns + in_flight >= self.max_turns:
            return "max_turns"
        if self.max_input_tokens is not None and trace.num_input_tokens >= self.max_input_tokens:
            return "max_input_tokens"
        if self.max_output_tokens is not None and trace.num_output_tokens >= self.max_output_tokens:
            return "max_output_tokens"
        if self.max_total_tokens is not None and trace.num_total_tokens >= self.max_total_tokens:
            return "max_total_tokens"
        return None


@frozen(kw_only=True)
class RolloutTimeouts:
    """Bounds in seconds. None = not set: the task's is taken, then the default (L2). `math.inf` for `agent` is no
    bound.

    `boot`, `setup`, `finalize` and `scoring` bound their states, `agent` is one sum over all segments (L12), `hook`
    bounds each stop and interceptor (L37), `drain` a harness after a refusal (L18), `close` and `release` each step of
    a release (L55).
    """

    boot: float | None = field(default=None, validator=_seconds)
    setup: float | None = field(default=None, validator=_seconds)
    agent: float | None = field(default=None, validator=_seconds)
    finalize: float | None = field(default=None, validator=_seconds)
    scoring: float | None = field(default=None, validator=_seconds)
    hook: float | None = field(default=None, validator=_seconds)
    drain: float | None = field(default=None, validator=_seconds)
    close: float | None = field(default=None, validator=_seconds)
    release: float | None = field(default=None, validator=_seconds)

    def __attrs_post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value == math.inf and name != "agent":
                raise ValueError(f"{name} must be a finite number of seconds: only agent may have no bound (L2)")


@frozen(kw_only=True)
class Bounds:
    """Every bound of one rollout, in seconds, settled (L2)."""

    boot: float
    setup: float
    agent: float
    finalize: float
    scoring: float
    hook: float
    drain: float
    close: float
    release: float

    @classmethod
    def settle(cls, run: RolloutTimeouts | None, task: RolloutTimeouts | None) -> "Bounds":
        """Field by field: the run's where set, else the task's, else the default."""
        if run is None and task is None:
            return DEFAULT_BOUNDS
        of_run, of_task = _bounds_of(run or _UNSET), _bounds_of(task or _UNSET)
        settled = asdict(DEFAULT_BOUNDS)
        for bounds in (of_task, of_run):
            settled |= {name: bound for name, bound in zip(_NAMES, bounds, strict=True) if bound is not None}
        return cls(**settled)


DEFAULT_BOUNDS = Bounds(
    boot=600, setup=600, agent=math.inf, finalize=300, scoring=600, hook=60, drain=30, close=60, release=60
)
_NAMES = tuple(attribute.name for attribute in fields(Bounds))
_bounds_of: Callable[[object], tuple[float | None, ...]] = attrgetter(*_NAMES)
_UNSET = RolloutTimeouts()


AgentExpiry = Literal["fail", "stop"]
NoProgress = Literal["stop", "fail"]
UnknownUsage = Literal["warn", "fail"]


@frozen(kw_only=True)
class RolloutPolicy:
    """Declared alternatives: what an expired agent budget (L13), a segment without a turn (L19) and a reply without
    usage under a token cap (L15) mean."""

    agent_expiry: AgentExpiry = field(default="fail", validator=_one_of(*get_args(AgentExpiry)))
    no_progress: NoProgress = field(default="stop", validator=_one_of(*get_args(NoProgress)))
    unknown_usage: UnknownUsage = field(default="warn", validator=_one_of(*get_args(UnknownUsage)))


LIMIT_NAMES = tuple(attribute.name for attribute in fields(RolloutLimits))
"""The stop conditions that limits set."""
