"""The declaration as tables in Markdown: every state, every row with its reason, every guard and trigger in words.

This is the complete form: the answers, which the diagrams leave out, are here too, and rows stand in the order in which
they are asked.
"""

from collections.abc import Iterable, Iterator, Sequence

from rollout_fsm.machine.declaration import Declaration, Row, State
from rollout_fsm.machine.guards import GUARDS
from rollout_fsm.machine.vocabulary import ACTIVITIES, GROUPS, TRIGGERS


def render_table(declaration: Declaration) -> str:
    """The declaration as a page of Markdown."""
    return "\n".join(_lines(declaration)) + "\n"


def _lines(declaration: Declaration) -> Iterator[str]:
    states = declaration.states.values()
    yield "# The transitions"
    yield ""
    yield "Exported from `states/*.toml`; edit those, then run `rollout-fsm diagram`."
    yield ""
    yield "## States"
    yield ""
    yield from _table(
        ("state", "kind", "group", "timing span", "activity", "bound", "meaning"),
        (
            (
                f"`{state.name}`",
                f"{state.kind}, initial" if state.initial else state.kind,
                state.group,
                state.span or "",
                state.activity or "",
                f"`timeouts.{state.bound}`" if state.bound else "",
                state.meaning,
            )
            for state in states
        ),
    )
    yield ""
    yield "## Transitions"
    yield ""
    yield "Of the rows with one state and trigger the first whose guard holds is taken; no guard always holds."
    yield "*sets* is the stop condition that the row sets if none is set yet; (given) is the one that came with the"
    yield "trigger. *errors* is what becomes of the errors that came with it: record puts them on the trace, warn makes"
    yield "them warnings, raise raises `RuntimeLifetimeError` to the caller and records nothing."
    yield "A row to (same) is an answer, not a move: it is not recorded, runs nothing and touches no sealed trace."
    for group in GROUPS:
        members = [state for state in states if state.group == group]
        if members:
            yield ""
            yield f"### {group.capitalize()}"
            yield ""
            yield from _table(
                ("from", "trigger", "guard", "to", "sets", "errors", "reason"),
                (_row(row) for state in members for row in state.rows),
            )
    yield ""
    yield "## Guards"
    yield ""
    yield from _table(
        ("guard", "true when", "asked in"),
        ((f"`{guard.name}`", guard.holds, _asked(guard.name, states)) for guard in GUARDS.values()),
    )
    yield ""
    yield "## Activities"
    yield ""
    yield from _table(
        ("activity", "runs in", "outcomes"),
        (
            (
                activity,
                ", ".join(f"`{state.name}`" for state in states if state.activity == activity),
                ", ".join(f"`{outcome}`" for outcome in outcomes),
            )
            for activity, outcomes in ACTIVITIES.items()
        ),
    )
    yield ""
    yield "## Triggers"
    yield ""
    yield from _table(
        ("trigger", "fired by", "taken in"),
        (
            (
                f"`{trigger}`",
                "caller and activity" if firer == "both" else firer,
                ", ".join(f"`{state.name}`" for state in states if any(row.trigger == trigger for row in state.rows)),
            )
            for trigger, firer in TRIGGERS.items()
        ),
    )


def _row(row: Row) -> tuple[str, ...]:
    return (
        f"`{row.source}`",
        f"`{row.trigger}`",
        f"`{row.guard}`" if row.guard else "",
        row.to if row.same else f"`{row.to}`",
        row.sets or "",
        row.error or "",
        row.reason or "",
    )


def _asked(guard: str, states: Iterable[State]) -> str:
    where = (state.name for state in states if any(row.guard == guard for row in state.rows))
    return ", ".join(f"`{name}`" for name in where)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join(' --- ' for _ in head)}|"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
