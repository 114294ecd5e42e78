"""The declaration, compiled into one sealed `transitions.Machine` for the process; `fire` is the only way to move.

The library decides and the library sets the state; nothing here assigns it. Rollouts are never registered with the
machine, so it holds none of them. Only guards run inside a firing, and they are pure, so a firing either moves the
subject or leaves it untouched. Effects are the caller's business, after `fire` has returned. No clock, no task and no
socket is known here.
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NoReturn, Protocol

from attrs import define, field, frozen
from transitions import Machine, MachineError
from transitions.core import Condition, EventData, Transition
from transitions.core import State as LibraryState

from rollout_fsm.machine.declaration import Declaration, Row, shipped
from rollout_fsm.machine.errors import IllegalTransition
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.machine.guards import GUARDS, Facts, Guard


class Subject(Protocol):
    """Whatever has a state. It is born in the declaration's initial state; afterwards only a firing changes it."""

    state: str


@define(eq=False)
class _Firing:
    """One attempt to move: the facts that its guards read, the rows they refused, the row that was taken."""

    facts: Facts
    event: EventData | None = None
    row: Row | None = None
    refused: tuple[tuple[Row, Guard], ...] = ()


class _GuardCondition(Condition):
    """Asks the guard of a row about the facts of the firing, and keeps what it refused."""

    # A Guard, never a string: the library would look a string up on the subject and then import it as a dotted path.
    func: Guard  # type: ignore[assignment]

    def check(self, event_data: EventData) -> bool:
        firing: _Firing
        (firing,) = event_data.args
        firing.event = event_data
        row: Row = event_data.transition.row  # type: ignore[union-attr]
        holds = self.func.test(firing.facts)
        if event_data.model.state != row.source:  # type: ignore[attr-defined]
            raise RuntimeError(
                f"the guard {self.func.name!r} moved its rollout out of {row.source!r} while it was asked about "
                f"{row.trigger!r}; a guard reads facts and changes nothing"
            )
        if not holds:
            firing.refused += ((row, self.func),)
        return holds


class _DeclaredState(LibraryState):
    """A state that is named once and for all, and has nothing to call when it is entered or left."""

    name: str = ""  # in place of the library's property, which asks at each firing what kind of name it is

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self.name = name

    def enter(self, event_data: EventData) -> None:
        """Nothing: effects are the caller's business, after the firing."""

    def exit(self, event_data: EventData) -> None:
        """Nothing."""


