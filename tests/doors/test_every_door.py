"""A fault at every door: the outcome that the rules say, and what holds whatever happens."""

import pytest

from tests.doors.cells import CELLS, cell_id, params
from tests.doors.doors import Door
from tests.doors.expected import expected
from tests.doors.faults import Fault
from tests.doors.invariants import broken_invariants, differences
from tests.doors.played import play
from tests.profiles import sample

ACCOMPANIED = {cell_id(*cell) for cell in sample(CELLS, dev=100, ci=100)}
"""Cells with a healthy rollout beside."""
KEPT = {cell_id(*cell) for cell in sample(CELLS[::-1], dev=25, ci=40)}
"""Cells whose run has a folder; the others have none, but where the scene is that."""


def cells() -> list[object]:
    """The cells of this profile."""
    return params(sample(CELLS, dev=250, ci=len(CELLS)))


@pytest.mark.parametrize(("door", "fault"), cells())
async def test_a_fault_at_a_door(door: Door, fault: Fault) -> None:
    cell = cell_id(door, fault)
    played = await play(door, fault, sibling=cell in ACCOMPANIED, kept=cell in KEPT)
    assert [*differences(played, expected(door, fault)), *broken_invariants(played)] == []
