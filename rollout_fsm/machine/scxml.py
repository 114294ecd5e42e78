"""The declaration as SCXML (W3C), for tools that read state charts: the whole machine, guards and answers included.

A group is a compound state. What all its states ask last for a trigger is written once, at the group: SCXML asks the
innermost state first, so this changes nothing, whereas any further lifting would change the order of the rows or let a
state take what it does not take. Final states are children of the document, since only those end an interpreter.
Guards are data that the host keeps true to the facts, one for each, unset meaning false; `stop_condition` is set by the
document and, for a stop of the caller's, by the host. What SCXML has no word for is in attributes of a namespace of
our own, which interpreters pass over. Every expression means the same in ECMAScript and in Python.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from attrs import evolve

from rollout_fsm.machine.declaration import Declaration, Row, State
from rollout_fsm.machine.guards import GUARDS
from rollout_fsm.machine.paths import by_trigger
from rollout_fsm.machine.vocabulary import GIVEN, GROUPS

NAMESPACE = "urn:rollout-fsm:lifecycle"

LEGEND = (
    "Exported from states/*.toml; edit those, then run `rollout-fsm diagram`.",
    "",
    "rollout:kind      resting waits for the caller; active has one activity, whose outcome is the next event;",
    "                  shielded is active and not interrupted: a cancellation that comes is held back until it is left",
    "rollout:activity  what runs; rollout:bound: the timeout that bounds it; rollout:span: the timing it counts to",
    "rollout:errors    what becomes of errors that came with the event: record puts them on the trace, warn makes them",
    "                  warnings, raise raises them to the caller and records nothing; an agent that survives being",
    "                  killed, and a signal that failed in time, are errors whatever the transition says",
    "rollout:answers   events that a final state answers without leaving it",
    "",
    "A transition without a target is an answer, not a move. A stop condition is set only if none is set yet;",
    "`_event.data` is the name of the limit or stop that refused the turn.",
)


def render_scxml(declaration: Declaration) -> str:
    """The declaration as an SCXML document."""
    return "\n".join(_lines(declaration)) + "\n"


def _lines(declaration: Declaration) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield "<!--"
    yield from (f"  {line}".rstrip() for line in LEGEND)
    yield "-->"
    yield (
        f'<scxml xmlns="http://www.w3.org/2005/07/scxml" xmlns:rollout="{NAMESPACE}" version="1.0" '
        f'name="rollout" datamodel="ecmascript" initial="{declaration.initial.name}">'
    )
    yield "  <datamodel>"
    yield '    <data id="stop_condition"/>'
    for guard in GUARDS.values():
        yield f'    <data id="{guard.name}"/> {_comment(guard.holds)}'
    yield "  </datamodel>"
    for group in GROUPS:
        members = [state for state in declaration.states.values() if state.group == group]
        going = [state for state in members if state.kind != "final"]
        if going:
            shared = _shared(going)
            yield f'  <state id="{group}_group" rollout:kind="group">'
            for rows in shared.values():
                yield from _transitions(rows, "    ")
            for state in going:
                yield from _state(state, shared)
            yield "  </state>"
        for state in members:
            if state.kind == "final":
                yield from _final(state)
    yield "</scxml>"


def _shared(states: Sequence[State]) -> Mapping[str, tuple[Row, ...]]:
    """For each trigger the rows that every one of these states, two at least, asks last; the same ones, in order."""
    if len(states) < 2:
        return {}
    asked = [by_trigger(state) for state in states]
    found = {}
    for trigger, rows in asked[0].items():
        if tail := _common_tail([of.get(trigger, ()) for of in asked]):
            found[trigger] = rows[-tail:]
    return found


def _common_tail(lists: Sequence[Sequence[Row]]) -> int:
    length = 0
    for rows in zip(*map(reversed, lists), strict=False):
        if len({evolve(row, source="") for row in rows}) > 1:
            break
        length += 1
    return length


def _state(state: State, shared: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    own = [
        row for trigger, rows in by_trigger(state).items() for row in rows[: len(rows) - len(shared.get(trigger, ()))]
    ]
    yield f"    {_comment(state.meaning)}"
    yield f"    <state {_attributes(state)}{'>' if own else '/>'}"
    yield from _transitions(own, "      ")
    if own:
        yield "    </state>"


def _final(state: State) -> Iterator[str]:
    answers = f' rollout:answers="{" ".join(by_trigger(state))}"' if state.rows else ""
    yield f"  {_comment(state.meaning)}"
    yield f"  <final {_attributes(state)}{answers}/>"


def _comment(text: str) -> str:
    return f"<!-- {re.sub('-(?=-|$)', '- ', escape(text))} -->"


def _attributes(state: State) -> str:
    ours = {
        "kind": state.kind,
        "group": state.group,
        "span": state.span,
        "activity": state.activity,
        "bound": state.bound,
    }
    said = " ".join(f'rollout:{name}="{value}"' for name, value in ours.items() if value is not None)
    return f'id="{state.name}" {said}'


def _transitions(rows: Iterable[Row], indent: str) -> Iterator[str]:
    for row in rows:
        yield from (indent + line for line in _transition(row))


def _transition(row: Row) -> Iterator[str]:
    guard = f' cond="{row.guard}"' if row.guard else ""
    target = "" if row.same else f' target="{row.target}"'
    errors = f' rollout:errors="{row.error}"' if row.error else ""
    reason = f" rollout:reason={quoteattr(row.reason)}" if row.reason else ""
    opening = f'<transition event="{row.trigger}"{guard}{target}{errors}{reason}'
    if row.sets is None:
        yield f"{opening}/>"
        return
    value = "_event.data" if row.sets == GIVEN else f"'{row.sets}'"
    yield f"{opening}>"
    yield f'  <if cond="stop_condition == null"><assign location="stop_condition" expr="{value}"/></if>'
    yield "</transition>"