class _DeclaredTransition(Transition):
    """A transition that knows its row and tells the firing when it was executed."""

    condition_cls = _GuardCondition

    def __init__(self, *args: Any, row: Row, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row = row

    def execute(self, event_data: EventData) -> bool:
        executed = super().execute(event_data)
        if executed:
            (firing,) = event_data.args
            firing.row = self.row
        return executed


def _refuse(name: str) -> Callable[..., NoReturn]:
    def sealed(self: Machine, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{name}: the machine is compiled from the declared states; edit those instead")

    return sealed


class SealedMachine(Machine):
    """The library's machine, complete once constructed: every method and attribute that could change it refuses."""

    state_cls = _DeclaredState
    transition_cls = _DeclaredTransition

    def __init__(self, declaration: Declaration) -> None:
        super().__init__(
            model=None,
            initial=None,
            auto_transitions=False,
            send_event=True,
            queued=False,
            states=[{"name": state.name, "final": state.kind == "final"} for state in declaration.states.values()],
        )
        for row in declaration.rows:
            self.get_state(row.target)  # the library would notice an unknown one only when it fires
            conditions: Any = [GUARDS[row.guard]] if row.guard else []
            super().add_transition(
                row.trigger, row.source, None if row.same else row.target, conditions=conditions, row=row
            )
        for event in self.events.values():
            # A frozen copy: the library's defaultdict makes an entry on every read, and an entry is a legal trigger.
            rows = {source: tuple(transitions) for source, transitions in event.transitions.items()}
            event.transitions = MappingProxyType(rows)  # type: ignore[assignment]
        self.events = MappingProxyType(self.events)  # type: ignore[assignment]
        self.states = MappingProxyType(self.states)  # type: ignore[assignment]
        self.__dict__["_sealed"] = True

    def get_state(self, state: Any) -> Any:
        """The library's state of this name. Raises ValueError for an unknown one."""
        return self.states[state] if state in self.states else super().get_state(state)

    def callbacks(self, funcs: Any, event_data: EventData) -> None:
        """Runs none: nothing can have been given to a sealed machine. A firing asks for them seven times."""

    def __setattr__(self, name: str, value: object) -> None:
        if "_sealed" in self.__dict__:
            _refuse(name)(self)
        super().__setattr__(name, value)

    def add_states(self, *args: Any, **kwargs: Any) -> None:
        if "_sealed" in self.__dict__:
            _refuse("add_states")(self)
        super().add_states(*args, **kwargs)

    add_model = _refuse("add_model")
    remove_model = _refuse("remove_model")
    add_state = _refuse("add_state")
    add_transition = _refuse("add_transition")
    add_transitions = _refuse("add_transitions")
    add_ordered_transitions = _refuse("add_ordered_transitions")
    remove_transition = _refuse("remove_transition")
    dispatch = _refuse("dispatch")


@frozen(kw_only=True, eq=False)
class Lifecycle:
    """The compiled machine. `legal` names, for each state, the triggers it takes, in the order of its rows.

    `machine` is the library's machine, to look at; subjects move through `fire`.
    """

    declaration: Declaration
    machine: SealedMachine = field(repr=False)
    legal: Mapping[str, tuple[str, ...]] = field(repr=False)
    moving: Mapping[str, frozenset[str]] = field(repr=False)
    """For each state the triggers that can lead out of it."""

    def takes(self, state: str, trigger: str) -> bool:
        """Whether the state has a row for the trigger, whatever its guards say."""
        return trigger in self.legal[state]

    def moves(self, state: str, trigger: str) -> bool:
        """Whether the trigger can lead out of the state: it has a row for it that is more than an answer."""
        return trigger in self.moving[state]

    def fire(self, subject: Subject, trigger: str, facts: Facts) -> Row:
        """Take the first row of the subject's state for this trigger whose guard holds, and return it.

        The library sets `subject.state`, except for a `(same)` row, which is an answer and moves nothing.
        Raises IllegalTransition where there is no such row: unknown trigger, no row here, or every guard refused; the
        message names the state, what it takes, and the refused guards' words. Raises TypeError for a fact that is not a
        bool, RuntimeError for a guard that moves its own subject, and whatever else a fact raises. In each of these
        cases this firing has changed nothing.
        """
        event = self.machine.events.get(trigger)
        firing = _Firing(facts)
        if event is not None:
            try:
                event.trigger(subject, firing)
            except MachineError as no_row:
                # The library hangs it on a frame that it holds itself; the cycle would keep the subject.
                no_row.__traceback__ = None
            except BaseException:
                if firing.event is not None:
                    firing.event.error = None  # the same with what a fact raised: the library kept it here
                raise
            finally:
                firing.event = None
        if firing.row is None:
            raise IllegalTransition(self._refusal(subject.state, trigger, firing))
        return firing.row

    def _refusal(self, state: str, trigger: str, firing: _Firing) -> str:
        takes = f"it takes {', '.join(self.legal[state]) or 'nothing'}"
        if trigger not in self.machine.events:
            return f"there is no trigger {trigger!r}{suggestion(trigger, self.machine.events)} (in {state!r}: {takes})"
        if not self.takes(state, trigger):
            return f"{state!r} does not take {trigger!r}; {takes}"
        refused = "; ".join(f"to {row.to}: {guard.fails}" for row, guard in firing.refused)
        why = refused or "its transitions did not execute"
        return f"{state!r} refuses {trigger!r}: {why}; {takes}"


def compile_machine(declaration: Declaration) -> Lifecycle:
    """The declaration as something that can be fired. Raises ValueError for a row to a state that does not exist."""
    legal = {
        name: tuple(dict.fromkeys(row.trigger for row in state.rows)) for name, state in declaration.states.items()
    }
    moving = {
        name: frozenset(row.trigger for row in state.rows if not row.same) for name, state in declaration.states.items()
    }
    machine = SealedMachine(declaration)
    return Lifecycle(
        declaration=declaration, machine=machine, legal=MappingProxyType(legal), moving=MappingProxyType(moving)
    )


@cache
def lifecycle() -> Lifecycle:
    """The shipped machine, loaded and compiled once for the process, at the first use."""
    return compile_machine(shipped())
