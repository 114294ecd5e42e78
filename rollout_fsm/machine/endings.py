"""How rollouts end, as data: the rows of `states/endings.toml`, asked and changed. Reading them is for endings_file.py.

An ending is looked up with names only: the final state, the transition that decided, the stop condition, the type of
the primary error. Which of these a finished trace has is told by whoever knows traces. The first row that fits is
taken. What was not graded never counts, and what was aborted is never retryable, whatever a row says: no change of the
table can turn a failure into a zero.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypedDict, cast, get_args

from attrs import Attribute, evolve, field, frozen
from attrs.validators import optional

from rollout_fsm.machine.declaration import Declaration
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.machine.vocabulary import GIVEN, TRIGGERS

Cause = Literal["agent", "harness", "provider", "sandbox", "toolset", "task", "interception", "caller"]
DeclaredCause = Literal[
    "agent", "harness", "provider", "sandbox", "toolset", "task", "interception", "caller", "(error)",
]  # fmt: skip
Status = Literal["transient", "permanent"]

CAUSES: tuple[Cause, ...] = get_args(Cause)
"""Who can have caused an ending."""

BY_ERROR: DeclaredCause = "(error)"
"""As a row's `cause`: whose boundary the primary error crossed."""

ENGINE_STOPS = (
    "agent_completed", "user_closed", "max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens",
    "context_length", "agent_timeout", "no_progress", "drained",
)  # fmt: skip
"""The engine's own stop conditions of a rollout that completes."""

A_STOP, ANOTHER, NONE = "(stop)", "(other)", "(none)"
"""As a row's condition: any @stop of the task; any that a caller's `stop` said; no stop condition at all. "(other)" as
a row's error: a type that is no boundary's."""

BOUNDARIES: Mapping[str, Cause] = MappingProxyType(
    {
        "ProviderError": "provider",
        "SandboxError": "sandbox",
        "ToolsetError": "toolset",
        "InterceptionError": "interception",
        "HarnessError": "harness",
        "TaskError": "task",
    }
)
"""The types under which failures are recorded (L40), and who is behind each."""

OVERLONG = "OverlongPromptError"
"""A kind of `ProviderError` that no repetition helps."""


@frozen(kw_only=True)
class Ending:
    """How a finished rollout ended."""

    name: str
    """Why: a stop condition, or the kind of failure."""
    cause: Cause
    """Who brought it about."""
    graded: bool
    """Whether it was finalized and scored to the end."""
    counts: bool
    """Whether its reward is a verdict on the agent, to train on or to report; False without a reward."""
    retryable: bool
    """Whether another attempt is worth making, as far as the ending tells."""


class EndingChange(TypedDict, total=False):
    """What an embedder may change of the endings of one name."""

    cause: Cause
    counts: bool
    retryable: bool


@frozen(kw_only=True)
class End:
    """What an ending is looked up with; each of `conditions` and `errors` from the particular to the general."""

    state: str
    source: str
    trigger: str
    conditions: tuple[str, ...]
    """The stop condition's name, then "(stop)" or "(other)" if it is none of the engine's; or "(none)"."""
    errors: tuple[str, ...] = ()
    """The primary error's type, then the types that it is a kind of, or "(other)"; nothing without an error."""
    status: Status | None = None
    """Of a provider's error."""


def _words(given: Iterable[str] | None) -> tuple[str, ...] | None:
    if isinstance(given, str):
        raise TypeError(f"what a row asks for is a sequence of names, not {given!r}; write [{given!r}]")
    return None if given is None else tuple(given)


def _text(instance: object, attribute: "Attribute[str]", value: object) -> None:
    if not isinstance(value, str) or not value:
        raise TypeError(f"the {attribute.name} of an ending is text, not {value!r}")


