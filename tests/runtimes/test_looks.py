"""How those who end programs at the same time share the looks at the table of processes."""

import threading
from collections.abc import Callable

import pytest
import trio

from rollout_fsm.runtimes.looks import Looks
from rollout_fsm.runtimes.processes import Box, Strike
from rollout_fsm.runtimes.table import Census, Process, Table

real_time = pytest.mark.real_time


def nothing() -> Strike:
    return Strike(box=Box(marker="M", led={}, orphaned={}), wanted=range(1), signum=0)


@real_time
async def test_all_who_ask_while_a_look_goes_on_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    gate = threading.Event()

    def look(census: Census, meet: Callable[[Process], None] | None = None) -> Table:
        begun.append(1)
        gate.wait()
        return Table([])

    monkeypatch.setattr(Census, "look", look)
    looks = Looks()
    async with trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(looks.strike, nothing)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(300):
            nursery.start_soon(looks.strike, nothing)
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert len(begun) == 2
    assert await looks.strike(nothing) == []


@real_time
async def test_a_look_that_fails_is_the_trouble_of_one_and_the_others_look_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[int] = []

    def look(census: Census, meet: Callable[[Process], None] | None = None) -> Table:
        begun.append(1)
        if len(begun) == 1:
            raise OSError("the table is on fire")
        return Table([])

    monkeypatch.setattr(Census, "look", look)
    looks, said = Looks(), list[str]()

    async def ask() -> None:
        try:
            await looks.strike(nothing)
        except OSError as error:
            said.append(str(error))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
    assert said == ["the table is on fire"]
