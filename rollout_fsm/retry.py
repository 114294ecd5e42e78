"""Whether a finished rollout is tried again, and after how long: a decision on its trace, and nothing else.

Decided is on the primary cause alone: the ending, and the first of the errors. Nothing here runs or waits; whoever
does gives every attempt a fresh trace and a fresh runtime. An aborted rollout is never tried again, nor one with a
borrowed runtime, which would not be fresh.
"""

import builtins
import random
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeAlias, cast

from attrs import Attribute, asdict, field, frozen

from rollout_fsm.ending import kinds_of
from rollout_fsm.errors import ErrorRecord, RolloutError, subclasses
from rollout_fsm.exact_json import plain_with_faults
from rollout_fsm.machine.endings_file import endings
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.messages import JSON, Usage
from rollout_fsm.trace import Trace

__all__ = ["Backoff", "RetryOn", "RetryPolicy", "attempt_record"]

RetryOn: TypeAlias = type[BaseException] | str
"""A type of error with all that are a kind of it, as a class or by its name, or the name of an ending."""

Backoff: TypeAlias = float | Callable[[int], float]
"""Seconds before the first retry, or a function from the number of a retry, 1 for the first, to its seconds."""

SPREAD = 0.5
"""Which part of a pause is left to chance, so that what failed together does not come back together."""
DOUBLINGS = 64
"""After so many a pause has met every bound that a clock can tell."""


def _whole(instance: object, attribute: "Attribute[int]", value: object) -> None:
    if type(value) is not int or value < 0:
        raise ValueError(f"{attribute.name} must be a whole number of at least 0, not {value!r}")


def _named(given: Iterable[RetryOn] | None) -> tuple[RetryOn, ...] | None:
    if isinstance(given, str | type):
        shown = repr(given) if isinstance(given, str) else given.__name__
        raise TypeError(f"what is tried again is given as a sequence: write [{shown}]")
    return None if given is None else tuple(given)


def _all_named(given: Iterable[RetryOn]) -> tuple[RetryOn, ...]:
    return _named(given) or ()


def _known(instance: object, attribute: "Attribute[Any]", value: tuple[object, ...] | None) -> None:
    for entry in value or ():
        if isinstance(entry, type) and issubclass(entry, BaseException):
            continue
        if not isinstance(entry, str) or not entry:
            raise TypeError(
                f"{attribute.name} names classes of errors, their names, or names of endings, not {entry!r}"
            )
        if (fault := _misnamed(entry)) is not None:
            raise ValueError(f"{attribute.name}: {fault}")
        if attribute.name == "include" and entry in _aborted():
            raise ValueError(f"include: {entry!r} is an ending of aborted rollouts, which are never tried again")


