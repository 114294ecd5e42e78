"""What happens when …: the questions of a review, answered by following the declared rows to a final state.

A question only says which rows it is about; every word of an answer is read off the rows, so it cannot go stale. What
follows a row is the plain case: a resting state is closed, an activity succeeds, no guard holds. A cancellation that
meets a shielded state is held back and comes in the next state that takes it (L71).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Literal

from attrs import evolve, field, frozen

from rollout_fsm.machine.declaration import Declaration, Row, State
from rollout_fsm.machine.guards import GuardName
from rollout_fsm.machine.paths import by_trigger
from rollout_fsm.machine.vocabulary import ACTIVITIES, GIVEN, ONGOING, Condition, ErrorUse, Trigger

Scored = Literal["yes", "in part", "no", "as it was"]


@frozen(kw_only=True)
class Question:
    """Something that happens to a rollout, and the rows that it is about.

    They are those of `triggers`, and those that need one of `guards`, in the states for which `where` says so; without
    those that need a guard of `fails`, which is taken not to hold.
    """

    title: str
    triggers: tuple[Trigger, ...] = ()
    guards: tuple[GuardName, ...] = ()
    fails: tuple[GuardName, ...] = ()
    where: Callable[[State], bool] = lambda state: True

    def rows(self, state: State) -> tuple[Row, ...]:
        """The state's rows that it is about, in order."""
        return tuple(
            row
            for row in state.rows
            if self.where(state)
            and row.guard not in self.fails
            and (row.trigger in self.triggers or row.guard in self.guards)
        )


def _asks(guard: GuardName) -> Callable[[State], bool]:
    return lambda state: any(row.guard == guard for row in state.rows)


QUESTIONS = (
    Question(
        title="The agent budget runs out",
        triggers=("timed_out",),
        fails=("runtime_lost",),
        where=lambda state: state.bound == "agent",
    ),
    Question(title="A limit is reached or a stop fires", triggers=("refused", "stop"), guards=("stop_requested",)),
    Question(
        title="The harness does nothing",
        triggers=("segment_ended",),
        fails=("advanced",),
        where=_asks("advanced"),
    ),
    Question(title="It is cancelled", triggers=("cancel",)),
    Question(title="Something fails", triggers=("errored",), fails=("runtime_lost",)),
    Question(
        title="Another time bound runs out",
        triggers=("timed_out",),
        fails=("runtime_lost",),
        where=lambda state: state.bound != "agent",
    ),
    Question(title="The owner has stopped a borrowed runtime", guards=("runtime_lost",)),
    Question(title="It is closed", triggers=("close",)),
)
"""What reviewers ask, first what they ask first."""


@frozen(kw_only=True)
class Answer:
    """What happens in these states on these triggers.

    `path` is what follows, the first row included; it is empty where the state stays. `guard` is the first row's,
    "else" after others, None where it is not a matter of guards. `held` says that the trigger waits for the next
    state that takes it. `condition` is the stop condition that the path sets, None if it leaves the one that is set;
    `error` is what becomes of the errors that came with the trigger.
    """

    states: tuple[str, ...]
    triggers: tuple[str, ...]
    path: tuple[Row, ...]
    guard: str | None = None
    held: bool = False
    condition: Condition | None = None
    scored: Scored = "no"
    error: ErrorUse | None = None

    @property
    def then(self) -> tuple[tuple[str, str], ...]:
        """The path as (trigger, state after it); the first step has all its triggers."""
        steps = tuple((str(row.trigger), row.target) for row in self.path)
        if not steps or self.held:
            return steps
        return ((" or ".join(self.triggers), steps[0][1]), *steps[1:])


def answers(declaration: Declaration, question: Question) -> tuple[Answer, ...]:
    """The answers to the question: triggers, then states, of which the same is to be said are one."""
    reader = _Reader(declaration)
    found = [answer for state in declaration.states.values() for answer in reader.answers(state, question)]
    found = [
        evolve(alike[0], triggers=_union(each.triggers for each in alike))
        for alike in _grouped(found, lambda each: evolve(each, triggers=(), path=_nameless(each)))
    ]
    return tuple(
        evolve(alike[0], states=_union(each.states for each in alike))
        for alike in _grouped(found, lambda each: evolve(each, states=(), path=_nameless(each)))
    )


