"""The declaration as a page of Markdown: what happens when …, then every state, row, guard, trigger, ending in words.

This is the complete form: the answers, which the diagrams leave out, are here too, and rows stand in the order in which
they are asked. Nothing on the page but the explanation of its columns is written by hand.
"""

from collections.abc import Iterable, Iterator, Sequence

from rollout_fsm.machine.declaration import Declaration, Row, State
from rollout_fsm.machine.endings import EndingRow, Endings, is_graded
from rollout_fsm.machine.guards import GUARDS
from rollout_fsm.machine.questions import QUESTIONS, Answer, Question, answers
from rollout_fsm.machine.vocabulary import ACTIVITIES, GIVEN, GROUPS, TRIGGERS


def render_table(declaration: Declaration, endings: Endings) -> str:
    """The declaration and its endings as a page of Markdown."""
    return "\n".join([*_lines(declaration), *_endings(endings)]) + "\n"


def _lines(declaration: Declaration) -> Iterator[str]:
    states = declaration.states.values()
    yield "# The transitions"
    yield ""
    yield "Exported from `states/*.toml`; edit those, then run `rollout-fsm diagram`."
    yield ""
    yield from _index(declaration)
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
    yield "them warnings, raise raises `RuntimeLifetimeError` to the caller and records nothing. An agent that survives"
    yield "being killed, and a signal that failed in time, are errors whatever the row says."
    yield "A row to (same) is an answer, not a move: it is not recorded, runs nothing and touches no sealed trace."
    for group in GROUPS:
        members = [state for state in states if state.group == group]
        if members:
            yield ""
            yield f"### {group.capitalize()}"
            yield ""
            yield from _table(
                ("from", "trigger", "guard", "to", "sets", "errors", "reason"),
                (_row(row, first=row is state.rows[0]) for state in members for row in state.rows),
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


def _endings(endings: Endings) -> Iterator[str]:
    yield ""
    yield "## Endings"
    yield ""
    yield "What `trace.ending` says. Of the rows that fit a finished rollout the first is taken; an empty cell fits"
    yield "all. *decided by* is the transition that entered the last group of states. (stop) is any stop of the task,"
    yield "(other) any stop condition of the caller's own; (given) is then its name. *error* is the primary one's type;"
    yield "transient is one of a provider without an HTTP status, or with one that is no 4xx, or 408, 409, 425 or 429."
    yield "(error) is whose boundary that error crossed. *graded* is finalized and scored to the end; without a reward"
    yield "nothing *counts*. *retryable* is what a `RetryPolicy` goes by that names nothing."
    yield ""
    yield from _table(
        ("ending", "in", "stop condition", "decided by", "error", "cause", "graded", "counts", "retryable", "reason"),
        (
            (
                row.name if row.name == GIVEN else f"`{row.name}`",
                f"`{row.end}`",
                _any_of(row.conditions),
                _decided(row),
                " ".join([_any_of(row.errors), *([row.status] if row.status else [])]),
                row.cause,
                _yes(is_graded(endings.declaration, row.end)),
                _yes(row.counts),
                _yes(row.retryable),
                row.reason,
            )
            for row in endings.rows
        ),
    )


def _decided(row: EndingRow) -> str:
    by, where = _any_of(row.triggers), _any_of(row.sources)
    return f"{by} in {where}" if by and where else by or (where and f"in {where}")


def _any_of(words: Iterable[str] | None) -> str:
    return ", ".join(word if word.startswith("(") else f"`{word}`" for word in words or ())


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _index(declaration: Declaration) -> Iterator[str]:
    yield "## What happens when …"
    yield ""
    yield "Read off the rows below. After its first step an answer goes on as if nothing else happened: a resting"
    yield "state is closed by the caller, an activity succeeds, no guard holds."
    yield ""
    yield "- *stop condition*: what is set, if none is set yet; (given) is the name of the limit or of the stop. *as it"
    yield "  was*: what is set already stays."
    yield "- *scored*: *in part* means that what was measured in time stays, and what was not is None, never zero."
    yield "- *held back*: a cancellation waits until a shielded state is left, and then comes, if it still can."
    yield "- *errors*: what becomes of those that came with the trigger, as in the [table](#transitions)."
    for question in QUESTIONS:
        yield ""
        yield f"### {question.title}"
        yield ""
        yield _subject(question)
        yield ""
        yield from _table(*_answers(answers(declaration, question)))


def _subject(question: Question) -> str:
    """Which rows it is about, and what is taken for granted."""
    about = ["Rows of " + ", ".join(f"`{trigger}`" for trigger in question.triggers)] if question.triggers else []
    about += [f"rows that need `{guard}` ({GUARDS[guard].holds})" for guard in question.guards]
    about += [f"taken for granted: {GUARDS[guard].fails}" for guard in question.fails]
    text = "; ".join(about)
    return f"{text[0].upper()}{text[1:]}."


def _answers(found: Iterable[Answer]) -> tuple[Sequence[str], list[list[str]]]:
    """Head and lines of the table, without the columns that would be empty."""
    lines = [_answer(answer) for answer in found]
    told = [place for place in range(len(_COLUMNS)) if any(line[place] for line in lines)]
    return [_COLUMNS[place] for place in told], [[line[place] for place in told] for line in lines]


_COLUMNS = ("in", "if", "then", "stop condition", "scored", "errors")


def _answer(answer: Answer) -> tuple[str, ...]:
    states = ", ".join(f"[`{name}`](#from-{name})" for name in answer.states)
    if not answer.path:
        return states, "", f"{' or '.join(answer.triggers)}: stays", "", "", answer.error or ""
    return (
        states,
        _guard(answer.guard),
        _chain(answer),
        {None: "as it was", GIVEN: GIVEN}.get(answer.condition, f"`{answer.condition}`"),
        answer.scored,
        answer.error or "",
    )


def _chain(answer: Answer) -> str:
    *steps, (last, end) = answer.then
    told = [*(f"{trigger} → `{target}`" for trigger, target in steps), f"{last} → **`{end}`**"]
    return ("held back; " if answer.held else "") + ", ".join(told)


def _guard(name: str | None) -> str:
    return name or "" if name not in GUARDS else f"[`{name}`](#guards)"


def _row(row: Row, *, first: bool) -> tuple[str, ...]:
    return (
        f'<a id="from-{row.source}"></a>`{row.source}`' if first else f"`{row.source}`",
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
