"""The compiled machine: every state, trigger and valuation fired on the real library, with the table as oracle."""

import ast
import gc
import logging
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import transitions.core
from attrs import define, evolve

import rollout_fsm.machine
from rollout_fsm.machine import IllegalTransition, Lifecycle, compile_machine, load_machine
from rollout_fsm.machine.declaration import Row, declare
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.machine.vocabulary import TRIGGERS

from . import oracle
from .oracle import Facts, Subject


@pytest.fixture(scope="module")
def machine() -> Lifecycle:
    return lifecycle()


def test_every_state_trigger_and_valuation_takes_the_row_of_the_contract(machine: Lifecycle) -> None:
    fired = 0
    for (state, trigger), rows in oracle.table().items():
        for holds, facts in oracle.valuations():
            expected = next(row for row in rows if row[0] is None or row[0] in holds)
            subject = Subject(state)
            row = machine.fire(subject, trigger, facts)
            assert (row.source, row.trigger, row.guard, row.to, row.sets) == (state, trigger, *expected)
            assert subject.state == (state if row.to == "(same)" else row.to)
            fired += 1
    assert fired == 59 * 512


def test_every_state_refuses_every_other_trigger_without_asking_anything(machine: Lifecycle) -> None:
    unaskable = object()
    refused = 0
    for state in machine.declaration.states:
        for trigger in TRIGGERS.keys() - set(machine.legal[state]):
            subject = Subject(state)
            with pytest.raises(IllegalTransition, match=f"'{state}' does not take '{trigger}'; it takes "):
                machine.fire(subject, trigger, unaskable)  # type: ignore[arg-type]
            assert subject.state == state
            refused += 1
    assert refused == 17 * 15 - 59


def test_an_illegal_trigger_names_the_state_the_trigger_and_what_would_be_legal_and_changes_nothing(
    machine: Lifecycle,
) -> None:
    subject = Subject("created")
    with pytest.raises(IllegalTransition) as caught:
        machine.fire(subject, "step", Facts())
    assert str(caught.value) == "'created' does not take 'step'; it takes open, close, cancel, errored"
    assert subject.state == "created"
    assert caught.value.__context__ is None


def test_a_trigger_that_does_not_exist_is_answered_with_the_nearest_one(machine: Lifecycle) -> None:
    subject = Subject("waiting")
    with pytest.raises(IllegalTransition) as caught:
        machine.fire(subject, "stepp", Facts())
    assert str(caught.value) == (
        "there is no trigger 'stepp'; did you mean 'step'? (in 'waiting': it takes step, stop, close, errored, cancel)"
    )
    assert subject.state == "waiting"


def test_a_refused_firing_says_why_in_the_words_of_the_guards_and_changes_nothing() -> None:
    shipped = load_machine()
    created = shipped.state("created")
    guarded = evolve(created, rows=tuple(row for row in created.rows if row.trigger != "open" or row.guard))
    machine = compile_machine(declare([guarded, *(s for s in shipped.states.values() if s.name != "created")]))
    subject = Subject("created")
    with pytest.raises(IllegalTransition) as caught:
        machine.fire(subject, "open", Facts())
    assert str(caught.value) == (
        "'created' refuses 'open': to aborted: the runtime is the rollout's own, or its owner has not stopped it; "
        "to booting: the task has no prompt, and no user will open the exchange; "
        "it takes open, close, cancel, errored"
    )
    assert subject.state == "created"
    assert machine.fire(subject, "open", Facts(opens_conversation=True)).to == "booting"


