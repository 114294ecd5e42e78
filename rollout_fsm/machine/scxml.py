"""The declaration as SCXML, the W3C's exchange format for state machines.

States stay flat: a `<final>` inside a group would end the group instead of the machine. Guards become data of the same
name, all false, for whoever runs the document to set. The stop condition is data too, set by the first row that sets
one. What SCXML has no words for (kind, group, span, activity, bound) stands in attributes of a namespace of ours.
Answers are left out: an event without a transition is ignored there, and ignoring is what an answer does.
"""

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from rollout_fsm.machine.declaration import Declaration, Row, State
from rollout_fsm.machine.guards import GUARDS
from rollout_fsm.machine.vocabulary import GIVEN

NAMESPACE = "urn:rollout-fsm:lifecycle"


def render_scxml(declaration: Declaration) -> str:
    """The declaration as an SCXML document."""
    return "\n".join(_lines(declaration)) + "\n"


def _lines(declaration: Declaration) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield (
        f'<scxml xmlns="http://www.w3.org/2005/07/scxml" xmlns:rollout="{NAMESPACE}" version="1.0" '
        f'name="rollout" datamodel="ecmascript" initial="{declaration.initial.name}">'
    )
    yield "  <datamodel>"
    yield '    <data id="stop_condition" expr="null"/>'
    for guard in GUARDS.values():
        yield f'    <data id="{guard.name}" expr="false"/> {_comment(guard.holds)}'
    yield "  </datamodel>"
    for state in declaration.states.values():
        tag = "final" if state.kind == "final" else "state"
        rows = [] if tag == "final" else [row for row in state.rows if not row.same]
        yield f"  {_comment(state.meaning)}"
        yield f"  <{tag} {_attributes(state)}{'>' if rows else '/>'}"
        for row in rows:
            yield from _transition(row)
        if rows:
            yield f"  </{tag}>"
    yield "</scxml>"


def _comment(text: str) -> str:
    return f"<!-- {escape(text).replace('--', '- -')} -->"


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


def _transition(row: Row) -> Iterator[str]:
    guard = f' cond="{row.guard}"' if row.guard else ""
    reason = f" rollout:reason={quoteattr(row.reason)}" if row.reason else ""
    opening = f'    <transition event="{row.trigger}"{guard} target="{row.target}"{reason}'
    if row.sets is None:
        yield f"{opening}/>"
        return
    value = "_event.data" if row.sets == GIVEN else f"'{row.sets}'"
    yield f"{opening}>"
    yield f'      <if cond="stop_condition === null"><assign location="stop_condition" expr="{value}"/></if>'
    yield "    </transition>"
