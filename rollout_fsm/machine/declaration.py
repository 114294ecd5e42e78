"""The declared machine: seventeen state files as records, and nothing about what runs.

`load_machine` reads a folder of `states/*.toml` and refuses all its faults at once. What it returns is well-formed:
every name in it exists. Whether it is also *right* (P1-P10) is for check.py; executing it is for lifecycle.py. States
are in an order that the table gives, not their file names, so that diagrams and tables read from beginning to end.
"""

import tomllib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NewType

from attrs import field, frozen
from cattrs import Converter

from rollout_fsm.machine.exact import allow, array_of, make_converter, structure, suggestion, table_of
from rollout_fsm.machine.guards import GUARDS, GuardName
from rollout_fsm.machine.vocabulary import (
    ACTIVITIES,
    CONDITIONS,
    ERROR_USES,
    GROUPS,
    KINDS,
    SAME,
    SPANS,
    TRIGGERS,
    Activity,
    Bound,
    Condition,
    ErrorUse,
    Group,
    Kind,
    Span,
    Trigger,
)

Target = NewType("Target", str)
"""As a row's `to`: the name of a state, or `(same)`."""


ENDINGS_FILE = "endings.toml"
"""The one file beside the states that is none: the table of endings."""


class DeclarationError(Exception):
    """The state files are wrong. Every fault found is on a line of its own, with its file and its path."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


@frozen(kw_only=True, slots=False)  # with slots, cached properties make the reading of every field slow
class Row:
    """One transition. Of the rows with one source and trigger, the first whose guard holds is taken.

    `sets` is the stop condition that the row sets if none is set, "(given)" the one that came with the trigger; `error`
    is what becomes of the errors that came with it (`ERROR_USES`); `reason` explains an odd arc, in the table of
    transitions and on a trace.
    """

    source: str
    trigger: Trigger
    guard: GuardName | None = None
    to: str
    sets: Condition | None = None
    error: ErrorUse | None = None
    reason: str | None = None

    @cached_property
    def same(self) -> bool:
        """Whether the row is an answer instead of a move (L83)."""
        return self.to == SAME

    @cached_property
    def target(self) -> str:
        """The state after this row: `to`, or the source of a `(same)` row."""
        return self.source if self.to == SAME else self.to

    def __str__(self) -> str:
        guard = f" [{self.guard}]" if self.guard else ""
        return f"{self.source} | {self.trigger}{guard} -> {self.to}"


@frozen(kw_only=True)
class State:
    """One state: what it means, what it is, and how it may be left.

    `span` is the timing span it belongs to (L80), `activity` what runs in it, `bound` the timeout that bounds it as a
    whole (L2).
    """

    name: str
    meaning: str
    kind: Kind
    group: Group
    initial: bool = False
    span: Span | None = None
    activity: Activity | None = None
    bound: Bound | None = None
    rows: tuple[Row, ...] = ()


@frozen(kw_only=True, slots=False)  # with slots, cached properties make the reading of every field slow
class Declaration:
    """The whole machine. `states` is in lifecycle order when made by `declare` or `load_machine`."""

    states: Mapping[str, State] = field(repr=lambda states: f"<{len(states)} states>")

    @cached_property
    def initial(self) -> State:
        """The state in which every rollout is born. Raises ValueError unless exactly one state is initial."""
        (state,) = (state for state in self.states.values() if state.initial)
        return state

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every row of every state, in order."""
        return tuple(chain.from_iterable(state.rows for state in self.states.values()))

    def state(self, name: str) -> State:
        """The state of this name. Raises KeyError naming the nearest one."""
        if name not in self.states:
            raise KeyError(f"no state {name!r}{suggestion(name, self.states)}")
        return self.states[name]


def declare(states: Iterable[State]) -> Declaration:
    """These states as a declaration, in lifecycle order: group by group, then by distance from the initial state.

    The final state of a group comes last in it. Ties are broken by the order of rows; states that cannot be reached
    come after those that can, by name. So the order is a function of the table alone.
    """
    named = {state.name: state for state in states}
    rank = {name: index for index, name in enumerate(_walk(named))}

    def place(state: State) -> tuple[int, bool, int, str]:
        return GROUPS.index(state.group), state.kind == "final", rank.get(state.name, len(named)), state.name

    ordered = sorted(named.values(), key=place)
    return Declaration(states=MappingProxyType({state.name: state for state in ordered}))


def _walk(states: Mapping[str, State]) -> Iterator[str]:
    waiting = deque(sorted(state.name for state in states.values() if state.initial))
    seen = set(waiting)
    while waiting:
        name = waiting.popleft()
        yield name
        for row in states[name].rows:
            if row.target in states and row.target not in seen:
                seen.add(row.target)
                waiting.append(row.target)


