"""Subjects on the compiled machine, started anywhere and fired at random, with the contract's own table as the model.

A walk starts in any state, since an absorbing end eats walks that start at the beginning; legal triggers are drawn more
often than illegal ones, `cancel` seldom, and one rule aims at a single row. Together the runs of a test take every row
of the table, which is asserted. Every valuation of every row is tests/machine/test_lifecycle's.
"""

from collections import deque
from collections.abc import Collection
from typing import Any, ClassVar

import pytest
from attrs import define, field
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from rollout_fsm.machine import IllegalTransition
from rollout_fsm.machine.conformance import Step, replay
from rollout_fsm.machine.lifecycle import lifecycle
from tests.machine import oracle
from tests.machine.oracle import GUARDS, Subject
from tests.profiles import examples

pytestmark = pytest.mark.hypothesis

Row = tuple[str, str, str | None]
"""A row of the contract: source, trigger, guard."""

TABLE = oracle.table()
ROWS: list[Row] = [(source, trigger, guard) for (source, trigger), rows in TABLE.items() for guard, _, _ in rows]
KINDS = {name: kind for name, kind, *_ in map(oracle.cells, oracle.STATES.strip().splitlines())}
TAKES = {name: [trigger for state, trigger in TABLE if state == name] for name in KINDS}
TRIGGERS = sorted({trigger for _, trigger in TABLE})
UNKNOWN = ("stepp", "", "Open", "to_completed")


def ways() -> dict[str, list[Step]]:
    """A shortest path from `created` to each state, by the contract's table."""
    found: dict[str, list[Step]] = {"created": []}
    waiting = deque(found)
    while waiting:
        here = waiting.popleft()
        for trigger in TAKES[here]:
            for _, target, _ in TABLE[here, trigger]:
                if target != "(same)" and target not in found:
                    found[target] = [*found[here], (trigger, here, target)]
                    waiting.append(target)
    return found


WAYS = ways()


@define(eq=False)
class Run:
    """A subject, and where the model says that it must be."""

    subject: Subject
    state: str
    path: list[Step]

    @classmethod
    def begun(cls, state: str) -> "Run":
        return cls(Subject(state), state, list(WAYS[state]))


@define(eq=False)
class Asked:
    """Facts that note which of them were asked."""

    holds: Collection[str]
    lie: tuple[str, object] = ("", None)
    """A fact, and what it says instead."""
    asked: list[str] = field(factory=list)

    def __getattr__(self, name: str) -> Any:
        if name not in GUARDS:
            raise AttributeError(name)
        self.asked.append(name)
        return self.lie[1] if self.lie[0] == name else name in self.holds


states = st.sampled_from(sorted(KINDS))
valuations = st.integers(0, 2 ** len(GUARDS) - 1).map(
    lambda bits: [name for place, name in enumerate(GUARDS) if bits >> place & 1]
)
lies: st.SearchStrategy[tuple[str, object]] = st.tuples(
    st.sampled_from(GUARDS), st.sampled_from([1, 0, "yes", None, [], NotImplemented])
)
neighbours = st.tuples(st.integers(1, len(ROWS)), st.integers(0, len(ROWS) - 1)).map(
    lambda drawn: [*ROWS, *ROWS][drawn[1] : drawn[1] + drawn[0]]
)
"""Rows that stand together in the table: one draw for many, so that a few runs take them all."""


