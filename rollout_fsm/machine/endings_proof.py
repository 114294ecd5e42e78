"""What is proven of the table of endings, by exhaustion: it speaks of every rollout, and no row of it is in vain.

Tried are every final state, every declared transition that can decide for it, every stop condition, and every type of
primary error, of which a rollout that completed has none and a failed one has some.
"""

from collections.abc import Iterator
from itertools import product

from rollout_fsm.machine.declaration import Declaration
from rollout_fsm.machine.endings import A_STOP, ANOTHER, BOUNDARIES, ENGINE_STOPS, NONE, OVERLONG, End, Endings, Status
from rollout_fsm.machine.fault import Fault

ENDING_PROPERTIES = {
    "E1": "however a rollout ends, there is an ending for it",
    "E2": "every row of the endings is the ending of some rollout",
}
"""Every property and what it says."""

_CONDITIONS = (*((name,) for name in ENGINE_STOPS), ("a_stop", A_STOP), ("a_condition", ANOTHER), (NONE,))
_ERRORS: tuple[tuple[tuple[str, ...], Status | None], ...] = (
    *(((kind,), None) for kind in BOUNDARIES if kind != "ProviderError"),
    (("ProviderError",), "transient"),
    (("ProviderError",), "permanent"),
    ((OVERLONG, "ProviderError"), "permanent"),
    (("AnError", ANOTHER), None),
)


def check_endings(endings: Endings) -> list[Fault]:
    """Every fault of the table, E1 before E2; none means that it is total and has no dead row."""
    dead = dict.fromkeys(range(len(endings.rows)))
    gaps: dict[tuple[str, str, str], Fault] = {}
    for end in every_end(endings.declaration):
        taken = next((place for place, row in enumerate(endings.rows) if row.fits(end)), None)
        if taken is not None:
            dead.pop(taken, None)
            continue
        said = f"no row fits a rollout that is {end.state}, by {end.trigger!r} in {end.source!r}, stop condition "
        said += f"{end.conditions[0]}, error {end.errors[0] if end.errors else 'none'}"
        gaps.setdefault((end.state, end.source, end.trigger), Fault(property="E1", message=said, states=(end.state,)))
    vain = (f"row {place + 1} is never taken: {endings.rows[place]}" for place in dead)
    return [*gaps.values(), *(Fault(property="E2", message=said) for said in vain)]


def every_end(declaration: Declaration) -> Iterator[End]:
    """Every way to end that the declaration allows, as an ending is looked up with it."""
    for state in declaration.states.values():
        if state.kind != "final":
            continue
        none: tuple[tuple[tuple[str, ...], Status | None], ...] = (((), None),)
        errors = none if state.group == "closing" else _ERRORS if state.group == "failure" else (*none, *_ERRORS)
        for (source, trigger), conditions, (kinds, status) in product(
            _deciding(declaration, state.group), _CONDITIONS, errors
        ):
            yield End(
                state=state.name, source=source, trigger=trigger, conditions=conditions, errors=kinds, status=status
            )


def _deciding(declaration: Declaration, group: str) -> dict[tuple[str, str], None]:
    """The transitions that enter a group of states, each by its source and trigger."""
    states = declaration.states
    entering = (row for row in declaration.rows if states[row.source].group != group == states[row.target].group)
    return dict.fromkeys((row.source, row.trigger) for row in entering)