def _pause(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    if not callable(value):
        _seconds(value, attribute.name)


def _longest(instance: object, attribute: "Attribute[float]", value: object) -> None:
    _seconds(value, attribute.name)


@frozen(kw_only=True)
class RetryPolicy:
    """When a rollout is tried again.

    Without `include` those are tried again whose ending is `retryable`; with it, those whose primary error or whose
    ending it names, whatever the ending says. What `exclude` names is never tried again. Completed rollouts have no
    error, and no shipped ending of theirs is retryable: one is tried again only if `include` names its ending, or the
    embedder's own table of endings calls that retryable.

    Raises TypeError and ValueError for what makes no policy. A lower-case name that is no ending of the shipped table
    may be a stop's, a caller's or an embedder's own, and is taken unless it is nearly one of those: a slip.
    """

    max_retries: int = field(default=0, validator=_whole)
    """How many attempts may follow the first."""
    include: tuple[RetryOn, ...] | None = field(default=None, converter=_named, validator=_known)
    exclude: tuple[RetryOn, ...] = field(default=(), converter=_all_named, validator=_known)
    backoff: Backoff = field(default=1.0, validator=_pause)
    """Seconds before the first retry, doubled for each further one; half of a pause is drawn by the rollout's id, so
    that it is the same whenever it is asked for. A function's answer is taken as it is."""
    max_backoff: float = field(default=60.0, validator=_longest)
    """Seconds that no pause exceeds, but a function's."""

    def again(self, trace: Trace, *, attempt: int, borrowed: bool) -> float | None:
        """Seconds until the next attempt after this one, or None if there is none.

        `attempt`: the number of the attempt that the trace is of, 1 for the first. `borrowed`: whether its runtime is.
        Raises what a `backoff` function raises, and ValueError if that returns no number of seconds.
        """
        if attempt > self.max_retries or borrowed or not self.covers(trace):
            return None
        if callable(self.backoff):
            return _seconds(self.backoff(attempt), "backoff")
        pause = min(self.max_backoff, self.backoff * 2.0 ** min(attempt - 1, DOUBLINGS))
        drawn = random.Random(f"{trace.id}/{attempt}").random()
        return pause * (1.0 - SPREAD * drawn)

    def covers(self, trace: Trace) -> bool:
        """Whether a rollout that ended so is tried again, as long as attempts are left."""
        if trace.ending is None or _is_aborted(trace):
            return False
        if any(_names(entry, trace) for entry in self.exclude):
            return False
        if self.include is None:
            return trace.ending.retryable
        return any(_names(entry, trace) for entry in self.include)


def attempt_record(trace: Trace) -> dict[str, JSON]:
    """What a later attempt tells of this one, as JSON: `id`, `ending`, `errors`, `usage`, `extra_usage` (what judges
    spent), `start` and `end` in epoch seconds. What there is none of is left out, but for `errors`."""
    told = {
        "id": trace.id,
        "ending": trace.ending.name if trace.ending is not None else None,
        "errors": [_fields(error) for error in trace.errors if isinstance(error, ErrorRecord)],
        "usage": None if trace.usage is None else _fields(trace.usage),
        "extra_usage": [_fields(usage) for usage in trace.extra_usage if isinstance(usage, Usage)] or None,
        "start": trace.timing.start,
        "end": trace.transitions[-1].time if trace.transitions else None,
    }
    kept = {name: value for name, value in told.items() if value is not None}
    return cast(dict[str, JSON], plain_with_faults(kept)[0])  # a NaN, say, costs itself alone


def _fields(record: Any) -> dict[str, object]:
    return asdict(record, filter=lambda _, value: value is not None)


def _is_aborted(trace: Trace) -> bool:
    state = lifecycle().declaration.states.get(trace.transitions[-1].target) if trace.transitions else None
    return state is None or state.group == "cancellation"


def _names(entry: RetryOn, trace: Trace) -> bool:
    """Whether an entry names the primary cause of a trace: its ending, or its first error."""
    primary = trace.errors[0].type if trace.errors else None
    if isinstance(entry, str):
        ending = trace.ending.name if trace.ending is not None else None
        return entry == ending or (primary is not None and entry in kinds_of(primary))
    return primary is not None and any(kind.__name__ == primary for kind in subclasses(entry))


def _aborted() -> frozenset[str]:
    table = endings()
    states = table.declaration.states
    return frozenset(row.name for row in table.rows if states[row.end].group == "cancellation")


def _misnamed(name: str) -> str | None:
    """What is wrong with a name; None if it may be meant."""
    ours = [name for name in endings().names if not name.startswith("(")]
    errors = [kind.__name__ for kind in subclasses(RolloutError)]
    if name in ours or name in errors:
        return None
    if name[0].isupper():
        builtin = getattr(builtins, name, None)
        if isinstance(builtin, type) and issubclass(builtin, BaseException):
            return None
        return f"no type of errors {name!r}{suggestion(name, errors)} (or pass the class itself)"
    if get_close_matches(name, ours, n=1, cutoff=0.85) or not name.isidentifier():
        return f"no ending {name!r}{suggestion(name, ours)}"
    return None


def _seconds(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
        raise ValueError(f"{what} must be a finite number of seconds of at least 0, not {value!r}")
    return float(value)
