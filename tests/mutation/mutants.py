"""Every single edit of the shipped declaration: one row or one field of one state is other than it was.

A mutant is what a checkout with that edit would load. A flipped guard is the one edit that the state files cannot
say, since they know no negation: its row asks a guard of its own name, `FLIPPED` says what that means, and the proofs,
which look at both values of each guard alike, are shown the row as it was.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from attrs import evolve, field, frozen

from rollout_fsm.machine.declaration import Declaration, Row, State, declare
from rollout_fsm.machine.guards import GUARDS, Facts, Guard, GuardName
from rollout_fsm.machine.paths import by_trigger
from rollout_fsm.machine.vocabulary import (
    ACTIVITIES,
    BOUNDS,
    CONDITIONS,
    ERROR_USES,
    GROUPS,
    KINDS,
    SAME,
    SPANS,
    Condition,
    ErrorUse,
)

Edit = Literal[
    "a row is dropped",
    "a row is retargeted",
    "a guard is dropped",
    "a guard is flipped",
    "a guard is exchanged",
    "two rows are swapped",
    "a row is repeated",
    "a row has a rival",
    "a state is renamed in its file",
    "a state is renamed everywhere",
    "what a row sets",
    "what becomes of errors",
    "a state's kind",
    "a state's group",
    "a state's span",
    "a state's activity",
    "a state's bound",
    "the initial state",
]

EDITS: tuple[Edit, ...] = get_args(Edit)
"""The kinds of edits, in the order of the report."""

NOT = "not "


@frozen(kw_only=True)
class _Flipped(Guard):
    """A guard that holds when the one of its name does not."""

    def test(self, facts: Facts) -> bool:
        return not GUARDS[unflipped(self.name)].test(facts)


def flipped(guard: GuardName) -> GuardName:
    """The name under which a row asks for the opposite."""
    return cast(GuardName, f"{NOT}{guard}")


def unflipped(guard: GuardName) -> GuardName:
    """The guard's own name, flipped or not."""
    return cast(GuardName, guard.removeprefix(NOT))


FLIPPED: Mapping[GuardName, Guard] = MappingProxyType(
    {
        flipped(guard.name): _Flipped(name=flipped(guard.name), holds=guard.fails, fails=guard.holds)
        for guard in GUARDS.values()
    }
)
"""Every guard's opposite, by the name that a flipped row has for it."""


@frozen(kw_only=True)
class Mutant:
    """The declaration with one edit. `name` says which, in one line, and is the mutant's alone."""

    edit: Edit
    name: str
    declaration: Declaration = field(repr=False)
    """What would be executed."""
    state: str
    """The state, by its shipped name, in whose file the edit is."""
    row: Row | None = None
    """The shipped row that was edited, if it was a row."""

    @property
    def proven(self) -> Declaration:
        """What the proofs are shown: the executed declaration, a flipped guard as it was."""
        if self.edit != "a guard is flipped":
            return self.declaration
        return _with_rows(
            self.declaration, lambda row: [evolve(row, guard=None if row.guard is None else unflipped(row.guard))]
        )


def mutants(shipped: Declaration) -> tuple[Mutant, ...]:
    """All of them, kind by kind, each in the order of the table."""
    made = [mutant for make in (_of_rows, _of_order, _of_names, _of_states) for mutant in make(shipped)]
    return tuple(sorted(made, key=lambda mutant: EDITS.index(mutant.edit)))


def _with_rows(shipped: Declaration, edited: Callable[[Row], Iterable[Row]]) -> Declaration:
    """The declaration with each row replaced by what `edited` makes of it."""
    return declare(
        evolve(state, rows=tuple(new for row in state.rows for new in edited(row))) for state in shipped.states.values()
    )


