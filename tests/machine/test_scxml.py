"""The SCXML: what the W3C recommendation lets a document contain, and what an interpreter that is not ours makes of it.

The content model below is written from the recommendation of 2015-09-01 and its schema: the schema itself needs an
XSD 1.1 processor for half of what it says, and only a few of its elements concern us. The interpreter is
`python-statemachine`, told apart from the engine's own library on purpose. Where it goes is compared with the oracle,
the table written out a second time, never with the declaration that the document was exported from.
"""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import pytest
from attrs import define, evolve, frozen
from hypothesis import given
from hypothesis import strategies as st
from statemachine import StateChart
from statemachine.io import load

from rollout_fsm.machine import load_machine
from rollout_fsm.machine.declaration import Declaration, declare
from rollout_fsm.machine.scxml import NAMESPACE, render_scxml
from tests.machine import oracle

SHIPPED = load_machine()
DOCUMENT = Path(__file__).resolve().parents[2] / "diagrams" / "lifecycle.scxml"
SCXML = "{http://www.w3.org/2005/07/scxml}"
OURS = f"{{{NAMESPACE}}}"
TABLE = oracle.table()

# The recommendation

EXECUTABLE = "raise if foreach log assign script"
"""Executable content, but for what reaches out of the document (send, cancel): an export has no business with it."""

CONTENT = f"""
scxml     | state parallel final datamodel? script?
state     | onentry onexit transition initial? state parallel final history datamodel?
parallel  | onentry onexit transition state parallel history datamodel?
initial   | transition!
history   | transition!
final     | onentry onexit donedata?
onentry   | {EXECUTABLE}
onexit    | {EXECUTABLE}
transition| {EXECUTABLE}
if        | {EXECUTABLE} elseif else?
elseif    |
else      |
foreach   | {EXECUTABLE}
raise     |
log       |
assign    |
script    |
datamodel | data
data      |
donedata  | content? param
content   |
param     |
"""
"""What each element may contain: any number of each, `?` at most one, `!` exactly one."""

ATTRIBUTES = """
scxml     | initial:ids name:nmtoken version!:version datamodel:datamodel binding:binding
state     | id:id initial:ids
parallel  | id:id
history   | id:id type:history
final     | id:id
transition| event:events cond:expression target:ids type:transition
if        | cond!:expression
elseif    | cond!:expression
foreach   | array!:expression item!:name index:name
raise     | event!:nmtoken
log       | label:text expr:expression
assign    | location!:location expr:expression
script    | src:text
data      | id!:id src:text expr:expression
content   | expr:expression
param     | name!:nmtoken expr:expression location:location
"""
"""What attributes it has besides those of other namespaces, and their types; `!` for those it must have."""

NCNAME = r"[A-Za-z_][\w.-]*"
EVENT = r"[A-Za-z_][\w-]*(?:\.[\w-]+)*(?:\.\*|\.)?|\*"
EXPRESSION = rf"{NCNAME}(?: == null)?|'\w+'|_event\.data"
"""The expressions of the ECMAScript datamodel that an export needs: a name, whether it is unset, a word, the event's
data. Python reads them the same way."""

TYPES: Mapping[str, str] = {
    "id": NCNAME,
    "ids": rf"{NCNAME}(?: {NCNAME})*",
    "nmtoken": r"[\w.:-]+",
    "version": r"1\.0",
    "datamodel": "ecmascript",
    "binding": "early|late",
    "history": "shallow|deep",
    "transition": "internal|external",
    "events": rf"(?:{EVENT})(?: (?:{EVENT}))*",
    "expression": EXPRESSION,
    "location": NCNAME,
    "name": NCNAME,
    "text": ".*",
}


def cells(table: str) -> dict[str, list[str]]:
    lines = (line.split("|") for line in table.strip().splitlines())
    return {element.strip(): rest.split() for element, rest in lines}


def faults(text: str) -> list[str]:
    """What the recommendation says against the document."""
    root = ET.fromstring(text)
    if root.tag != f"{SCXML}scxml":
        return [f"the root is {root.tag}"]
    return [*_content_faults(root), *_attribute_faults(root), *_reference_faults(root), *_constraint_faults(root)]


def own(element: ET.Element, *names: str) -> list[ET.Element]:
    return [child for child in element if child.tag in {f"{SCXML}{name}" for name in names}]


