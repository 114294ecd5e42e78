"""The proofs: what holds for the declared table itself (P1 to P10, D1, D2), by exhaustion.

Nothing is sampled and nothing is fired: every state, every row and every valuation of the guards is looked at. A fault
names the property, says what breaks it, and carries the shortest path that shows it, so that it can be followed on the
diagram. A wrong arrow that breaks no property is for scenarios and for the review of the diagram, not for this file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from rollout_fsm.machine.declaration import Declaration, Row
from rollout_fsm.machine.fault import Fault
from rollout_fsm.machine.guards import GUARDS
from rollout_fsm.machine.paths import (
    Valuation,
    by_trigger,
    can_be_fired,
    live,
    moves,
    shortest,
    taken,
    valuations,
)
from rollout_fsm.machine.vocabulary import ACTIVITIES, ONGOING, TRIGGERS

STRUCTURE = {
    "P1": "every state can be reached, and every state that is not final leads to a final one",
    "P2": "nothing that leaves failing, discarding or aborting is ever scored",
    "P3": "every way to completed passes closing, finalizing, scoring, releasing, in this order",
    "P4": "every way from booting or later to an end passes exactly one release",
    "P5": "every state that is neither final nor shielded accepts cancel",
    "P6": "for every valuation of the guards exactly one row is taken, and no row is dead",
    "P7": "active and shielded states have one activity, others none; every name exists and is used",
    "P8": "the agent clock runs in stepping and stopping, and nowhere else",
    "P9": "every outcome that an activity can have has a row wherever it can be running",
    "P10": "every resting and every final state takes close",
    "D1": "every active state has a bound, and no other state has one",
    "D2": "a row into a failure sets error, a cancellation sets cancelled, and no other row sets either",
}
"""The properties that are proven here, and what they say."""

DEAD_ENDS = ("failing", "discarding", "aborting")
"""Where a run is after a failure or a cancellation; it is never scored from there (P2)."""

SCORED = ("closing", "finalizing", "scoring", "releasing")
"""What lies between the end of an exchange and `completed`, in this order (P3)."""

RELEASES = ("releasing", "discarding", "aborting")
"""Where what was started is released (P4)."""

CLOCKED = ("stepping", "stopping")
"""Where the agent clock runs (P8)."""


@frozen(kw_only=True)
class _Subject:
    """A declaration, with the ways through it that several proofs need."""

    declaration: Declaration
    start: str
    moves: Mapping[str, tuple[Row, ...]]
    ways: Mapping[str, tuple[Row, ...]]

    def fault(self, name: str, property_: str, message: str, *further: Row) -> Fault:
        return Fault(
            property=property_,
            message=f"{name}: {message}",
            states=(name,),
            path=(*self.ways.get(name, ()), *further),
        )


def check_machine(declaration: Declaration) -> list[Fault]:
    """Every fault of the declaration, property by property; none means that all of `STRUCTURE` holds."""
    initial = [state.name for state in declaration.states.values() if state.initial]
    if len(initial) != 1:
        message = f"exactly one state is the initial one, not {', '.join(initial) or 'none'}"
        return [Fault(property="P1", message=message, states=tuple(initial))]
    (start,) = initial
    leave = moves(declaration)
    subject = _Subject(declaration=declaration, start=start, moves=leave, ways=_ways(start, leave))
    return [fault for proof in _PROOFS for fault in proof(subject)]


def _ways(start: str, leave: Mapping[str, tuple[Row, ...]]) -> Mapping[str, tuple[Row, ...]]:
    return shortest(start, lambda name: ((row, row.to) for row in leave[name]))


def _undeclared(subject: _Subject, property_: str, names: Iterable[str]) -> Iterator[Fault]:
    """A property that speaks of a state which is not there proves nothing."""
    for name in names:
        if name not in subject.declaration.states:
            yield Fault(property=property_, message=f"speaks of the state {name!r}, which is not declared")


def _reachable_and_mortal(subject: _Subject) -> Iterator[Fault]:
    for name, state in subject.declaration.states.items():
        if name not in subject.ways:
            yield subject.fault(name, "P1", "cannot be reached from the initial state")
        onward = _ways(name, subject.moves)
        if state.kind == "final":
            for row in subject.moves[name]:
                yield subject.fault(name, "P1", f"is final, and yet left by {row.trigger!r}", row)
        elif not any(subject.declaration.states[end].kind == "final" for end in onward):
            yield subject.fault(name, "P1", "no final state can be reached from it")


def _never_scored_after_a_failure(subject: _Subject) -> Iterator[Fault]:
    yield from _undeclared(subject, "P2", DEAD_ENDS)
    for name in DEAD_ENDS:
        onward = _ways(name, subject.moves) if name in subject.moves else {}
        for forbidden in (*SCORED, "completed"):
            if forbidden in onward:
                yield subject.fault(name, "P2", f"leads to {forbidden}, where a run is scored", *onward[forbidden])


def _completed_in_order(subject: _Subject) -> Iterator[Fault]:
    yield from _undeclared(subject, "P3", (*SCORED, "completed"))

    def step(here: tuple[str, int, bool]) -> Iterator[tuple[Row, tuple[str, int, bool]]]:
        name, passed, disordered = here
        for row in subject.moves[name]:
            if row.to not in SCORED:
                yield row, (row.to, passed, disordered)
            elif SCORED.index(row.to) == passed:
                yield row, (row.to, passed + 1, disordered)
            else:
                yield row, (row.to, passed, True)

    for (name, passed, disordered), path in shortest((subject.start, 0, False), step).items():
        if name == "completed" and (disordered or passed < len(SCORED)):
            how = "out of order" if disordered else f"without {SCORED[passed]}"
            message = f"completed is reached {how}; the order is {', '.join(SCORED)}"
            yield Fault(property="P3", message=message, states=("completed",), path=path)


def _released_once(subject: _Subject) -> Iterator[Fault]:
    states = subject.declaration.states

    def step(here: tuple[str, bool, int]) -> Iterator[tuple[Row, tuple[str, bool, int]]]:
        name, began, releases = here
        for row in subject.moves[name]:
            begins = began or states[row.to].kind != "final"
            yield row, (row.to, begins, min(2, releases + (row.to in RELEASES)))

    for (name, began, releases), path in shortest((subject.start, False, 0), step).items():
        if states[name].kind == "final" and began and releases != 1:
            how = "without a release" if releases == 0 else "after more than one release"
            message = f"{name} is reached {how}; exactly one of {', '.join(RELEASES)} lies on every way"
            yield Fault(property="P4", message=message, states=(name,), path=path)


def _cancellable(subject: _Subject) -> Iterator[Fault]:
    for name, state in subject.declaration.states.items():
        if state.kind in ("resting", "active"):
            rows = by_trigger(state).get("cancel", ())
            if not rows:
                yield subject.fault(name, "P5", "does not accept 'cancel'")
            elif any(row.same for row in rows):
                yield subject.fault(name, "P5", "answers 'cancel' without being left")


def _deterministic_and_total(subject: _Subject) -> Iterator[Fault]:
    for name, state in subject.declaration.states.items():
        for trigger, rows in by_trigger(state).items():
            for valuation in _gaps(rows):
                yield subject.fault(name, "P6", f"{trigger!r} enables no row when {valuation}")
            alive = live(rows)
            for index, row in enumerate(rows):
                if index not in alive:
                    yield subject.fault(name, "P6", f"dead row: no valuation takes {row}")
            if not can_be_fired(state, trigger):
                yield subject.fault(name, "P6", f"dead row: nobody fires {trigger!r} in a state that is {state.kind}")


def _gaps(rows: Sequence[Row]) -> Iterator[Valuation]:
    return (valuation for valuation in valuations(rows) if taken(rows, valuation) is None)


def _named(subject: _Subject) -> Iterator[Fault]:
    states = subject.declaration.states
    for name, state in states.items():
        if state.kind in ("active", "shielded") and state.activity is None:
            yield subject.fault(name, "P7", f"is {state.kind} and has no activity")
        if state.kind in ("resting", "final") and state.activity is not None:
            yield subject.fault(name, "P7", f"is {state.kind} and yet has the activity {state.activity!r}")
        if state.activity is not None and state.activity not in ACTIVITIES:
            yield subject.fault(name, "P7", f"there is no activity {state.activity!r}")
        for row in state.rows:
            if row.trigger not in TRIGGERS:
                yield subject.fault(name, "P7", f"there is no trigger {row.trigger!r}")
            if row.guard is not None and row.guard not in GUARDS:
                yield subject.fault(name, "P7", f"there is no guard {row.guard!r}")
            if row.target not in states:
                yield subject.fault(name, "P7", f"there is no state {row.to!r}, where {row.trigger!r} leads")
    rows = subject.declaration.rows
    yield from _unnamed("trigger", TRIGGERS, {row.trigger for row in rows})
    yield from _unnamed("guard", GUARDS, {row.guard for row in rows})
    yield from _unnamed("activity", ACTIVITIES, {state.activity for state in states.values()})


def _unnamed(noun: str, words: Iterable[str], used: Iterable[str | None]) -> Iterator[Fault]:
    for word in words:
        if word not in used:
            yield Fault(property="P7", message=f"no state names the {noun} {word!r}")


def _clocked(subject: _Subject) -> Iterator[Fault]:
    yield from _undeclared(subject, "P8", CLOCKED)
    for name, state in subject.declaration.states.items():
        runs = state.bound == "agent"
        if runs and name not in CLOCKED:
            yield subject.fault(name, "P8", f"the agent clock runs here; it runs in {' and '.join(CLOCKED)} only")
        elif runs != (state.span == "agent" and state.activity == "segment"):
            what = "runs outside of a segment" if runs else "stands still during a segment"
            yield subject.fault(name, "P8", f"the agent clock {what}")


def _outcomes_answered(subject: _Subject) -> Iterator[Fault]:
    states = subject.declaration.states
    for name, state in states.items():
        if state.activity is None:
            continue
        outcomes = ACTIVITIES.get(state.activity, ())
        if state.kind == "shielded" and len(outcomes) != 1:
            yield subject.fault(name, "P9", f"is shielded, and its activity {state.activity!r} has several outcomes")
        rows = by_trigger(state)
        for outcome in outcomes:
            if outcome not in rows:
                yield subject.fault(name, "P9", f"its activity {state.activity!r} can end in {outcome!r}: no row")
                continue
            for valuation in _gaps(rows[outcome]):
                yield subject.fault(name, "P9", f"its activity can end in {outcome!r}: no row when {valuation}")
            for row in rows[outcome]:
                if outcome in ONGOING and row.target in states and states[row.target].activity != state.activity:
                    message = (
                        f"{outcome!r} does not end the activity {state.activity!r}, which {row.target} does not have"
                    )
                    yield subject.fault(name, "P9", message, row)


def _closable(subject: _Subject) -> Iterator[Fault]:
    for name, state in subject.declaration.states.items():
        if state.kind in ("resting", "final") and "close" not in by_trigger(state):
            yield subject.fault(name, "P10", f"is {state.kind} and does not take 'close'")


def _bounded(subject: _Subject) -> Iterator[Fault]:
    for name, state in subject.declaration.states.items():
        if state.kind == "active" and state.bound is None:
            yield subject.fault(name, "D1", "awaits foreign code and has no bound (L2)")
        elif state.kind != "active" and state.bound is not None:
            yield subject.fault(name, "D1", f"is {state.kind}, and the bound {state.bound!r} would bound nothing (L55)")


def _conditions(subject: _Subject) -> Iterator[Fault]:
    states = subject.declaration.states
    for name, rows in subject.moves.items():
        for row in rows:
            fails = states[row.to].group == "failure" and states[name].group != "failure"
            due = "error" if fails else "cancelled" if row.trigger == "cancel" else None
            if row.sets != due and (due is not None or row.sets in ("error", "cancelled")):
                yield subject.fault(name, "D2", f"sets {row.sets or 'nothing'}, not {due or 'that'}: {row}", row)


_PROOFS: tuple[Callable[[_Subject], Iterator[Fault]], ...] = (
    _reachable_and_mortal,
    _never_scored_after_a_failure,
    _completed_in_order,
    _released_once,
    _cancellable,
    _deterministic_and_total,
    _named,
    _clocked,
    _outcomes_answered,
    _closable,
    _bounded,
    _conditions,
)
