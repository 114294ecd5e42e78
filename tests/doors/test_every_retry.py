"""A fault where it is decided and told that a rollout is tried again ends the attempts, or disturbs nothing."""

import pytest

from tests.doors.cells import cells, params
from tests.doors.doors import RETRIED, Door
from tests.doors.faults import Fault
from tests.doors.retried import differences, expected, try_twice


@pytest.mark.parametrize(("door", "fault"), params(cells(RETRIED)))
async def test_a_fault_where_another_attempt_may_follow(door: Door, fault: Fault) -> None:
    came = await try_twice(door, fault)
    assert door.name in came.house.looked
    assert differences(came, expected(door, fault)) == []
