"""Which ending a finished trace has: what the table of endings is asked with, read off the trace. A pure function.

Types of errors stand on a trace as names. Which boundary a type of the embedder's own belongs to is told by the classes
that this process knows; one that it does not know is nobody's, and the ending of its trace says what it said when it
was written.
"""

from collections.abc import Collection, Mapping

from rollout_fsm.errors import ErrorRecord, OverlongPromptError, ProviderError, RolloutError, subclasses
from rollout_fsm.machine.declaration import Declaration
from rollout_fsm.machine.endings import A_STOP, ANOTHER, ENGINE_STOPS, NONE, End, Ending, EndingChange, Endings, Status
from rollout_fsm.machine.endings_file import endings as shipped_endings
from rollout_fsm.trace import Trace, TransitionRecord

TRANSIENT = frozenset({408, 409, 425, 429})
"""The HTTP statuses of the kind 4xx that another try may do without."""


def settle_endings(given: Endings | Mapping[str, EndingChange] | None) -> Endings:
    """The table that an embedder asks for: its own, or the shipped one with changes. Raises as `with_overrides`
    does."""
    if isinstance(given, Endings):
        return given
    return shipped_endings() if given is None else shipped_endings().with_overrides(given)


def ending_of(trace: Trace, endings: Endings | None = None, *, stops: Collection[str] = ()) -> Ending:
    """The ending of a finished trace, by the shipped table or another one.

    `stops` are the names of the task's own `@stop`s; any other stop condition that is none of the engine's came from
    the caller. Raises ValueError for a trace whose rollout is not over, LookupError for states or a way to end that the
    table does not know.
    """
    table = shipped_endings() if endings is None else endings
    return table.of(end_of(trace, table.declaration, stops), rewarded=trace.reward is not None)


def end_of(trace: Trace, declaration: Declaration, stops: Collection[str]) -> End:
    """How a finished trace ended, as the table is asked about it. Raises as `ending_of` does."""
    decided = _deciding(trace, declaration)
    primary = trace.errors[0] if trace.errors else None
    return End(
        state=trace.transitions[-1].target,
        source=decided.source,
        trigger=decided.trigger,
        conditions=_conditions(trace.stop_condition, stops),
        errors=() if primary is None else _errors(primary),
        status=None if primary is None else _status(primary),
    )


def kinds_of(name: str) -> tuple[str, ...]:
    """The type of this name and those that it is a kind of, up to `RolloutError`; alone if no such class is known."""
    found = dict.fromkeys((name,))
    for known in subclasses(RolloutError):
        if known.__name__ == name:
            found.update(dict.fromkeys(kind.__name__ for kind in known.__mro__ if issubclass(kind, RolloutError)))
    return tuple(found)


def _deciding(trace: Trace, declaration: Declaration) -> TransitionRecord:
    """The transition that entered the group of states in which the trace ends."""
    final = declaration.states[trace.transitions[-1].target] if trace.transitions else None
    if final is None or final.kind != "final":
        raise ValueError(f"the rollout {trace.id} is not over, so it has no ending yet: {trace!r}")
    for taken in reversed(trace.transitions):
        if declaration.states[taken.source].group != final.group:
            return taken
    return trace.transitions[0]


def _conditions(condition: str | None, stops: Collection[str]) -> tuple[str, ...]:
    if not isinstance(condition, str) or not condition:
        return (NONE,)
    if condition in stops:
        return condition, A_STOP
    return (condition,) if condition in ENGINE_STOPS else (condition, ANOTHER)


def _errors(primary: ErrorRecord) -> tuple[str, ...]:
    kinds = kinds_of(primary.type)
    return kinds if RolloutError.__name__ in kinds else (*kinds, ANOTHER)


def _status(primary: ErrorRecord) -> Status | None:
    kinds = kinds_of(primary.type)
    if ProviderError.__name__ not in kinds:
        return None
    if OverlongPromptError.__name__ in kinds:
        return "permanent"
    code = primary.status_code
    return "permanent" if code is not None and 400 <= code < 500 and code not in TRANSIENT else "transient"
