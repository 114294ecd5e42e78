"""Freed with the collector off: nothing of the border between the loops keeps a trace alive, however it ended."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from attrs import frozen

from rollout_fsm import Trace, aio, reward
from tests.aio.conftest import Host
from tests.aio.parties import AsyncTask, Stage
from tests.aio.test_engine import agent


@pytest.fixture(autouse=True)
def _collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@frozen(kw_only=True)
class Fails(AsyncTask):
    """Its reward fails, deep inside asyncio."""

    @reward
    async def correct(self, trace: Trace) -> float:
        await asyncio.sleep(0)
        raise LookupError("no")


@pytest.mark.parametrize("ending", ["completed", "failed", "aborted"])
def test_a_trace_is_freed_when_its_caller_lets_go_of_it(host: Host, ending: str) -> None:
    async def main() -> None:
        watched: list[weakref.ref[Trace]] = []
        stage = Stage(hang={"model"} if ending == "aborted" else set())

        class Watches:
            def on_trace(self, trace: Trace) -> None:
                trace.state["stage"] = stage
                watched.append(weakref.ref(trace))

        kind = Fails if ending == "failed" else AsyncTask
        async with aio.open_engine(gateway=False, observers=[Watches()]) as engine:
            task = asyncio.create_task(engine.run(kind(prompt="x"), **agent(stage)))
            if ending == "aborted":
                await stage.reached.wait()
                task.cancel()
            await asyncio.wait([task])
            if ending != "aborted":
                assert task.result().transitions[-1].target == ending
            del task
            async with engine.run_all([kind(prompt="y")] * 2, **agent(stage)) as traces:
                stage.hang.clear()
                async for trace in traces:
                    del trace
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(watched) == 3
            assert [one() for one in watched] == [None] * 3

    host(main)
