"""Conformance: is a recorded list of transitions a path that the declared machine could have gone (L83)?

It works on names, not on traces. What a trace claims besides its transitions (outcome, stop condition) is compared by
whoever knows traces, with the help of `may_set`.
"""

from collections.abc import Sequence

from rollout_fsm.machine.declaration import Declaration, Row
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.machine.paths import by_trigger
from rollout_fsm.machine.vocabulary import CONDITIONS, GIVEN, Condition

ENGINE_CONDITIONS = frozenset(CONDITIONS) - {GIVEN, "user_closed", "agent_completed"}
"""The stop conditions that come from rows alone. The two others a caller's `stop` may well say itself."""

Step = tuple[str, str, str]
"""One recorded transition: trigger, source, target."""


def replay(declaration: Declaration, transitions: Sequence[Step], *, finished: bool = True) -> list[str]:
    """What is wrong with the recorded transitions; nothing, if they are a legal path from the initial state.

    A path is contiguous, takes only declared moves (`(same)` rows are answers and are never recorded) and, unless
    `finished` is false, ends in a final state. Guards are not asked: a record does not hold the facts. Every fault is
    found and named with the number of its transition, counted from 1.
    """
    faults: list[str] = []
    here = declaration.initial.name
    for number, (trigger, source, target) in enumerate(transitions, 1):
        where = f"transition {number} ({source} -{trigger}-> {target})"
        if source != here:
            expected = "the initial state" if number == 1 else "where the one before ended"
            faults.append(f"{where}: starts in {source!r} instead of {here!r}, {expected}")
        faults += [f"{where}: {fault}" for fault in _step_faults(declaration, (trigger, source, target))]
        here = target
    if finished and here in declaration.states and declaration.states[here].kind != "final":
        faults.append(f"the path ends in {here!r}, which is {declaration.states[here].kind}, not final")
    return faults


def _step_faults(declaration: Declaration, step: Step) -> list[str]:
    trigger, source, target = step
    unknown = [name for name in dict.fromkeys((source, target)) if name not in declaration.states]
    if unknown:
        return [f"there is no state {name!r}{suggestion(name, declaration.states)}" for name in unknown]
    rows = by_trigger(declaration.states[source])
    if trigger not in rows:
        return [f"{source!r} does not take {trigger!r}; it takes {', '.join(rows) or 'nothing'}"]
    if rows_of(declaration, step):
        return []
    if any(row.same and row.target == target for row in rows[trigger]):
        return ["this is an answer, not a move; answers are not recorded"]
    ends = dict.fromkeys(row.target for row in rows[trigger] if not row.same)
    return [f"{trigger!r} does not lead there; it leads to {', '.join(ends) or 'no other state'}"]


def rows_of(declaration: Declaration, step: Step) -> tuple[Row, ...]:
    """The declared rows that a recorded transition may have been: several, where only their guards differ."""
    trigger, source, target = step
    state = declaration.states.get(source)
    rows = state.rows if state is not None else ()
    return tuple(row for row in rows if not row.same and row.trigger == trigger and row.to == target)


def stop_conditions(declaration: Declaration, path: Sequence[Step]) -> frozenset[Condition | None]:
    """The stop conditions that the rows of this path may have left on a trace; the first that is set stays (L17).

    None stands for "no row sets one", "(given)" for any name: the one that came with a refusal, or that the caller's
    `stop` had set, as a `stop` row and the guard `stop_requested` tell. A transition that several rows may have been
    contributes what each of them says. A `stop` in passing, where no row tells of it (L22), cannot be seen here.
    """
    found: set[Condition | None] = set()
    for step in path:
        says = {_says(row) for row in rows_of(declaration, step)}
        found |= says - {None}
        if says and None not in says:
            return frozenset(found)
    return frozenset(found | {None})


def _says(row: Row) -> Condition | None:
    return GIVEN if row.trigger == "stop" or row.guard == "stop_requested" else row.sets


def may_set(declaration: Declaration, path: Sequence[Step], condition: str | None) -> bool:
    """Whether a rollout that went this path may end with this stop condition.

    A name that only rows set (`ENGINE_CONDITIONS`) needs a row of the path that sets it; a row that certainly sets one
    excludes None; any other name may have come by a `stop` in passing.
    """
    possible = stop_conditions(declaration, path)
    if condition is None or condition in ENGINE_CONDITIONS:
        return condition in possible or (condition is not None and GIVEN in possible)
    return True
