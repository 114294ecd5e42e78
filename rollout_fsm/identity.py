"""Which rollout of a set of tasks a trace is of, across runs: what a resume counts as done or owed.

The same task may stand in a set twice, and each task is rolled out several times; so the task's key, its place among
equal keys and the index of the rollout together say which one it is. The invariant: two rollouts of one `run_all` never
have the same identity, and another `run_all` over the same tasks has the same identities.
"""

import re

from attrs import frozen

from rollout_fsm.trace import Trace

MOST = 10**15
"""No set has so many tasks, and no task so many rollouts: a larger number is somebody else's."""


_PLACED = re.compile(r"-[0-9]+\Z")


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
        """The id of the group that the rollouts of this task are: its key, and its place where that is not the first.
        A key that ends as if it had a place always has one, so no two groups have the same id."""
        return self.key if self.place == 1 and not _PLACED.search(self.key) else f"{self.key}-{self.place}"

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
    place = "1" if group == key else group.removeprefix(f"{key}-")
    if not (place.isascii() and place.isdigit() and len(place) < len(str(MOST))):
        return None
    found = Identity(key, int(place), index)
    return found if found.group == group and found.place > 0 else None
