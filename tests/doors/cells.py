"""The matrix: every door with every fault that there can be at it."""

from collections.abc import Iterable

import pytest

from tests.doors.doors import BROKEN, Door
from tests.doors.faults import FAULTS, Fault
from tests.doors.rules import SIGNALS


def can_happen(door: Door, fault: Fault) -> bool:
    """Whether there is such a fault at such a door."""
    if ("awaited" if door.bound else "called") not in fault.where:
        return False
    if fault.asks and (door.means == "leaving" or (not door.state and fault.asks not in ("caller", "nursery"))):
        return False  # there is no rollout any more, or none yet
    if fault.asks == "fail" and door.name == "runtime.stopped@created":
        return False  # a guard is being asked, which may move nothing
    if fault.asks == "nursery" and (door.nursery == "engine" or door.name in SIGNALS[0]):
        return False  # the engine's own ends everything; in a metric's there is another metric
    if not fault.is_async and door.plain_too:
        return False  # it need not be (L36)
    if fault.returned:
        hostile = door.means == "stopped" and fault.returned == "something hostile"
        return hostile or fault.returned in (door.refuses or {"object"})
    return True


def cells(doors: Iterable[Door]) -> tuple[tuple[Door, Fault], ...]:
    """These doors with every fault that there can be at them."""
    return tuple((door, fault) for door in doors for fault in FAULTS if can_happen(door, fault))


CELLS = cells(BROKEN)


def params(found: Iterable[tuple[Door, Fault]]) -> list[object]:
    """These cells, as parameters of a test."""
    return [pytest.param(*cell, id=cell_id(*cell)) for cell in found]


def cell_id(door: Door, fault: Fault) -> str:
    """How a cell is called among the tests."""
    return f"{door.name}-{fault.name}".replace(" ", "_")