@pytest.mark.parametrize("answer", [1, 0, "yes", "", None])
def test_a_fact_that_is_not_exactly_a_bool_is_a_type_error_and_changes_nothing(
    machine: Lifecycle, answer: object
) -> None:
    subject = Subject("created")
    with pytest.raises(TypeError, match=r"the fact 'runtime_lost' must be True or False, not "):
        machine.fire(subject, "open", Facts(runtime_lost=answer))  # type: ignore[arg-type]
    assert subject.state == "created"


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_what_a_fact_raises_comes_out_and_changes_nothing(machine: Lifecycle, error: BaseException) -> None:
    class Broken(Facts):
        @property
        def model_failed(self) -> bool:
            raise error

        @model_failed.setter
        def model_failed(self, value: bool) -> None: ...

    subject = Subject("stepping")
    with pytest.raises(type(error)):
        machine.fire(subject, "segment_ended", Broken())
    assert subject.state == "stepping"


def test_a_guard_that_fires_its_own_subject_is_found_out_instead_of_losing_the_inner_move(machine: Lifecycle) -> None:
    subject = Subject("created")

    class Meddling(Facts):
        @property
        def runtime_lost(self) -> bool:
            machine.fire(subject, "cancel", Facts())
            return False

        @runtime_lost.setter
        def runtime_lost(self, value: bool) -> None: ...

    with pytest.raises(RuntimeError, match="the guard 'runtime_lost' moved its rollout out of 'created'"):
        machine.fire(subject, "open", Meddling(opens_conversation=True))
    assert subject.state == "aborted"


def test_facts_of_rows_behind_the_one_that_is_taken_are_not_asked(machine: Lifecycle) -> None:
    asked: list[str] = []

    class Noting:
        def __getattr__(self, name: str) -> bool:
            asked.append(name)
            return name == "model_failed"

    machine.fire(Subject("stepping"), "segment_ended", Noting())
    assert asked == ["agent_survives", "model_failed"]


def test_no_firing_moves_anything_when_the_library_executes_nothing(
    machine: Lifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transitions.core.Transition, "execute", lambda self, event_data: False)
    for state, legal in machine.legal.items():
        for trigger in legal:
            subject = Subject(state)
            with pytest.raises(IllegalTransition, match="its transitions did not execute"):
                machine.fire(subject, trigger, Facts())
            assert subject.state == state


def test_the_library_and_nobody_else_sets_the_state(machine: Lifecycle, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    original = transitions.core.Machine.set_state

    def noting(self: transitions.core.Machine, state: str, model: object = None) -> None:
        seen.append(state)
        original(self, state, model)

    monkeypatch.setattr(transitions.core.Machine, "set_state", noting)
    subject, facts = Subject("created"), Facts(opens_conversation=True, advanced=True)
    verbs = ["open", "booted", "ready", "step", "segment_ended", "close", "closed", "finalized", "scored", "released"]
    history = [machine.fire(subject, trigger, facts).target for trigger in [*verbs, "close", "cancel"]]
    assert seen == history[:-2]
    assert history[-3:] == ["completed"] * 3


def test_nothing_in_the_package_assigns_an_attribute_called_state() -> None:
    package = Path(rollout_fsm.machine.__file__).parents[1]
    targets = [
        f"{path.name}:{node.lineno}"
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store)
    ]
    assert targets == []


def test_subjects_are_never_registered_and_are_freed_without_the_collector(machine: Lifecycle) -> None:
    @define(eq=False, weakref_slot=True)
    class Fleeting:
        state: str

    gc.collect()
    gc.disable()
    try:
        subject = Fleeting("created")
        gone = weakref.ref(subject)
        machine.fire(subject, "open", Facts(opens_conversation=True))
        try:
            machine.fire(subject, "step", Facts())
        except IllegalTransition as refusal:
            message = str(refusal)
        assert message.startswith("'booting' does not take 'step'")
        del subject
        assert gone() is None
    finally:
        gc.enable()
    assert machine.machine.models == []