def name_of(element: ET.Element) -> str:
    return element.tag.removeprefix(SCXML)


def _content_faults(root: ET.Element) -> Iterator[str]:
    content = cells(CONTENT)
    for element in root.iter():
        if name_of(element) not in content:
            yield f"<{name_of(element)}> is no element of SCXML"
            continue
        allowed = {child.rstrip("?!"): child[-1] for child in content[name_of(element)]}
        counted = Counter(name_of(child) for child in element)
        yield from (f"<{name_of(element)}> may not contain <{child}>" for child in counted if child not in allowed)
        for child, many in allowed.items():
            if (many == "?" and counted[child] > 1) or (many == "!" and counted[child] != 1):
                yield f"<{name_of(element)}> contains {counted[child]} <{child}>"
        if (element.text or "").strip() or any((child.tail or "").strip() for child in element):
            yield f"<{name_of(element)}> contains text"


def _attribute_faults(root: ET.Element) -> Iterator[str]:
    attributes = cells(ATTRIBUTES)
    for element in root.iter():
        declared = {}
        for cell in attributes.get(name_of(element), ()):
            name, _, type_ = cell.partition(":")
            declared[name.rstrip("!")] = type_
            if name.endswith("!") and name.rstrip("!") not in element.attrib:
                yield f"<{name_of(element)}> has no {name.rstrip('!')}"
        for name, value in element.attrib.items():
            if name.startswith("{"):
                continue
            if name not in declared:
                yield f"<{name_of(element)}> has no attribute {name!r}"
            elif not re.fullmatch(TYPES[declared[name]], value):
                yield f"<{name_of(element)}> {name}={value!r} is no {declared[name]}"


def _reference_faults(root: ET.Element) -> Iterator[str]:
    ids = Counter(element.get("id") for element in root.iter() if element.get("id"))
    yield from (f"the id {name!r} is given {times} times" for name, times in ids.items() if times > 1)
    places = {
        element.get("id") for tag in ("state", "parallel", "final", "history") for element in root.iter(SCXML + tag)
    }
    data = {element.get("id") for element in root.iter(f"{SCXML}data")}
    for element in root.iter():
        for name in ("target", "initial"):
            for target in element.get(name, "").split():
                if target not in places:
                    yield f"<{name_of(element)}> {name}={target!r} is no state"
        for name in ("cond", "expr", "location"):
            for word in re.findall(rf"^{NCNAME}", element.get(name, "")):
                if word not in data | {"_event.data"}:
                    yield f"<{name_of(element)}> {name}={element.get(name)!r} asks {word!r}, which is no data"


def _constraint_faults(root: ET.Element) -> Iterator[str]:
    """What the recommendation says in words, and the schema in assertions."""
    if not own(root, "state", "parallel", "final"):
        yield "the document has no state"
    for transition in root.iter(f"{SCXML}transition"):
        if not transition.attrib.keys() & {"event", "cond", "target"}:
            yield "a <transition> has neither event nor cond nor target"
    for state in root.iter(f"{SCXML}state"):
        inner = {each.get("id") for each in state.iter() if each is not state}
        if state.get("initial") and own(state, "initial"):
            yield f"{state.get('id')} has two initials"
        if state.get("initial") and not set(state.get("initial", "").split()) <= inner:
            yield f"{state.get('id')} begins outside of itself"
        for transition in (each for initial in own(state, "initial") for each in own(initial, "transition")):
            if transition.attrib.keys() & {"event", "cond"} or transition.get("target") not in inner:
                yield f"{state.get('id')} has an initial that is no plain way to one of its states"
    for data in root.iter(f"{SCXML}data"):
        if {"src", "expr"} <= data.attrib.keys():
            yield f"the data {data.get('id')!r} has both src and expr"


def test_the_document_says_nothing_that_the_recommendation_does_not_allow() -> None:
    assert faults(render_scxml(SHIPPED)) == []


