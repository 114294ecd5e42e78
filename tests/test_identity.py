"""Which rollout a trace is of: never mistaken, also where keys look like groups."""

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.batch import jobs
from rollout_fsm.identity import Identity, identity, identity_of
from rollout_fsm.task import Task
from rollout_fsm.trace import GroupInfo, TaskInfo, Trace


@frozen(kw_only=True)
class Keyed(Task):
    """A task whose key is given."""

    called: str

    @property
    def key(self) -> str:
        """The key."""
        return self.called


@given(st.lists(st.sampled_from(["a", "a-2", "a-2-2", "a-1", "", "-2", "é\n"]), max_size=8), st.integers(1, 3))
def test_every_rollout_of_a_set_has_an_identity_of_its_own(keys: list[str], times: int) -> None:
    owed = list(jobs([Keyed(called=key) for key in keys], times))
    found = [identity(job.task.key, job.group.id, job.group.index) for job in owed]
    assert None not in found
    assert len(set(found)) == len(owed)
    assert [each.group for each in found if each is not None] == [job.group.id for job in owed]
    groups = {(each.key, each.place): each.group for each in found if each is not None}
    assert len(set(groups.values())) == len(groups)


@pytest.mark.parametrize(
    ("key", "group", "index"),
    [
        (None, "a", 0),
        ("a", None, 0),
        ("a", "a", None),
        ("a", "b", 0),
        ("a", "a-1", 0),
        ("a", "a-02", 0),
        ("a", "a-x", 0),
        ("a", "a-", 0),
        ("a", "a-²", 0),
        ("a", "a-" + "9" * 30, 0),
        ("a", "a", -1),
        ("a", "a", True),
        ("a", "a", 10**30),
    ],
)
def test_what_is_of_no_set_has_none(key: object, group: object, index: object) -> None:
    assert identity(key, group, index) is None


def test_a_trace_says_its_identity() -> None:
    trace = Trace(id="t", task=TaskInfo(type="Sum", key="a"), group=GroupInfo(id="a-3", index=1))
    assert identity_of(trace) == Identity("a", 3, 1)
    assert str(identity_of(trace)) == "a-3#1"
    assert identity_of(Trace(id="t", task=TaskInfo(type="Sum", key="a"))) is None
