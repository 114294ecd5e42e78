"""Each test of the runtime's contract fails by the runtime that breaks just this of it, and by no other."""

import os
from collections.abc import Awaitable, Callable
from typing import ClassVar

import pytest

from rollout_fsm.testing import RuntimeContract
from tests.testing.broken_boxes import BROKEN, DESERTED
from tests.testing.memory_box import CAP, MACHINE, MemoryBox
from tests.testing.running import failures, in_virtual_time, names, said_in_full


class CannotStart(MemoryBox):
    cannot_start = True


class InMemory(RuntimeContract):
    kind: ClassVar[type[MemoryBox]] = MemoryBox
    failing: ClassVar[type[MemoryBox]] = CannotStart
    flood = 10 * CAP

    def make(self, name: str) -> MemoryBox:
        return self.kind(name)

    def make_failing(self, name: str) -> MemoryBox:
        return self.failing(name)

    def leftovers(self) -> list[str]:
        return list(MACHINE)

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        in_virtual_time(main)


def test_a_runtime_that_keeps_its_contract_passes() -> None:
    assert {name: str(error) for name, error in failures(InMemory).items()} == {}
    assert MACHINE == {}


@pytest.mark.parametrize(
    ("test", "broken"), [pytest.param(test, kind, id=kind.__name__) for test in BROKEN for kind in BROKEN[test]]
)
def test_what_breaks_one_promise_fails_by_the_test_of_it_alone(test: str, broken: type[MemoryBox]) -> None:
    class Broken(InMemory):
        kind = broken
        failing = type("CannotStart", (broken,), {"cannot_start": True})

    found = failures(Broken)
    tidy_up()
    assert {name: str(error) for name, error in found.items() if name != test} == {}
    assert said_in_full(found[test])


def tidy_up() -> None:
    """Remove what the broken ones left behind."""
    MACHINE.clear()
    for process in DESERTED:
        assert process.connection is not None
        os.close(process.connection.socket.detach())
    DESERTED.clear()


def test_there_is_a_broken_runtime_for_each_test() -> None:
    assert sorted(BROKEN) == sorted(names(InMemory))
