"""The proofs that need the facts: every life of a rollout is followed to its end, with the turns bounded.

The proofs of check.py look at rows and at paths that no facts forbid. Here the guards hold what they would hold in a
rollout, so that what is found is a life that could happen: one that never ends (S1), one that is stuck (S2), a row that
no life takes (S3), a life that does not go as the rules promise (S4; what they promise is in promises.py).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve, field, frozen

from rollout_fsm.machine.declaration import Declaration, Row, State
from rollout_fsm.machine.fault import Fault
from rollout_fsm.machine.lives import Life, Place, births, places_of, steps
from rollout_fsm.machine.promises import History, broken, told

AWAITED = ("open", "step", "close", "cancel")
"""The caller's triggers that wait for the activity they start; `stop` and `fail` return at once (L23)."""


@frozen(kw_only=True, cache_hash=True)
class Situation:
    """A rollout at one moment of one of its lives. The hash is kept, since situations are looked up again and again."""

    life: Life
    history: History = field(factory=History)


Onward = tuple[tuple[Row | None, int], ...]
"""What can happen next: by a row, or, with none, by something outside that changed a fact; and the situation then."""


@frozen(kw_only=True, eq=False)
class Lives:
    """Every situation that can be reached, nearest first; for each what can happen next, and the shortest way to it."""

    declaration: Declaration
    situations: Sequence[Situation]
    onward: Sequence[Onward]
    ways: Sequence[tuple[Row, ...]]

    def state(self, number: int) -> State:
        """The state that a situation is in."""
        return self.declaration.states[self.situations[number].life.state]

    def fault(self, property_: str, number: int, message: str, *further: Row) -> Fault:
        life = self.situations[number].life
        path = (*self.ways[number], *further)
        return Fault(property=property_, message=f"{life}: {message}", states=(life.state,), path=path)


def follow(declaration: Declaration) -> Lives:
    """Follow every life of the declared machine."""
    places = places_of(declaration)
    situations = [Situation(life=life) for life in births(declaration)]
    numbers = {situation: number for number, situation in enumerate(situations)}
    ways: list[tuple[Row, ...]] = [()] * len(situations)
    onward: list[Onward] = []
    for here in situations:  # the list grows while it is walked, so the nearest come first
        way, found = ways[len(onward)], []
        for row, there in _onward(places, here):
            number = numbers.setdefault(there, len(situations))
            if number == len(situations):
                situations.append(there)
                ways.append(way if row is None or row.same else (*way, row))
            found.append((row, number))
        onward.append(tuple(found))
    return Lives(declaration=declaration, situations=situations, onward=onward, ways=ways)


def _onward(places: Mapping[str, Place], here: Situation) -> Iterator[tuple[Row | None, Situation]]:
    for step in steps(places, here.life):
        history = here.history
        if step.row is not None and (not step.row.same or step.row.trigger == "refused"):
            state, then = places[here.life.state].state, places[step.then.state].state
            history = told(history, step.life, state, step.row.trigger, then)
        elif step.then.condition != here.life.condition:
            history = evolve(history, condition=step.then.condition)  # somebody else's `stop` (L22)
        yield step.row, Situation(life=step.then, history=history)


def search(declaration: Declaration) -> list[Fault]:
    """Every fault that some life shows, property by property; of a declaration that check.py finds sound."""
    lives = follow(declaration)
    return [*_endless(lives), *_stuck(lives), *_untaken(lives), *_unpromised(lives)]


def _endless(lives: Lives) -> Iterator[Fault]:
    onward = [{there for row, there in found if row is None or not row.same} for found in lives.onward]
    circling = _peeled(_peeled(set(range(len(onward))), onward), _backward(onward))
    for here in sorted(circling)[:1]:
        rows = [row for row, there in lives.onward[here] if row is not None and not row.same and there in circling]
        yield lives.fault("S1", here, "can go on for ever without a turn", *rows[:1])


def _backward(onward: Sequence[set[int]]) -> Sequence[set[int]]:
    backward: list[set[int]] = [set() for _ in onward]
    for here, found in enumerate(onward):
        for there in found:
            backward[there].add(here)
    return backward


def _peeled(left: set[int], onward: Sequence[set[int]]) -> set[int]:
    """What is left of a graph when all that cannot be reached from a circle of it is taken away."""
    entries = Counter(there for here in left for there in onward[here] & left)
    outside = [here for here in left if not entries[here]]
    left = set(left)
    for here in outside:
        left.discard(here)
        for there in onward[here] & left:
            entries[there] -= 1
            if not entries[there]:
                outside.append(there)
    return left


def _stuck(lives: Lives) -> Iterator[Fault]:
    reported: set[tuple[str, str]] = set()
    ending = _ending(lives)
    for here, found in enumerate(lives.onward):
        state = lives.state(here)
        if here not in ending and (state.name, "") not in reported:
            reported.add((state.name, ""))
            yield lives.fault("S2", here, "the outcomes of its activities and `close` lead to no end")
        for row in (row for row, _ in found if row is not None and not row.same):
            unawaited = state.activity is None and row.trigger not in AWAITED
            activity = lives.declaration.states[row.to].activity
            if unawaited and activity is not None and (state.name, row.trigger) not in reported:
                reported.add((state.name, row.trigger))
                yield lives.fault("S2", here, f"{row.trigger!r} starts an activity, and nobody waits for it", row)


def _ending(lives: Lives) -> set[int]:
    """The situations from which activities and `close` alone lead to the end: no `cancel`, no help from outside."""
    onward = [
        {
            there
            for row, there in found
            if row is not None and (row.trigger == "close" or (lives.state(here).activity and row.trigger != "cancel"))
        }
        for here, found in enumerate(lives.onward)
    ]
    backward = _backward(onward)
    ending = [here for here in range(len(onward)) if lives.state(here).kind == "final"]
    seen = set(ending)
    for here in ending:
        ending += backward[here] - seen
        seen |= backward[here]
    return seen


def _untaken(lives: Lives) -> Iterator[Fault]:
    taken = {id(row) for found in lives.onward for row, _ in found}
    for row in lives.declaration.rows:
        if id(row) not in taken:
            yield Fault(property="S3", message=f"no life takes {row}", states=(row.source,))


def _unpromised(lives: Lives) -> Iterator[Fault]:
    """The rows with which lives that have kept every promise break one; what follows from that is not said again."""
    breaks = [
        tuple(broken(situation.history, situation.life, lives.state(here)))
        for here, situation in enumerate(lives.situations)
    ]
    reported: set[tuple[int, str]] = set()
    for here, found in enumerate(lives.onward):
        for row, there in found if not breaks[here] else ():
            for promise in breaks[there]:
                if (id(row), promise) not in reported:
                    reported.add((id(row), promise))
                    yield lives.fault("S4", there, promise)