class Runs(RuleBasedStateMachine):
    """Three subjects; one of them is at hand, and none may notice the others."""

    taken: ClassVar[set[Row]]
    """The rows that were taken, over all runs: a subclass has its own."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = lifecycle()
        self.runs = [Run.begun("created")] * 3
        self.at = 0

    @initialize(starts=st.tuples(states, states, states), rows=neighbours)
    def begin(self, starts: tuple[str, ...], rows: list[Row]) -> None:
        self.aim(rows, ())
        self.runs = [Run.begun(state) for state in starts]

    @property
    def run(self) -> Run:
        return self.runs[self.at]

    @property
    def likely(self) -> list[str]:
        """What the subject at hand takes, `cancel` once and all else often."""
        usual = [trigger for trigger in TAKES[self.run.state] if trigger != "cancel"]
        return [*usual * 5, *TAKES[self.run.state]]

    @rule(to=st.integers(0, 2))
    def turn(self, to: int) -> None:
        self.at = to

    @rule(trigger=st.runner().flatmap(lambda runs: st.sampled_from(runs.likely)), holds=valuations)
    def fire(self, trigger: str, holds: Collection[str]) -> None:
        self._fire(trigger, holds)

    @rule(trigger=st.sampled_from([*TRIGGERS, *UNKNOWN]), holds=valuations)
    def fire_anything(self, trigger: str, holds: Collection[str]) -> None:
        self._fire(trigger, holds)

    @rule(rows=neighbours, holds=valuations)
    def aim(self, rows: list[Row], holds: Collection[str]) -> None:
        """For each row a subject in its state, and facts that make it the first whose guard holds."""
        for row in rows:
            source, trigger, guard = row
            guards = [other for other, _, _ in TABLE[source, trigger]]
            self.runs[self.at] = Run.begun(source)
            self._fire(trigger, [*set(holds).difference(guards[: guards.index(guard)]), guard or ""])
            assert row in self.taken

    @rule(trigger=st.runner().flatmap(lambda runs: st.sampled_from(runs.likely)), lie=lies)
    def fire_with_a_fact_that_is_no_bool(self, trigger: str, lie: tuple[str, object]) -> None:
        if lie[0] not in {guard for guard, _, _ in TABLE[self.run.state, trigger]}:
            self._fire(trigger, ())
            return
        with pytest.raises(TypeError, match=f"the fact '{lie[0]}' must be True or False"):
            self.machine.fire(self.run.subject, trigger, Asked((), lie))

    @invariant()
    def every_subject_is_where_the_model_says_and_none_is_elsewhere(self) -> None:
        assert [run.subject.state for run in self.runs] == [run.state for run in self.runs]
        assert {run.state for run in self.runs} <= KINDS.keys()

    @invariant()
    def what_was_recorded_is_a_legal_path_and_a_finished_one_exactly_at_an_end(self) -> None:
        path, final = self.run.path, KINDS[self.run.state] == "final"
        assert replay(self.machine.declaration, path, finished=False) == []
        assert (replay(self.machine.declaration, path) == []) is final

    @invariant()
    def the_machine_holds_no_subject(self) -> None:
        assert self.machine.machine.models == []

    def _fire(self, trigger: str, holds: Collection[str]) -> None:
        """Fire, and see that the machine does what the contract says, or refuses and changes nothing."""
        run, facts = self.run, Asked(holds)
        source = run.state
        rows = TABLE.get((source, trigger), [])
        expected = next((row for row in rows if row[0] is None or row[0] in holds), None)
        if expected is None:
            with pytest.raises(IllegalTransition) as refused:
                self.machine.fire(run.subject, trigger, facts)
            assert repr(source) in str(refused.value)
            assert repr(trigger) in str(refused.value)
            assert all(legal in str(refused.value) for legal in TAKES[source])
            asked: list[str] = []
        else:
            guard, to, sets = expected
            asked = [guard for guard, _, _ in rows[: rows.index(expected) + 1] if guard is not None]
            row = self.machine.fire(run.subject, trigger, facts)
            note(f"subject {self.at}: {source} -{trigger}-> {run.subject.state}, by the row {row}")
            assert (row.source, row.trigger, row.guard, row.to, row.sets) == (source, trigger, guard, to, sets)
            if to != "(same)":
                assert KINDS[source] != "final"
                run.path.append((trigger, source, to))
                run.state = to
            self.taken.add((source, trigger, guard))
        assert facts.asked == asked, f"{source} -{trigger}-> asked {facts.asked} instead of {asked}"


def test_whatever_is_fired_the_machine_does_what_the_contract_says_and_the_runs_take_every_row() -> None:
    class Counted(Runs):
        taken: ClassVar[set[Row]] = set()

    run_state_machine_as_test(Counted, settings=examples(0.4, least=20))
    assert set(ROWS) - Counted.taken == set()
