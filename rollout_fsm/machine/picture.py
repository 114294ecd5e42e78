"""The declaration as a picture: groups of states and labelled arrows between them, before any drawing language.

What the renderers share is decided here, so that they agree and it can be tested without one: which arrows are merged,
which are lifted to a group, what a label says. `(same)` rows are answers, not arrows; only the table of transitions has
them.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence

from attrs import field, frozen

from rollout_fsm.machine.declaration import Declaration, Row, State
from rollout_fsm.machine.vocabulary import GROUPS, TRIGGERS, Condition, Group

UNSAID: frozenset[Condition | None] = frozenset({None, "error", "cancelled"})
"""Stop conditions that a label leaves out, since where the arrow leads says them."""


@frozen(kw_only=True)
class Label:
    """What is written at an arrow: its triggers, the guard, and the stop condition that is set."""

    triggers: tuple[str, ...]
    guard: str | None = None
    sets: Condition | None = None

    @property
    def says_condition(self) -> bool:
        """Whether the stop condition is written; where the arrow leads says it for some."""
        return self.sets not in UNSAID

    def lines(self, longest: int) -> tuple[str, ...]:
        """The label, broken before a trigger, a guard or a stop condition where a line would be longer."""
        guard = [f"[{self.guard}]"] if self.guard else []
        sets = [f"/ {self.sets}"] if self.says_condition else []
        first, *words = [*", ".join(self.triggers).split(), *guard, *sets]
        lines = [first]
        for word in words:
            if len(lines[-1]) + 1 + len(word) <= longest:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        return tuple(lines)

    def __str__(self) -> str:
        (line,) = self.lines(sys.maxsize)
        return line


@frozen(kw_only=True)
class Arrow:
    """From a state, or from a whole group (`lifted`), to a state. `leaves` names every state that it stands for."""

    source: str
    target: str
    labels: tuple[Label, ...]
    leaves: frozenset[str]
    lifted: bool = False


@frozen(kw_only=True)
class Hop:
    """One step of a path that is shown on the picture; `at` in seconds since the path began, None to leave it out."""

    trigger: str
    source: str
    target: str
    at: float | None = None

    def told(self, number: int, *, where: bool = False) -> str:
        """The step with its number, its time and, if asked for, the state it was taken in."""
        time = "" if self.at is None else f", {self.at:.{3 if abs(self.at) < SHORT else 1}f} s"
        return f"({number}) {self.trigger}{f' in {self.source}' if where else ''}{time}"


SHORT = 10.0
"""Seconds up to which a time is told to the millisecond."""

MOST = 6
"""How many hops along one arrow are told, before those in their middle are only counted."""


@frozen(kw_only=True)
class Picture:
    """What is drawn. `steps` has, for a pair of states, the numbered hops of the path that go from one to the other."""

    title: str = "The rollout lifecycle"
    groups: Mapping[Group, tuple[State, ...]]
    initial: str
    arrows: tuple[Arrow, ...]
    path: tuple[Hop, ...] = ()
    steps: Mapping[tuple[str, str], tuple[tuple[int, Hop], ...]] = field(factory=dict)

    def told(self, arrow: Arrow) -> tuple[str, ...]:
        """The path's hops that go along the arrow, a line each: all of them, or the first and the last.

        A group's arrow has those that have no arrow of their own, and they say from which state.
        """
        lines = [
            hop.told(number, where=arrow.lifted)
            for pair, hops in self.steps.items()
            if self._arrow(*pair) is arrow
            for number, hop in hops
        ]
        return _shortened(lines)

    def astray(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """The hops of the path that go along no arrow, by the states that they connect."""
        return {
            pair: _shortened([hop.told(number) for number, hop in hops])
            for pair, hops in self.steps.items()
            if self._arrow(*pair) is None
        }

    def _arrow(self, source: str, target: str) -> Arrow | None:
        fitting = [arrow for arrow in self.arrows if source in arrow.leaves and target == arrow.target]
        return next(iter(sorted(fitting, key=lambda arrow: arrow.lifted)), None)

    @property
    def states(self) -> tuple[State, ...]:
        """Every state, group by group."""
        return tuple(state for members in self.groups.values() for state in members)

    @property
    def visited(self) -> frozenset[str]:
        """The states that the path touches."""
        return frozenset(name for hop in self.path for name in (hop.source, hop.target))

    def group_of(self, name: str) -> Group:
        """The group of the state."""
        return next(group for group, members in self.groups.items() if name in {state.name for state in members})

    def tail(self, arrow: Arrow) -> State:
        """The state at which a lifted arrow may be anchored: the last of its group that it leaves."""
        return [state for state in self.states if state.name in arrow.leaves][-1]

    def inside(self, group: Group) -> tuple[Arrow, ...]:
        """The arrows between two states of the group."""
        members = {state.name for state in self.groups[group]}
        return tuple(
            arrow for arrow in self.arrows if not arrow.lifted and arrow.source in members and arrow.target in members
        )

    def across(self) -> tuple[Arrow, ...]:
        """The arrows that leave a group, those of whole groups included."""
        within = {id(arrow) for group in self.groups for arrow in self.inside(group)}
        return tuple(arrow for arrow in self.arrows if id(arrow) not in within)


def _shortened(lines: list[str]) -> tuple[str, ...]:
    if len(lines) > MOST:
        lines = [*lines[: MOST - 2], f"… {len(lines) - MOST + 1} more", lines[-1]]
    return tuple(lines)


def draw(declaration: Declaration, path: Sequence[Hop] = (), *, title: str | None = None) -> Picture:
    """The declaration as a picture, with the path on it if there is one; the title then says whose it is.

    An arrow is lifted to a group if every state of the group in which its trigger can come (`_members`), and at least
    two, has it, and it leaves the group. Raises ValueError for a path over states that do not exist, or by triggers
    that do not.
    """
    for kind, named, known in (
        ("goes over states", {name for hop in path for name in (hop.source, hop.target)}, set(declaration.states)),
        ("takes triggers", {hop.trigger for hop in path}, set(TRIGGERS)),
    ):
        if unknown := sorted(named - known):
            raise ValueError(f"the path {kind} that are not declared: {', '.join(unknown)}")
    states = declaration.states.values()
    groups = {group: tuple(state for state in states if state.group == group) for group in GROUPS}
    lifted: dict[tuple[str, str], list[tuple[State, Row]]] = {}
    single: dict[tuple[str, str], list[tuple[State, Row]]] = {}
    for group, members in groups.items():
        shared = _shared(members)
        for state in members:
            for row in state.rows:
                if row.same:
                    continue
                if _key(state, row) in shared and state in _members(members, row.trigger):
                    lifted.setdefault((group, row.target), []).append((state, row))
                else:
                    single.setdefault((state.name, row.target), []).append((state, row))
    arrows = [
        Arrow(
            source=source,
            target=target,
            labels=_labels(rows),
            leaves=frozenset(state.name for state, _ in rows),
            lifted=places is lifted,
        )
        for places in (single, lifted)
        for (source, target), rows in places.items()
    ]
    steps: dict[tuple[str, str], list[tuple[int, Hop]]] = {}
    for number, hop in enumerate(path, 1):
        steps.setdefault((hop.source, hop.target), []).append((number, hop))
    return Picture(
        **({} if title is None else {"title": title}),
        groups={group: members for group, members in groups.items() if members},
        initial=declaration.initial.name,
        arrows=tuple(arrows),
        path=tuple(path),
        steps={pair: tuple(hops) for pair, hops in steps.items()},
    )


_Key = tuple[str, str | None, str, Condition | None]


def _key(state: State, row: Row) -> _Key:
    return row.trigger, _guard(state, row), row.target, row.sets


def _guard(state: State, row: Row) -> str | None:
    """The row's guard, or "else" where earlier rows of the same trigger have refused."""
    if row.guard is not None:
        return row.guard
    return "else" if any(other.trigger == row.trigger and other.guard for other in state.rows) else None


