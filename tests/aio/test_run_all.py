"""Many rollouts inside asyncio: an async iterator in a block, however it is left."""

import asyncio

import pytest

from rollout_fsm import Trace, aio
from tests.aio.conftest import Host
from tests.aio.parties import AsyncTask, Observer, Stage, until
from tests.aio.test_engine import agent, opened, released

TASKS = [AsyncTask(prompt=str(number)) for number in range(6)]


def test_traces_come_as_they_finish_and_in_groups(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            async with engine.run_all(TASKS, max_concurrent=2, **agent(stage)) as traces:
                seen = [trace async for trace in traces]
            assert sorted(str(trace.task.data["prompt"]) for trace in seen) == list("012345")
            async with engine.run_all(TASKS, rollouts_per_task=2, group_by_task=True, **agent(stage)) as groups:
                sizes = [[trace.ok for trace in group] async for group in groups]
            assert sizes == [[True, True]] * 6
        assert released(stage)

    host(main)


def test_breaking_off_early_cancels_what_is_left(host: Host) -> None:
    async def main() -> None:
        class Holds(Observer):
            def on_finished(self, trace: Trace) -> None:
                super().on_finished(trace)
                self.stage.hang.add("model")  # the first to finish is the last

        stage = Stage()
        observer = Holds(stage)
        async with aio.open_engine(gateway=False, observers=[observer]) as engine:
            async with engine.run_all(TASKS, max_concurrent=3, **agent(stage)) as traces:
                async for trace in traces:
                    assert trace.ok
                    break
            assert all(trace.is_completed for trace in observer.minted)
            assert 1 <= sum(trace.ok for trace in observer.minted) < 6
            assert released(stage)

    host(main)


def test_an_exception_in_the_block_comes_out_as_it_is(host: Host) -> None:
    async def main() -> None:
        stage = Stage(hang={"reward"})
        async with opened(stage) as engine:
            with pytest.raises(LookupError, match="mine"):  # noqa: PT012
                async with engine.run_all(TASKS, **agent(stage)):
                    await stage.reached.wait()
                    raise LookupError("mine")
            assert released(stage)

    host(main)


def test_a_cancelled_consumer_leaves_nothing_behind(host: Host) -> None:
    async def main() -> None:
        stage = Stage(hang={"reward"})
        async with opened(stage) as engine:

            async def consume() -> None:
                async with engine.run_all(TASKS, **agent(stage)) as traces:
                    async for _ in traces:
                        raise AssertionError

            task = asyncio.create_task(consume())
            await stage.reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert released(stage)

    host(main)


def test_an_iterator_that_is_closed_early_leaves_nothing_behind(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        observer = Observer(stage)
        async with aio.open_engine(gateway=False, observers=[observer]) as engine:

            async def rewards():  # type: ignore[no-untyped-def]
                async with engine.run_all(TASKS, max_concurrent=3, **agent(stage)) as traces:
                    async for trace in traces:
                        yield trace.reward

            iterator = rewards()
            assert await anext(iterator) == 1.0
            stage.hang.add("model")
            await iterator.aclose()
            await until(lambda: all(trace.is_completed for trace in observer.minted))
            assert released(stage)

    host(main)


def test_a_trace_that_came_while_the_wait_for_it_was_cancelled_is_handed_on(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            seen: list[Trace] = []
            async with engine.run_all(TASKS, max_concurrent=1, **agent(stage)) as traces:
                patience = 1
                while True:
                    asking = asyncio.ensure_future(anext(traces))
                    for _ in range(patience):
                        await asyncio.sleep(0)
                    asking.cancel()
                    patience += 1
                    try:
                        seen.append(await asking)
                    except asyncio.CancelledError:
                        continue
                    except StopAsyncIteration:
                        break
            assert sorted(str(trace.task.data["prompt"]) for trace in seen) == list("012345")

    host(main)


def test_an_iterator_outside_of_its_block_says_what_to_write(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            with pytest.raises(RuntimeError, match=r"async with engine\.run_all"):  # noqa: PT012
                async for _ in engine.run_all(TASKS, **agent(stage)):
                    raise AssertionError

    host(main)