def _of_rows(shipped: Declaration) -> Iterator[Mutant]:
    """One row dropped, repeated, or other in one of its fields."""
    targets = (*shipped.states, SAME)
    for row in shipped.rows:

        def mutant(edit: Edit, how: str, *instead: Row, row: Row = row) -> Mutant:
            declaration = _with_rows(shipped, lambda one: instead if one is row else (one,))
            return Mutant(edit=edit, name=f"{row}: {how}", declaration=declaration, state=row.source, row=row)

        yield mutant("a row is dropped", "dropped")
        for to in targets:
            if to != row.to:
                yield mutant("a row is retargeted", f"retargeted to {to}", evolve(row, to=to))
        if row.guard is not None:
            yield mutant("a guard is dropped", "guard dropped", evolve(row, guard=None))
            yield mutant("a guard is flipped", "guard flipped", evolve(row, guard=flipped(row.guard)))
            for guard in GUARDS:
                if guard != row.guard:
                    yield mutant("a guard is exchanged", f"guard exchanged for {guard}", evolve(row, guard=guard))
        yield mutant("a row is repeated", "repeated", row, row)
        rival = evolve(row, to=next(to for to in targets if to not in (row.to, row.target)))
        yield mutant("a row has a rival", f"the same to {rival.to} before it", rival, row)
        yield mutant("a row has a rival", f"the same to {rival.to} after it", row, rival)
        if row.sets is not None:
            for sets in _others(CONDITIONS, row.sets):
                how = "sets nothing" if sets is None else f"sets {sets} instead of {row.sets}"
                yield mutant("what a row sets", how, evolve(row, sets=cast(Condition | None, sets)))
        if row.error is not None:
            for error in _others(ERROR_USES, row.error):
                how = f"errors: {error or 'nothing'} instead of {row.error}"
                yield mutant("what becomes of errors", how, evolve(row, error=cast(ErrorUse | None, error)))


def _others(words: Iterable[str], word: str | None) -> Iterator[str | None]:
    """Every other value of a field that may be left out."""
    return (other for other in (*words, None) if other != word)


def _of_order(shipped: Declaration) -> Iterator[Mutant]:
    """Two rows of one state and trigger, one right after the other, the other way round."""
    for state in shipped.states.values():
        for rows in by_trigger(state).values():
            for first, second in pairwise(rows):
                turned = {id(first): second, id(second): first}
                yield Mutant(
                    edit="two rows are swapped",
                    name=f"{first}: swapped with [{second.guard or 'no guard'}] -> {second.to}",
                    declaration=_with_rows(shipped, lambda row, turned=turned: [turned.get(id(row), row)]),  # type: ignore[misc]
                    state=state.name,
                    row=first,
                )


def _of_names(shipped: Declaration) -> Iterator[Mutant]:
    """A state's file renamed, and a state renamed wherever it is named."""
    for state in shipped.states.values():
        other = f"{state.name}_renamed"

        def renamed(name: str, old: str = state.name, new: str = other) -> str:
            return new if name == old else name

        def renamed_rows(rows: Iterable[Row], *, to: Callable[[str], str]) -> tuple[Row, ...]:
            return tuple(evolve(row, source=renamed(row.source), to=to(row.to)) for row in rows)

        for edit, to in (
            ("a state is renamed in its file", str),
            ("a state is renamed everywhere", renamed),
        ):
            yield Mutant(
                edit=cast(Edit, edit),
                name=f"{state.name}: {edit.removeprefix('a state is ')}",
                declaration=declare(
                    evolve(one, name=renamed(one.name), rows=renamed_rows(one.rows, to=to))
                    for one in shipped.states.values()
                ),
                state=state.name,
            )


_FIELDS: Mapping[str, tuple[Edit, tuple[object, ...]]] = {
    "kind": ("a state's kind", KINDS),
    "group": ("a state's group", GROUPS),
    "span": ("a state's span", (*SPANS, None)),
    "activity": ("a state's activity", (*ACTIVITIES, None)),
    "bound": ("a state's bound", (*BOUNDS, None)),
    "initial": ("the initial state", (False, True)),
}
"""The fields of a state that mean something to the engine, with the edit that changes them and all their values."""


def _of_states(shipped: Declaration) -> Iterator[Mutant]:
    """One field of one state changed."""
    for state in shipped.states.values():
        for name, (edit, values) in _FIELDS.items():
            was = getattr(state, name)
            for value in values:
                if value != was:
                    yield Mutant(
                        edit=edit,
                        name=f"{state.name}: {name} is {_said(value)} instead of {_said(was)}",
                        declaration=_with_state(shipped, state, **{name: value}),
                        state=state.name,
                    )


def _with_state(shipped: Declaration, state: State, **changes: Any) -> Declaration:
    return declare(evolve(one, **changes) if one is state else one for one in shipped.states.values())


def _said(value: object) -> str:
    return "nothing" if value is None else str(value).lower()
