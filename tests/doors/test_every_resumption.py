"""A fault where a dead process's box is removed or taken over disturbs no rollout, and leaves it for the next who
comes (L73)."""

import pytest

from tests.doors.cells import cells, params
from tests.doors.doors import RESUMED, Door
from tests.doors.faults import Fault
from tests.doors.left import MOMENTS, Image, left_by_a_process
from tests.doors.resumed import differences, expected, resume
from tests.profiles import sample


@pytest.fixture
def image(door: Door) -> Image:
    """What the process left. Made outside of the test's event loop."""
    return left_by_a_process(MOMENTS[door.scene])


def some() -> list[object]:
    """The cells of this profile: of what is called in the same way a second time, a few."""
    first = cells(door for door in RESUMED if door.scene in ("cut off", "to be scored"))
    same = cells(door for door in RESUMED if door.scene in ("gone", "to be released"))
    found = [*sample(first, dev=15, ci=len(first)), *sample(same, dev=5, ci=10)]
    return params(found)


@pytest.mark.parametrize(("door", "fault"), some())
async def test_a_fault_where_something_was_left(door: Door, fault: Fault, image: Image) -> None:
    came = await resume(door, fault, image)
    assert door.name in came.house.looked
    assert differences(came, expected(door, fault)) == []