def _members(members: Iterable[State], trigger: str) -> tuple[State, ...]:
    """Where a trigger can come: an activity's outcome in the active states, a caller's also in the resting ones.

    The initial state, where nothing has been started, always speaks for itself.
    """
    kinds = ("active", "resting") if TRIGGERS[trigger] == "caller" else ("active",)  # type: ignore[index]
    return tuple(state for state in members if state.kind in kinds and not state.initial)


def _shared(members: tuple[State, ...]) -> frozenset[_Key]:
    names = {state.name for state in members}
    found: set[_Key] = set()
    for state in members:
        for row in state.rows:
            concerned = _members(members, row.trigger)
            everywhere = all(_key(state, row) in {_key(other, each) for each in other.rows} for other in concerned)
            if len(concerned) > 1 and everywhere and state in concerned and row.target not in names and not row.same:
                found.add(_key(state, row))
    return frozenset(found)


def _labels(rows: Iterable[tuple[State, Row]]) -> tuple[Label, ...]:
    """One label for each guard and stop condition, with all its triggers."""
    triggers: dict[tuple[str | None, Condition | None], dict[str, None]] = {}
    for state, row in rows:
        triggers.setdefault((_guard(state, row), row.sets), {})[row.trigger] = None
    return tuple(Label(triggers=tuple(names), guard=guard, sets=sets) for (guard, sets), names in triggers.items())
