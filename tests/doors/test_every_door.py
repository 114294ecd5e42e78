"""A fault at every door: the outcome that the rules say, and what holds whatever happens."""

import pytest

from tests.doors.cells import CELLS, cell_id
from tests.doors.doors import Door
from tests.doors.expected import expected
from tests.doors.faults import Fault
from tests.doors.invariants import broken_invariants, differences
from tests.doors.played import play
from tests.profiles import sample

ACCOMPANIED = {cell_id(*cell) for cell in sample(CELLS, dev=100, ci=100)}
"""Cells with a healthy rollout beside."""


def cells() -> list[object]:
    """The cells of this profile."""
    found = sample(CELLS, dev=250, ci=len(CELLS))
    return [pytest.param(door, fault, id=cell_id(door, fault)) for door, fault in found]


@pytest.mark.parametrize(("door", "fault"), cells())
async def test_a_fault_at_a_door(door: Door, fault: Fault) -> None:
    played = await play(door, fault, sibling=cell_id(door, fault) in ACCOMPANIED)
    assert [*differences(played, expected(door, fault)), *broken_invariants(played)] == []