@pytest.mark.parametrize(
    ("there", "instead", "fault"),
    [
        ('version="1.0" name', 'version="2" name', "<scxml> version='2' is no version"),
        ('version="1.0" name', "name", "<scxml> has no version"),
        ("http://www.w3.org/2005/07/scxml", "http://www.w3.org/2005/SCXML", "the root is {http://www.w3.org/2005/SCXML}scxml"),
        ('datamodel="ecmascript"', 'datamodel="prolog"', "<scxml> datamodel='prolog' is no datamodel"),
        ('initial="created"', 'initial="creating"', "<scxml> initial='creating' is no state"),
        ('<state id="setup"', '<state id="booting"', "the id 'booting' is given 2 times"),
        ('<state id="setup"', '<state id="has_user"', "the id 'has_user' is given 2 times"),
        ('<state id="setup"', '<state id="set up"', "<state> id='set up' is no id"),
        ('target="finalizing"', 'target="finalized"', "<transition> target='finalized' is no state"),
        ('event="closed"', 'event="closed..now"', "<transition> event='closed..now' is no events"),
        ('event="closed" target="finalizing"', "", "a <transition> has neither event nor cond nor target"),
        ('event="closed"', 'trigger="closed"', "<transition> has no attribute 'trigger'"),
        ('cond="has_user"', 'cond="user()"', "<transition> cond='user()' is no expression"),
        ('cond="has_user"', 'cond="has_users"', "<transition> cond='has_users' asks 'has_users', which is no data"),
        ('<if cond="stop_condition == null">', "<if>", "<if> has no cond"),
        ('<data id="has_user"/>', '<data expr="has_user"/>', "<data> has no id"),
        ('<data id="has_user"/>', "<has_user/>", "<has_user> is no element of SCXML"),
        ("  </datamodel>", "  </datamodel><datamodel/>", "<scxml> contains 2 <datamodel>"),
        ("</scxml>", '<final><transition event="close"/></final></scxml>', "<final> may not contain <transition>"),
        ("</scxml>", "amen</scxml>", "<scxml> contains text"),
        ('id="opening_group"', 'id="opening_group" initial="waiting"', "opening_group begins outside of itself"),
    ],
)  # fmt: skip
def test_a_document_that_breaks_a_rule_of_the_recommendation_is_refused(there: str, instead: str, fault: str) -> None:
    document = render_scxml(SHIPPED)
    assert there in document
    assert fault in faults(document.replace(there, instead))


# What a reader of the document sees


@pytest.fixture(scope="module")
def root() -> ET.Element:
    return ET.fromstring(render_scxml(SHIPPED))


def states_of(root: ET.Element) -> dict[str, ET.Element]:
    groups = {element.get("id"): element for element in own(root, "state")}
    inner = {element.get("id"): element for group in groups.values() for element in own(group, "state")}
    return {str(name): element for name, element in (*inner.items(), *((f.get("id"), f) for f in own(root, "final")))}


def test_every_state_is_in_its_group_and_the_ends_are_at_the_top(root: ET.Element) -> None:
    assert set(states_of(root)) == set(SHIPPED.states)
    for group in own(root, "state"):
        for element in own(group, "state"):
            assert group.get("id") == f"{SHIPPED.state(str(element.get('id'))).group}_group"
    assert [element.get("id") for element in own(root, "final")] == ["completed", "failed", "aborted"]


def test_states_say_their_kind_and_what_else_is_declared_of_them(root: ET.Element) -> None:
    for line in oracle.STATES.strip().splitlines():
        name, kind, span, activity, bound, group = oracle.cells(line)
        element = states_of(root)[name]
        assert element.get(f"{OURS}kind") == kind
        said = tuple(element.get(f"{OURS}{word}", "") for word in ("span", "activity", "bound", "group"))
        assert said == (span, activity, bound, group)


def test_transitions_carry_their_reasons_and_the_use_of_errors(root: ET.Element) -> None:
    (expiry,) = [each for each in states_of(root)["stepping"] if each.get("cond") == "expiry_stops"]
    assert expiry.get(f"{OURS}reason") == "the agent budget ran out, and the policy calls that a stop"
    lost = [each for each in root.iter(f"{SCXML}transition") if each.get("cond") == "runtime_lost"]
    assert {each.get(f"{OURS}errors") for each in lost} == {"raise"}


def test_an_answer_is_a_transition_without_a_target_or_is_named_at_the_end_that_gives_it(root: ET.Element) -> None:
    answers = {
        (name, str(each.get("event")))
        for name, element in states_of(root).items()
        for each in own(element, "transition")
        if each.get("target") is None
    }
    ends = {
        (name, event)
        for name, element in states_of(root).items()
        for event in element.get(f"{OURS}answers", "").split()
    }
    assert answers | ends == {key for key, rows in TABLE.items() if rows == [(None, "(same)", None)]}
    assert {name for name, _ in ends} == {"completed", "failed", "aborted"}


