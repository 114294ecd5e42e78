"""A cancellation of the awaiting asyncio task at any round of the loop, once or twice: everything that was started is
released, and nothing is left on either loop."""

import asyncio
from collections.abc import Callable

import pytest

from rollout_fsm import Trace, aio, check_trace
from tests.aio.conftest import Host
from tests.aio.parties import AsyncJudge, AsyncTask, AsyncToolset, Observer, Stage
from tests.aio.test_engine import agent, released
from tests.profiles import sample

ROUNDS = 260
"""About as many rounds of the loop as a rollout takes; the thread that waits for trio's I/O makes that vary."""


@pytest.fixture
def rounds() -> list[int]:
    """After how many rounds it is cancelled."""
    return sample(range(ROUNDS), dev=12, ci=30)


async def _cancelled_after(rounds: int, twice: bool) -> tuple[Trace, Stage, bool]:
    stage = Stage()
    observer = Observer(stage)
    async with aio.open_engine(gateway=False, observers=[observer]) as engine:
        settings = {**agent(stage), "tools": [lambda: AsyncToolset(stage)], "judges": [AsyncJudge(stage)]}
        task = asyncio.create_task(engine.run(AsyncTask(prompt="x"), **settings))
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        if twice:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
        assert len(observer.finished) == len(observer.minted)
        trace = observer.finished[0] if observer.finished else await task
        return trace, stage, task.cancelled()


@pytest.mark.parametrize("twice", [False, True])
def test_a_cancel_after_any_number_of_rounds_releases_everything(host: Host, rounds: list[int], twice: bool) -> None:
    async def main() -> None:
        states: set[str] = set()
        for after in rounds:
            try:
                trace, stage, cancelled = await _cancelled_after(after, twice)
            except asyncio.CancelledError:  # before anything was minted
                assert after < 3
                continue
            assert check_trace(trace) == []
            states.add(trace.transitions[-1].target)
            assert released(stage), after
            assert stage.called.count("tools.start") - stage.called.count("tools.stop") <= 1
            assert cancelled or trace.ok, after
        assert "aborted" in states
        assert states <= {"aborted", "completed"}

    host(main)


def test_each_way_of_waiting_gets_its_cancellation(host: Host) -> None:
    ways: list[Callable[[aio.Rollout], object]] = [lambda rollout: rollout.open(), lambda rollout: rollout.close()]

    async def main() -> None:
        for way, where in zip(ways, ("runtime.start", "reward"), strict=True):
            stage = Stage(hang={where})
            async with aio.open_engine(gateway=False, observers=[Observer(stage)]) as engine:
                rollout = engine.rollout(AsyncTask(prompt="x"), **agent(stage))
                if where == "reward":
                    await rollout.open()
                    await rollout.step()
                task = asyncio.ensure_future(way(rollout))  # type: ignore[arg-type]
                await stage.reached.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert rollout.state == "aborted"
                assert await rollout.close() is rollout.trace

    host(main)