@frozen(kw_only=True)
class _RowInFile:
    trigger: Trigger
    guard: GuardName | None = None
    to: Target
    sets: Condition | None = None
    error: ErrorUse | None = None
    reason: str | None = None


@frozen(kw_only=True)
class _StateFile:
    meaning: str
    kind: Kind
    group: Group
    initial: bool = False
    span: Span | None = None
    activity: Activity | None = None
    bound: Bound | None = None
    on: tuple[_RowInFile, ...] = ()

    def state(self, name: str) -> State:
        rows = tuple(
            Row(
                source=name,
                trigger=row.trigger,
                guard=row.guard,
                to=row.to,
                sets=row.sets,
                error=row.error,
                reason=row.reason,
            )
            for row in self.on
        )
        return State(
            name=name,
            meaning=self.meaning,
            kind=self.kind,
            group=self.group,
            initial=self.initial,
            span=self.span,
            activity=self.activity,
            bound=self.bound,
            rows=rows,
        )


def states_dir() -> Traversable:
    """The shipped state files: inside an installed package, beside it in a checkout."""
    inside = files("rollout_fsm") / "states"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[2] / "states"


def load_machine(folder: Traversable | Path | None = None) -> Declaration:
    """Read every `*.toml` of the folder but `endings.toml`, one state each, named after its file; by default the
    shipped ones.

    Raises DeclarationError with all faults of all files at once.
    """
    folder = states_dir() if folder is None else folder
    if not folder.is_dir():
        raise DeclarationError([f"{folder}: no such folder"])
    found = (path for path in folder.iterdir() if path.name.endswith(".toml") and path.name != ENDINGS_FILE)
    paths = sorted(found, key=lambda path: path.name)
    if not paths:
        raise DeclarationError([f"{folder}: no state files (*.toml)"])
    converter = _converter(names=[path.name.removesuffix(".toml") for path in paths])
    states: list[State] = []
    faults: list[str] = []
    for path in paths:
        name = path.name.removesuffix(".toml")
        read = _read(path, converter)
        if isinstance(read, _StateFile):
            states.append(read.state(name))
        else:
            faults += [f"{path.name}: {fault}" for fault in read]
    faults += _initial_faults(folder, states, complete=not faults)
    if faults:
        raise DeclarationError(faults)
    return declare(states)


@cache
def shipped() -> Declaration:
    """The shipped machine, read once for the process, at the first use."""
    return load_machine()


def _converter(names: Iterable[str]) -> Converter:
    """For the files of a folder whose states have these names."""
    converter = make_converter()
    for type_, noun, words in (
        (Kind, "kind", KINDS),
        (Group, "group", GROUPS),
        (Span, "span or bound", SPANS),  # and Bound: the two literal types are equal, so they share a hook
        (Activity, "activity", ACTIVITIES),
        (Trigger, "trigger", TRIGGERS),
        (GuardName, "guard", GUARDS),
        (Condition, "stop condition", CONDITIONS),
        (ErrorUse, "use of errors", ERROR_USES),
        (Target, "state", [*names, SAME]),
    ):
        allow(converter, type_, noun, words)
    table_of(converter, _RowInFile)
    array_of(converter, _RowInFile)
    return converter


def _read(path: Traversable, converter: Converter) -> _StateFile | list[str]:
    name = path.name.removesuffix(".toml")
    misnamed = []
    if not (name.isidentifier() and name.islower()):
        misnamed.append(f"a state's name is a lower-case identifier, not {name!r}")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return [*misnamed, str(error)]
    built = structure(converter, data, _StateFile)
    if isinstance(built, list):
        return misnamed + built
    return misnamed + _repeated(built) or built


def _repeated(state: _StateFile) -> list[str]:
    first: dict[tuple[str, str | None], int] = {}
    faults = []
    for index, row in enumerate(state.on):
        earlier = first.setdefault((row.trigger, row.guard), index)
        if earlier != index:
            guard = f"guard {row.guard!r}" if row.guard else "no guard"
            same = f"on[{earlier}] has the same trigger and guard ({row.trigger!r}, {guard})"
            faults.append(f"on[{index}]: could never be taken: {same}")
    return faults


def _initial_faults(folder: Traversable, states: list[State], *, complete: bool) -> list[str]:
    initial = [state.name for state in states if state.initial]
    if len(initial) > 1:
        where = " and ".join(f"{name}.toml" for name in initial)
        return [f"{where}: initial: exactly one state is the initial one"]
    if not initial and complete:
        return [f"{folder.name}: no state is the initial one; one file must say `initial = true`"]
    return []
