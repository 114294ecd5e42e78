"""Every life that a rollout could have on the declared machine: its situations, and the steps from one to the next.

A situation is a state with all that the guards ask about. The facts change by what the rules let happen, and by
nothing else: a turn commits or fails while a segment runs, another task says `stop`, the owner of a borrowed runtime
stops it, an agent survives its killing. Turns are bounded, so there are finitely many situations. No clock and no
driver is known here; who searches these lives, and for what, is in search.py.
"""

from collections.abc import Iterator, Mapping
from itertools import product

from attrs import evolve, frozen

from rollout_fsm.machine.declaration import Declaration, Row, State
from rollout_fsm.machine.guards import GUARDS
from rollout_fsm.machine.paths import by_trigger, can_be_fired
from rollout_fsm.machine.vocabulary import ACTIVITIES, GIVEN, ONGOING

TURNS = 1
"""How many turns the model has in it: enough for a segment after which the exchange goes on, and a silent one."""

SEGMENT_ENDS = tuple(outcome for outcome in ACTIVITIES["segment"] if outcome not in ONGOING)
"""The outcomes with which a segment is over, by itself or because it was left early (L13)."""


@frozen(kw_only=True, cache_hash=True)
class Life:
    """One situation of one rollout. The first five facts never change in a life."""

    opens_conversation: bool
    has_user: bool
    borrowed: bool
    expiry_stops: bool
    no_progress_fails: bool
    state: str
    turns: int = TURNS
    condition: str | None = None
    """The stop condition."""
    runtime_lost: bool = False
    model_failed: bool = False
    agent_survives: bool = False
    advanced: bool = False
    failed: bool = False
    """An error is on the trace."""

    def holds(self, guard: str) -> bool:
        """Whether this guard holds now."""
        return self.condition is not None if guard == "stop_requested" else bool(getattr(self, guard))

    def __str__(self) -> str:
        facts = [guard for guard in GUARDS if guard != "stop_requested" and self.holds(guard)]
        condition = [f"stop condition {self.condition}"] if self.condition else []
        return f"{self.state} ({', '.join(facts + condition) or 'no guard holds'})"


@frozen(kw_only=True)
class Step:
    """From one situation to the next: by a row, or, with none, by something outside that changed a fact."""

    life: Life
    """As it was when the trigger came, with what the outcome brought along."""
    row: Row | None
    then: Life


def births(declaration: Declaration) -> Iterator[Life]:
    """Every rollout that can be minted: a task with or without prompt and user, each policy, each kind of runtime."""
    for opens, user, borrowed, stops, fails in product((False, True), repeat=5):
        if opens or not user:  # a user opens the conversation
            yield Life(
                opens_conversation=opens,
                has_user=user,
                borrowed=borrowed,
                expiry_stops=stops,
                no_progress_fails=fails,
                state=declaration.initial.name,
            )


@frozen(kw_only=True)
class Place:
    """A state as lives meet it: with the rows of every trigger that somebody fires there."""

    state: State
    rows: Mapping[str, tuple[Row, ...]]


def places_of(declaration: Declaration) -> Mapping[str, Place]:
    """Every state of the declaration."""
    return {
        name: Place(
            state=state,
            rows={trigger: rows for trigger, rows in by_trigger(state).items() if can_be_fired(state, trigger)},
        )
        for name, state in declaration.states.items()
    }


def steps(places: Mapping[str, Place], life: Life) -> Iterator[Step]:
    """All that can happen next to this rollout."""
    place = places[life.state]
    for then in _outside(place, life):
        yield Step(life=life, row=None, then=then)
    for trigger, rows in place.rows.items():
        for arrived in _arrivals(place, life, trigger):
            row = next((row for row in rows if row.guard is None or arrived.holds(row.guard)), None)
            if row is not None:
                yield Step(life=arrived, row=row, then=arrived if row.same else _after(places, arrived, row))


def _outside(place: Place, life: Life) -> Iterator[Life]:
    state = place.state
    if life.borrowed and not life.runtime_lost and state.kind != "final":
        yield evolve(life, runtime_lost=True)
    if state.group in ("opening", "exchange") and life.condition is None and "stop" not in place.rows:
        yield evolve(life, condition=GIVEN)  # `stop` in passing moves nothing and is noted (L22)
    if state.activity == "segment":
        if life.turns:
            yield evolve(life, turns=life.turns - 1, advanced=True, model_failed=False)
        if not life.model_failed:
            yield evolve(life, model_failed=True)


def _arrivals(place: Place, life: Life, trigger: str) -> Iterator[Life]:
    """The situation in which the trigger is judged, with what came along with it."""
    if trigger in ("stop", "refused"):
        yield life if life.condition else evolve(life, condition=GIVEN)
        return
    yield life
    if place.state.activity == "segment" and trigger in SEGMENT_ENDS:
        yield evolve(life, agent_survives=True)


def _after(places: Mapping[str, Place], life: Life, row: Row) -> Life:
    begins = places[row.to].state.activity == "segment" and places[row.source].state.activity != "segment"
    return evolve(
        life,
        state=row.to,
        condition=life.condition or row.sets,
        failed=life.failed or row.error == "record" or life.agent_survives,  # a survivor is an error of its own (L13)
        model_failed=life.model_failed and not begins,
        agent_survives=life.agent_survives and not begins,
        advanced=life.advanced and not begins,
    )