def test_what_every_state_of_a_group_asks_last_is_written_once(root: ET.Element) -> None:
    lifted = [
        (group.get("id"), each.get("event"), each.get("cond"), each.get("target"))
        for group in own(root, "state")
        for each in own(group, "transition")
    ]
    assert lifted == [("exchange_group", "cancel", None, "aborting")]
    assert not [each for each in states_of(root)["waiting"] if each.get("event") == "cancel"]


# The interpreter


@frozen
class Sent:
    """An event with the facts that hold when it comes."""

    trigger: str
    holds: frozenset[str] = frozenset()
    data: str | None = None


class Data:
    """The document's data, as a host keeps them. The interpreter writes the first values of a document's data only once
    for all its machines, so a host that runs several gives each one its own."""

    def __init__(self) -> None:
        self.state: object = None
        self.stop_condition: str | None = None
        for guard in oracle.GUARDS:
            setattr(self, guard, False)


class Host:
    """Runs the document as a host does: keeps the facts up to date, sends events, looks where the machine is."""

    def __init__(self, chart: type[StateChart]) -> None:
        self.data = Data()
        self.machine = chart(model=self.data)

    def send(self, sent: Sent) -> None:
        for guard in oracle.GUARDS:
            setattr(self.data, guard, guard in sent.holds)
        self.machine.send(sent.trigger, *([] if sent.data is None else [sent.data]))

    @property
    def state(self) -> str:
        (name,) = (name for name in self.machine.configuration_values if not name.endswith("_group"))
        return str(name)

    @property
    def stop_condition(self) -> str | None:
        return self.data.stop_condition


@define
class Expected:
    """The same by the oracle. What it has no row for changes nothing."""

    state: str = "created"
    stop_condition: str | None = None

    def send(self, sent: Sent) -> None:
        for guard, to, sets in TABLE.get((self.state, sent.trigger), ()):
            if guard is None or guard in sent.holds:
                self.state = self.state if to == "(same)" else to
                if self.stop_condition is None:
                    self.stop_condition = sent.data if sets == "(given)" else sets
                return


def test_the_data_of_a_fresh_interpreter_are_those_that_the_document_declares_and_unset() -> None:
    machine = load(render_scxml(SHIPPED), format="scxml")()
    for name in ("stop_condition", *oracle.GUARDS):
        assert getattr(machine.model, name) is None


@pytest.fixture(scope="module")
def chart() -> type[StateChart]:
    """The shipped document, loaded as anything from outside is: no expression in it is run as code."""
    return load(DOCUMENT)


def where(host: Host | Expected) -> tuple[str, str | None]:
    return host.state, host.stop_condition


def ways() -> dict[str, tuple[Sent, ...]]:
    """A shortest way to every state, by the oracle."""
    found: dict[str, tuple[Sent, ...]] = {"created": ()}
    for name in (queue := ["created"]):
        for (source, trigger), rows in TABLE.items():
            if source == name:
                for guard, to, _ in rows:
                    if to not in found and to != "(same)":
                        found[to] = (*found[name], Sent(trigger, frozenset({guard} - {None}), "max_turns"))
                        queue.append(to)
    return found


TRIGGERS = sorted({trigger for _, trigger in TABLE})


def asked_in(state: str, trigger: str) -> Iterator[frozenset[str]]:
    guards = [guard for guard, _, _ in TABLE.get((state, trigger), ()) if guard]
    for bits in product((False, True), repeat=len(guards)):
        yield frozenset(guard for guard, bit in zip(guards, bits, strict=True) if bit)


@pytest.mark.parametrize("state", sorted(ways()))
def test_every_event_with_every_valuation_of_the_guards_ends_where_the_table_says(
    state: str, chart: type[StateChart]
) -> None:
    assert set(ways()) == {name for name, _ in TABLE} | {"completed", "failed", "aborted"}
    for trigger in TRIGGERS:
        for holds in asked_in(state, trigger):
            host, expected = Host(chart), Expected()
            for sent in (*ways()[state], Sent(trigger, holds, "a_stop")):
                host.send(sent)
                expected.send(sent)
            assert where(host) == where(expected), f"{state} -{trigger}-> with {set(holds) or 'nothing'}"


