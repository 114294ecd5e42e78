"""Paths through the declared table: which row a valuation of the guards takes, and the shortest way to a situation.

Pure functions over records, for the proofs and for conformance; nothing here fires anything.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeVar

from attrs import frozen

from rollout_fsm.machine.declaration import Declaration, Row, State
from rollout_fsm.machine.vocabulary import ACTIVITIES, TRIGGERS

N = TypeVar("N", bound=Hashable)


@frozen(kw_only=True)
class Valuation:
    """Which guards hold, of those that were asked about."""

    holds: frozenset[str]
    asked: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(name if name in self.holds else f"not {name}" for name in self.asked) or "whatever holds"


def by_trigger(state: State) -> Mapping[str, tuple[Row, ...]]:
    """The state's rows, in order, under their triggers."""
    rows: dict[str, list[Row]] = {}
    for row in state.rows:
        rows.setdefault(row.trigger, []).append(row)
    return {trigger: tuple(listed) for trigger, listed in rows.items()}


def can_be_fired(state: State, trigger: str) -> bool:
    """Whether anybody fires this trigger there: the activity that runs, or, where none does, the caller."""
    if state.activity is None:
        return trigger not in {name for name, firer in TRIGGERS.items() if firer == "activity"}
    if trigger == "cancel":
        return state.kind != "shielded"
    return trigger in ACTIVITIES.get(state.activity, ())


def valuations(rows: Iterable[Row]) -> Iterator[Valuation]:
    """Every valuation of the guards that these rows have."""
    asked = tuple(dict.fromkeys(row.guard for row in rows if row.guard is not None))
    for bits in product((False, True), repeat=len(asked)):
        holds = frozenset(name for name, bit in zip(asked, bits, strict=True) if bit)
        yield Valuation(holds=holds, asked=asked)


def taken(rows: Iterable[Row], valuation: Valuation) -> Row | None:
    """The first row whose guard holds, None where all refuse."""
    return next((row for row in rows if row.guard is None or row.guard in valuation.holds), None)


def live(rows: Sequence[Row]) -> frozenset[int]:
    """Which rows of one state and trigger some valuation takes, as indices; the others are dead."""
    found = (taken(rows, valuation) for valuation in valuations(rows))
    return frozenset(next(index for index, row in enumerate(rows) if row is take) for take in found if take is not None)


def moves(declaration: Declaration) -> Mapping[str, tuple[Row, ...]]:
    """For each state the rows by which it can really be left: live, not `(same)`, and to a state that exists."""
    found: dict[str, tuple[Row, ...]] = {}
    for name, state in declaration.states.items():
        rows = (listed[index] for listed in by_trigger(state).values() for index in sorted(live(listed)))
        found[name] = tuple(row for row in rows if not row.same and row.to in declaration.states)
    return found


def shortest(start: N, step: Callable[[N], Iterable[tuple[Row, N]]]) -> Mapping[N, tuple[Row, ...]]:
    """Every situation that can be reached from `start`, with the shortest path to it; the earlier rows win ties."""
    paths: dict[N, tuple[Row, ...]] = {start: ()}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        for row, there in step(here):
            if there not in paths:
                paths[there] = (*paths[here], row)
                waiting.append(there)
    return paths


def in_words(path: Sequence[Row]) -> str:
    """A path as `created -open-> booting -booted-> setup`; empty for an empty one."""
    if not path:
        return ""
    return path[0].source + "".join(
        f" -{row.trigger}{f'[{row.guard}]' if row.guard else ''}-> {row.target}" for row in path
    )