def _flag(instance: object, attribute: "Attribute[bool]", value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{attribute.name} of an ending is True or False, not {value!r}")


def _one_of(*words: str) -> "Callable[[object, Attribute[Any], object], None]":
    def check(instance: object, attribute: "Attribute[Any]", value: object) -> None:
        if value not in words:
            raise ValueError(f"no {attribute.name} {value!r}{suggestion(str(value), words)}")

    return check


@frozen(kw_only=True)
class EndingRow:
    """One row of the table. What it looks at must all fit; None fits everything."""

    name: str = field(validator=_text)
    """The ending's; "(given)": the stop condition."""
    end: str = field(validator=_text)
    conditions: tuple[str, ...] | None = field(default=None, converter=_words)
    sources: tuple[str, ...] | None = field(default=None, converter=_words)
    triggers: tuple[str, ...] | None = field(default=None, converter=_words)
    errors: tuple[str, ...] | None = field(default=None, converter=_words)
    status: Status | None = field(default=None, validator=optional(_one_of(*get_args(Status))))
    cause: DeclaredCause = field(validator=_one_of(*CAUSES, BY_ERROR))
    counts: bool = field(validator=_flag)
    retryable: bool = field(validator=_flag)
    reason: str = field(validator=_text)

    def fits(self, end: End) -> bool:
        """Whether a rollout that ended so may have this ending."""
        return (
            self.end == end.state
            and _among(self.conditions, end.conditions)
            and _among(self.sources, (end.source,))
            and _among(self.triggers, (end.trigger,))
            and _among(self.errors, end.errors)
            and self.status in (None, end.status)
        )

    def __str__(self) -> str:
        asked = ("conditions", "sources", "triggers", "errors")
        about = [f"{name} {'/'.join(words)}" for name in asked if (words := getattr(self, name)) is not None]
        about += [f"status {self.status}"] if self.status else []
        return f"{self.name} ({', '.join([self.end, *about])})"


def _among(wanted: tuple[str, ...] | None, given: tuple[str, ...]) -> bool:
    return wanted is None or any(word in wanted for word in given)


@frozen(kw_only=True, slots=False)  # with slots, cached properties make the reading of every field slow
class Endings:
    """The table of endings of one declared machine. `load_endings` reads it; embedders change it."""

    rows: tuple[EndingRow, ...] = field(repr=lambda rows: f"<{len(rows)} rows>")
    declaration: Declaration = field(repr=False)

    @cached_property
    def _by_end(self) -> Mapping[str, Sequence[EndingRow]]:
        """The rows, by the state that they ask for."""
        ends = dict.fromkeys(row.end for row in self.rows)
        return {end: [row for row in self.rows if row.end == end] for end in ends}

    @property
    def names(self) -> tuple[str, ...]:
        """By which names rows are changed: those of the endings, and "(stop)" and "(other)" for those that a stop
        condition names."""
        return tuple(dict.fromkeys(key for row in self.rows for key in _keys(row)))

    def row(self, end: End) -> EndingRow:
        """The row that is taken. Raises LookupError where none fits, which for the shipped table is proven away."""
        for row in self._by_end.get(end.state, ()):
            if row.fits(end):
                return row
        raise LookupError(f"no row of the endings fits {end}")

    def of(self, end: End, *, rewarded: bool) -> Ending:
        """The ending of a rollout that ended so, and whose trace has a reward or has none."""
        row, graded = self.row(end), is_graded(self.declaration, end.state)
        return Ending(
            name=end.conditions[0] if row.name == GIVEN else row.name,
            cause=_whose(end) if row.cause == BY_ERROR else cast(Cause, row.cause),
            graded=graded,
            counts=row.counts and graded and rewarded,
            retryable=row.retryable and not _is_abort(self.declaration, end.state),
        )

    def with_overrides(self, changes: Mapping[str, EndingChange]) -> "Endings":
        """This table with other causes, other counts, other verdicts on retrying, for all rows of a name.

        The names are those of `names`. Raises ValueError with every fault: unknown names, fields and values, and what
        no table can say: that something counts which is never graded, that an aborted rollout is retryable.
        """
        if not isinstance(changes, Mapping):
            raise ValueError(f"endings are changed by names and, for each, the fields that change, not by {changes!r}")
        faults = [fault for name, change in changes.items() for fault in self._faults(name, change)]
        if faults:
            raise ValueError(f"the endings cannot be changed so: {'; '.join(faults)}")
        return evolve(self, rows=tuple(_changed(row, changes) for row in self.rows))

    def with_rows(self, *rows: EndingRow) -> "Endings":
        """This table with rows in front: for one @stop, one condition of the caller's, one error type of one's own.

        Raises ValueError with every fault: states and triggers that do not exist, and what no table can say.
        """
        faults = [f"{row.name}.{fault}" for row in rows for fault in row_faults(row, self.declaration)]
        if faults:
            raise ValueError(f"the endings cannot be changed so: {'; '.join(faults)}")
        return evolve(self, rows=(*rows, *self.rows))

    def _faults(self, name: str, change: object) -> Iterator[str]:
        rows = [row for row in self.rows if name in _keys(row)]
        if not rows:
            yield f"no ending {name!r}{suggestion(str(name), self.names)}"
        if not isinstance(change, Mapping):
            yield f"{name}: expected the fields that change, not {change!r}"
            return
        for key, value in change.items():
            if key not in _CHANGEABLE:
                yield f"{name}.{key}: unknown field{suggestion(str(key), _CHANGEABLE)}"
            elif key == "cause":
                if value not in CAUSES:
                    yield f"{name}.cause: no cause {value!r}{suggestion(str(value), CAUSES)}"
            elif not isinstance(value, bool):
                yield f"{name}.{key}: expected True or False, not {value!r}"
            elif value and rows:
                # a name that several rows bear is changed where it can be: agent_timeout is graded or is not
                wanted: dict[str, Any] = {key: value}
                said = [[*row_faults(evolve(row, **wanted), self.declaration)] for row in rows]
                yield from (f"{name}.{fault}" for fault in (said[0] if all(said) else ()))


_CHANGEABLE = tuple(EndingChange.__annotations__)


def is_graded(declaration: Declaration, state: str) -> bool:
    """Whether a rollout that ends in this state was finalized and scored to the end (P3)."""
    return declaration.states[state].group == "closing"


def row_faults(row: EndingRow, declaration: Declaration) -> Iterator[str]:
    """What is wrong with a row, each as `column: what`."""
    states = declaration.states
    finals = [name for name, state in states.items() if state.kind == "final"]
    if row.end not in finals:
        yield f"end: no final state {row.end!r}{suggestion(row.end, finals)}"
    for column, words, known in (("sources", row.sources, states), ("triggers", row.triggers, TRIGGERS)):
        for word in words or ():
            if word not in known:
                yield f"{column}: no {column.removesuffix('s')} {word!r}{suggestion(word, tuple(known))}"
    if row.counts and row.end in finals and not is_graded(declaration, row.end):
        yield f"counts: a rollout that is {row.end} was not graded, so nothing of it can count"
    if row.retryable and row.end in finals and _is_abort(declaration, row.end):
        yield f"retryable: a rollout that is {row.end} is never tried again"
    if row.name == GIVEN and not row.conditions:
        yield f"name: {GIVEN!r} is the name of the stop condition, and the row asks for none"


def _is_abort(declaration: Declaration, state: str) -> bool:
    return declaration.states[state].group == "cancellation"


def _whose(end: End) -> Cause:
    return next((BOUNDARIES[kind] for kind in end.errors if kind in BOUNDARIES), "caller")


def _keys(row: EndingRow) -> tuple[str, ...]:
    return row.conditions or () if row.name == GIVEN else (row.name,)


def _changed(row: EndingRow, changes: Mapping[str, EndingChange]) -> EndingRow:
    for key in _keys(row):
        row = evolve(row, **changes.get(key, {}))
    return row