def test_an_event_that_a_state_does_not_take_changes_nothing_whatever_holds(chart: type[StateChart]) -> None:
    for state, way in ways().items():
        host, expected = Host(chart), Expected()
        for sent in way:
            host.send(sent)
            expected.send(sent)
        for trigger in (name for name in TRIGGERS if (state, name) not in TABLE):
            for holds in (frozenset[str](), frozenset(oracle.GUARDS)):
                host.send(Sent(trigger, holds))
        assert where(host) == where(expected)
        assert expected.state == state


OPENED = (Sent("open", frozenset({"opens_conversation"})), Sent("booted"), Sent("ready"))
CLOSED = (Sent("close"), Sent("closed"), Sent("finalized"), Sent("scored"), Sent("released"))
REFUSED = Sent("refused", data="max_turns")
TURN = (Sent("step"), Sent("segment_ended", frozenset({"advanced"})))


@pytest.mark.parametrize(
    ("life", "end", "condition"),
    [
        ((*OPENED, *TURN, *TURN, *TURN, *CLOSED), "completed", "agent_completed"),
        ((*OPENED, Sent("step"), REFUSED, Sent("errored"), *CLOSED), "completed", "max_turns"),
        ((*OPENED, Sent("step"), Sent("segment_ended"), *CLOSED), "completed", "no_progress"),
        ((*OPENED, Sent("step"), Sent("timed_out"), Sent("close"), Sent("released")), "failed", "error"),
        ((*OPENED, *CLOSED[:3], Sent("errored"), Sent("released")), "failed", "agent_completed"),
        ((*OPENED, *TURN, Sent("step"), Sent("cancel"), Sent("released")), "aborted", "cancelled"),
        ((*OPENED, *TURN, *CLOSED[:3], Sent("cancel"), Sent("released")), "aborted", "agent_completed"),
        ((Sent("close"),), "aborted", None),
    ],
)  # fmt: skip
def test_a_whole_life_ends_the_interpreter_in_the_state_and_with_the_stop_condition(
    life: Sequence[Sent], end: str, condition: str | None, chart: type[StateChart]
) -> None:
    host = Host(chart)
    for sent in life:
        assert not host.machine.is_terminated
        host.send(sent)
    assert host.machine.is_terminated
    assert where(host) == (end, condition)


SENT = st.builds(Sent, st.sampled_from(TRIGGERS), st.frozensets(st.sampled_from(oracle.GUARDS)), st.just("a_stop"))


@given(events=st.lists(SENT, max_size=25))
def test_any_events_in_any_order_lead_the_interpreter_where_the_table_leads(
    events: list[Sent], chart: type[StateChart]
) -> None:
    host, expected = Host(chart), Expected()
    for sent in events:
        host.send(sent)
        expected.send(sent)
        assert where(host) == where(expected)


def edited(trigger: str, **states: bool) -> Declaration:
    """The shipped states with a row for the trigger, to `aborting`, asked last in each of these; True: with a guard
    before it."""
    aborting = next(row for row in SHIPPED.state("waiting").rows if row.trigger == "cancel")
    changed = []
    for state in SHIPPED.states.values():
        row = evolve(aborting, source=state.name, trigger=trigger, sets=None)
        before = [evolve(row, guard="has_user", to="failing")] if states.get(state.name) else []
        rows = (*state.rows, *before, row) if state.name in states else state.rows
        changed.append(evolve(state, rows=rows))
    return declare(changed)


def test_a_guarded_row_of_one_state_is_asked_before_what_its_group_shares() -> None:
    document = render_scxml(edited("booted", waiting=False, stepping=True, stopping=False))
    assert faults(document) == []
    (group,) = [each for each in own(ET.fromstring(document), "state") if each.get("id") == "exchange_group"]
    assert [each.get("event") for each in own(group, "transition")] == ["cancel", "booted"]
    for holds, end in ((frozenset({"has_user"}), "failing"), (frozenset[str](), "aborting")):
        host = Host(load(document, format="scxml"))
        for sent in (*OPENED, Sent("step"), Sent("booted", holds)):
            host.send(sent)
        assert host.state == end


def test_what_one_state_of_a_group_lacks_is_not_lifted() -> None:
    document = render_scxml(edited("booted", waiting=False, stepping=False))
    host = Host(load(document, format="scxml"))
    for sent in (*OPENED, Sent("step"), REFUSED, Sent("booted")):
        host.send(sent)
    assert host.state == "stopping"