def test_the_machine_is_the_plain_one_with_nothing_hooked_in(machine: Lifecycle) -> None:
    library = machine.machine
    assert type(library).__mro__[1] is transitions.core.Machine
    assert not library.has_queue
    assert library.initial is None
    hooks = [
        library.prepare_event,
        library.before_state_change,
        library.after_state_change,
        library.finalize_event,
        library.on_exception,
        library.on_final,
    ]
    assert hooks == [[]] * 6
    assert all(not state.on_enter and not state.on_exit for state in library.states.values())


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("add_model", (Subject("created"),)),
        ("remove_model", (Subject("created"),)),
        ("add_state", ("limbo",)),
        ("add_states", (["limbo"],)),
        ("add_transition", ("leap", "created", "completed")),
        ("add_transitions", ([["leap", "created", "completed"]],)),
        ("add_ordered_transitions", ()),
        ("remove_transition", ("open",)),
        ("dispatch", ("open",)),
    ],
)
def test_a_compiled_machine_takes_no_change_by_method(
    machine: Lifecycle, method: str, arguments: tuple[object, ...]
) -> None:
    with pytest.raises(TypeError, match=r"the machine is compiled from the declared states; edit those instead"):
        getattr(machine.machine, method)(*arguments)


@pytest.mark.parametrize(
    "name", ["on_exception", "before_state_change", "finalize_event", "states", "events", "initial"]
)
def test_a_compiled_machine_takes_no_change_by_assignment(machine: Lifecycle, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}: the machine is compiled"):
        setattr(machine.machine, name, [])


def test_looking_at_the_transitions_of_a_state_makes_no_trigger_legal(machine: Lifecycle) -> None:
    event = machine.machine.events["step"]
    with pytest.raises(KeyError):
        event.transitions["created"]
    with pytest.raises(TypeError):
        event.transitions["created"] = []
    with pytest.raises(IllegalTransition, match="does not take"):
        machine.fire(Subject("created"), "step", Facts())


def test_what_a_state_takes_is_known_without_firing(machine: Lifecycle) -> None:
    assert machine.legal["waiting"] == ("step", "stop", "close", "errored", "cancel")
    assert machine.takes("waiting", "step")
    assert not machine.takes("closing", "cancel")
    assert set(machine.legal) == set(machine.declaration.states)


def test_a_row_to_a_state_that_does_not_exist_is_refused_when_compiling() -> None:
    shipped = load_machine()
    closing = evolve(shipped.state("closing"), rows=(Row(source="closing", trigger="closed", to="limbo"),))
    with pytest.raises(ValueError, match="limbo"):
        compile_machine(declare([closing, *(s for s in shipped.states.values() if s.name != "closing")]))


def test_the_process_has_one_machine(machine: Lifecycle) -> None:
    assert lifecycle() is machine


def test_importing_the_machine_compiles_nothing_and_leaves_the_librarys_logger_alone() -> None:
    program = (
        "import logging; from rollout_fsm.machine.lifecycle import lifecycle\n"
        "print(lifecycle.cache_info().currsize, logging.getLogger('transitions').level)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", str(logging.NOTSET)]


def walks(machine: Lifecycle, depth: int) -> Iterator[tuple[str, ...]]:
    """Every sequence of legal triggers of this length from `created`, with all facts false and a prompt."""
    facts = Facts(opens_conversation=True)

    def onward(state: str, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if len(path) == depth:
            yield path
            return
        for trigger in machine.legal[state]:
            subject = Subject(state)
            machine.fire(subject, trigger, facts)
            yield from onward(subject.state, (*path, trigger))

    yield from onward("created", ())


def test_rollouts_that_share_the_machine_do_not_disturb_each_other(machine: Lifecycle) -> None:
    facts = Facts(opens_conversation=True)
    paths = list(walks(machine, 5))
    assert len(paths) > 500
    alone = []
    for path in paths:
        subject = Subject("created")
        alone.append([machine.fire(subject, trigger, facts).target for trigger in path])
    together: list[list[str]] = [[] for _ in paths]
    subjects = [Subject("created") for _ in paths]
    for turn in range(5):
        for index, path in enumerate(paths):
            together[index].append(machine.fire(subjects[index], path[turn], facts).target)
    assert together == alone