@frozen
class _Reader:
    declaration: Declaration
    settled: frozenset[str] = field(init=False)
    """States in which a stop condition is set, whatever way led there."""
    measured: frozenset[str] = field(init=False)
    """States in which scoring has succeeded, whatever way led there."""

    @settled.default
    def _settled(self) -> frozenset[str]:
        return _always(self.declaration, lambda row: _says(row) is not None)

    @measured.default
    def _measured(self) -> frozenset[str]:
        return _always(self.declaration, self._measures)

    def answers(self, state: State, question: Question) -> Iterator[Answer]:
        rows = question.rows(state)
        for row in rows:
            earlier = [other for other in rows[: rows.index(row)] if other.trigger == row.trigger]
            yield self._answer(state, row, guard=row.guard or ("else" if earlier else None))
        if "cancel" in question.triggers and state.kind == "shielded" and not rows:
            path = self._held(state)
            yield Answer(
                states=(state.name,),
                triggers=("cancel",),
                path=path,
                held=True,
                condition=self._condition(path),
                scored=self._scored(path),
            )

    def _answer(self, state: State, row: Row, *, guard: str | None) -> Answer:
        path = () if row.same else (row, *self._onward(row.target))
        return Answer(
            states=(state.name,),
            triggers=(row.trigger,),
            path=path,
            guard=guard,
            condition=self._condition(path),
            scored=self._scored(path),
            error=row.error,
        )

    def _onward(self, name: str) -> Iterator[Row]:
        """The plain case from here to the end."""
        passed = {name}
        while (row := self._plain(self.declaration.states[name])) is not None and row.target not in passed:
            yield row
            name = row.target
            passed.add(name)

    def _held(self, state: State) -> tuple[Row, ...]:
        """The plain case, until a state takes the cancellation."""
        path: list[Row] = []
        for row in self._onward(state.name):
            path.append(row)
            cancel = next((each for each in self.declaration.states[row.target].rows if each.trigger == "cancel"), None)
            if cancel is not None and not cancel.same:
                return (*path, cancel, *self._onward(cancel.target))
        return tuple(path)

    def _plain(self, state: State) -> Row | None:
        """The row that a state is left by if nothing is the matter; None at the end."""
        rows = by_trigger(state).get("close" if state.activity is None else _success(state), ())
        return next((row for row in rows if row.guard is None and not row.same), None)

    def _condition(self, path: tuple[Row, ...]) -> Condition | None:
        if not path or path[0].source in self.settled:
            return None
        return next((says for row in path if (says := _says(row)) is not None), None)

    def _scored(self, path: tuple[Row, ...]) -> Scored:
        if any(self._measures(row) or row.source in self.measured for row in path):
            return "yes"
        if any(self._scores(row.source) for row in path):
            return "in part"
        begun = _reached(self.declaration, (name for name in self.declaration.states if self._scores(name)))
        return "as it was" if path and path[0].source in begun else "no"

    def _scores(self, name: str) -> bool:
        return self.declaration.states[name].activity == "score"

    def _measures(self, row: Row) -> bool:
        return self._scores(row.source) and row.trigger == _success(self.declaration.states[row.source])


def _success(state: State) -> str:
    """The outcome of the state's activity with which it is done and nothing went wrong: it is declared first."""
    assert state.activity is not None
    return next(outcome for outcome in ACTIVITIES[state.activity] if outcome not in ONGOING)


def _says(row: Row) -> Condition | None:
    """The stop condition that is set when the row has been taken; "(given)" also where the caller has asked for one."""
    return GIVEN if row.trigger == "stop" or row.guard == "stop_requested" else row.sets


def _always(declaration: Declaration, says: Callable[[Row], bool]) -> frozenset[str]:
    """The states that no way from the initial one reaches without a row of which this is true."""
    silent = _reached(declaration, [declaration.initial.name], lambda row: not says(row))
    return frozenset(declaration.states) - silent


def _reached(
    declaration: Declaration, start: Iterable[str], by: Callable[[Row], bool] = lambda row: True
) -> frozenset[str]:
    """These states, and those to which rows of which this is true lead from them."""
    queue = list(start)
    reached = set(queue)
    while queue:
        for row in declaration.states[queue.pop()].rows:
            if row.target not in reached and by(row):
                reached.add(row.target)
                queue.append(row.target)
    return frozenset(reached)


def _grouped(found: Iterable[Answer], key: Callable[[Answer], Answer]) -> list[list[Answer]]:
    groups: dict[Answer, list[Answer]] = {}
    for each in found:
        groups.setdefault(key(each), []).append(each)
    return list(groups.values())


def _union(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(names)))


def _nameless(answer: Answer) -> tuple[Row, ...]:
    """The path without what its first row says of where it began."""
    if answer.held:
        return answer.path
    return tuple(
        evolve(row, source="", trigger="errored", guard=None, reason=None) if place == 0 else row
        for place, row in enumerate(answer.path)
    )
