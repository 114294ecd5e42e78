"""Which rollout of a set of tasks a trace is of, across runs: what a resume counts as done or owed.

The same task may stand in a set twice, and each task is rolled out several times; so the task's key, its place among
equal keys and the index of the rollout together say which one it is. The invariant: two rollouts of one `run_all` never
have the same identity, and another `run_all` over the same tasks has the same identities.
"""

from attrs import frozen

from rollout_fsm.trace import Trace

MOST = 10**15
"""No set has so many tasks, and no task so many rollouts: a larger number is somebody else's."""


@frozen
class Identity:
    """One rollout of one task of a set."""

    key: str
    """The task's key."""
    place: int
    """Its place, from 1, among the tasks of the set that have this key."""
    index: int
    """Which rollout of the task, from 0."""

    @property
    def group(self) -> str:
        """The id of the group that the rollouts of this task are."""
        return self.key if self.place == 1 else f"{self.key}-{self.place}"

    def __str__(self) -> str:
        return f"{self.group}#{self.index}"


def identity_of(trace: Trace) -> Identity | None:
    """The identity of a trace; None for one that came out of no set of tasks."""
    group = trace.group
    return None if group is None else identity(trace.task.key, group.id, group.index)


def identity(key: object, group: object, index: object) -> Identity | None:
    """The identity that a trace's `task.key`, `group.id` and `group.index` say; None where they say none."""
    if not isinstance(key, str) or not isinstance(group, str) or type(index) is not int or not 0 <= index < MOST:
        return None
    if group == key:
        return Identity(key, 1, index)
    place = group.removeprefix(f"{key}-")
    if place == group or not (place.isascii() and place.isdigit()) or place.startswith("0") or place == "1":
        return None
    return Identity(key, int(place), index) if len(place) < len(str(MOST)) else None
