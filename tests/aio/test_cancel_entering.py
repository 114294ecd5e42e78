"""A cancellation that meets a block while it is entered, at any round of the loop: nobody will leave that block, so
what it began is ended before the cancellation goes on."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import pytest

from rollout_fsm import Trace, aio, check_trace
from rollout_fsm.trace import TransitionRecord
from tests.aio.conftest import Host
from tests.aio.parties import AsyncTask, Observer, Stage
from tests.aio.test_engine import agent, released

ROUNDS = 10
Block: TypeAlias = AbstractAsyncContextManager[object]
Enters: TypeAlias = Callable[[aio.Engine, Stage], Block]


class Opens(Observer):
    """Tells when a rollout stands open."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.opened = asyncio.Event()

    def on_transition(self, trace: Trace, transition: TransitionRecord) -> None:
        if transition.target == "waiting":
            self.opened.set()


def many(engine: aio.Engine, stage: Stage) -> Block:
    tasks = [AsyncTask(prompt=str(number)) for number in range(6)]
    return engine.run_all(tasks, max_concurrent=2, **agent(stage))


def one(engine: aio.Engine, stage: Stage) -> Block:
    return engine.interaction(AsyncTask(), **agent(stage))


async def _cancelled_after(rounds: int, enters: Enters, *, once_open: bool = False, twice: bool = False) -> list[str]:
    """What is wrong once a task that was cancelled so many rounds after it began, or after its rollout stood open, has
    ended."""
    stage = Stage()
    observer = Opens(stage)
    async with aio.open_engine(gateway=False, observers=[observer]) as engine:

        async def stays() -> None:
            async with enters(engine, stage):
                await stage.go.wait()

        task = asyncio.create_task(stays())
        if once_open:
            await observer.opened.wait()
        for _ in range(rounds):
            await asyncio.sleep(0)
        for _ in range(1 + twice):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([task])

        faults = [] if task.cancelled() else ["it was not cancelled"]
        minted, finished = {trace.id for trace in observer.minted}, {trace.id for trace in observer.finished}
        faults += [f"{trace} goes on" for trace in minted - finished]
        faults += [] if released(stage) else ["a box is left"]
        faults += [fault for trace in observer.finished for fault in check_trace(trace)]
        before = list(stage.called)
        for _ in range(3 * ROUNDS):
            await asyncio.sleep(0)
        faults += [f"{called} was called afterwards" for called in stage.called[len(before) :]]
    return faults


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("enters", [many, one])
def test_a_block_that_is_cancelled_while_it_is_entered_leaves_no_rollout_and_no_box(
    host: Host, enters: Enters, twice: bool
) -> None:
    async def main() -> None:
        for rounds in range(ROUNDS):
            assert await _cancelled_after(rounds, enters, twice=twice) == [], f"after {rounds} rounds"

    host(main)


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_an_interaction_that_is_cancelled_about_when_it_stands_open_leaves_no_rollout_and_no_box(
    host: Host, twice: bool
) -> None:
    async def main() -> None:
        for rounds in range(ROUNDS):
            assert await _cancelled_after(rounds, one, once_open=True, twice=twice) == [], f"after {rounds} rounds"

    host(main)
