"""A box that its owner lends to several rollouts, one after another, is the owner's before, between and after them (L2,
L3, L13)."""

import pytest
import trio

from rollout_fsm import LocalRuntime, Request, Runtime, RuntimeLifetimeError, ScriptedModel, Task, Trace, open_engine
from tests.end_to_end.agents import DAEMONISES, QUIET, TWO_TURNS, agent
from tests.end_to_end.endings import ABORTED, COMPLETED, ending, failed
from tests.end_to_end.leftovers import Place

pytestmark = pytest.mark.real_time

YES = ScriptedModel(lambda request: "yes")


async def own(runtime: LocalRuntime) -> int:
    """Start the owner's own server in the box; returns its process."""
    started = await runtime.run(["sh", "-c", f"sleep 1000 {QUIET} & echo $!"])
    return int(started.stdout)


def has(place: Place, pid: int) -> bool:
    return any(process.startswith(f"{pid} ") for process in place.processes())


class Counting(Task):
    """Counts the rollouts that were here, in the box itself."""

    async def finalize(self, trace: Trace, runtime: Runtime) -> None:
        before = int(await runtime.read("count"))
        await runtime.write("count", str(before + 1))
        trace.info["before"] = before


async def test_a_borrowed_box_stays_up_through_many_rollouts(place: Place) -> None:
    runtime = LocalRuntime("lent", grace=0.05)
    await runtime.start()
    try:
        server = await own(runtime)
        await runtime.write("count", "0")
        async with open_engine() as engine:
            for number in range(3):
                trace = await engine.run(Counting(prompt="go"), harness=agent(TWO_TURNS), model=YES, runtime=runtime)
                assert ending(trace) == COMPLETED
                assert trace.info == {"before": number}
                assert trace.agent.runtime == {"type": "subprocess", "id": "lent", "borrowed": True}
                assert not runtime.stopped
                assert await runtime.alive()
                assert has(place, server)
        assert not runtime.stopped
        assert (await runtime.run(["cat", "count"])).stdout == "3"
        assert has(place, server)
    finally:
        await runtime.stop()
    assert place.processes() == []


async def test_a_borrowed_box_survives_what_becomes_of_its_rollouts(place: Place) -> None:
    """One fails, one is cancelled with its agent in full swing, then one completes; what the owner started lives on."""
    asked = trio.Event()

    async def reply(request: Request) -> str:
        asked.set()
        return await trio.sleep_forever()

    runtime = LocalRuntime("lent", grace=0.05)
    await runtime.start()
    try:
        server = await own(runtime)
        async with open_engine() as engine:
            broken = await engine.run(Task(prompt="go"), harness=agent("sys.exit(3)"), model=YES, runtime=runtime)
            assert ending(broken) == failed("HarnessError")
            assert has(place, server)

            harness = agent(TWO_TURNS, before=f"exec 3>&1 {QUIET}; {DAEMONISES} exec >&3; ")
            rollout = engine.rollout(Task(prompt="go"), harness=harness, model=ScriptedModel(reply), runtime=runtime)
            await rollout.open()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(rollout.step)
                await asked.wait()
                assert len(place.processes()) > 2
                await rollout.cancel()
            assert ending(rollout.trace) == ABORTED
            assert [process.split()[0] for process in place.processes()] == [str(server)]  # the agent's are gone (L13)

            after = await engine.run(Task(prompt="go"), harness=agent(TWO_TURNS), model=YES, runtime=runtime)
            assert ending(after) == COMPLETED
        assert await runtime.alive()
        assert has(place, server)
    finally:
        await runtime.stop()
    assert place.processes() == []


async def test_what_an_agent_leaves_in_a_borrowed_box_lives_on_until_its_owner_stops_it(place: Place) -> None:
    runtime = LocalRuntime("lent", grace=0.05)
    await runtime.start()
    try:
        async with open_engine() as engine:
            harness = agent(TWO_TURNS, before=f"sleep 1000 {QUIET} & ")
            for number in range(1, 3):
                trace = await engine.run(Task(prompt="go"), harness=harness, model=YES, runtime=runtime)
                assert ending(trace) == COMPLETED
                assert len(place.processes()) == number
        assert len(place.processes()) == 2
    finally:
        await runtime.stop()
    assert place.processes() == []


async def test_a_box_that_its_owner_stops_under_a_rollout_is_the_owners_mistake(place: Place) -> None:
    asked = trio.Event()

    async def reply(request: Request) -> str:
        asked.set()
        return await trio.sleep_forever()

    runtime = LocalRuntime("lent", grace=0.05)
    await runtime.start()
    async with open_engine() as engine:
        rollout = engine.rollout(
            Task(prompt="go"),
            harness=agent(TWO_TURNS, before=DAEMONISES),
            model=ScriptedModel(reply),
            runtime=runtime,
        )
        await rollout.open()

        async def step() -> None:
            with pytest.raises(RuntimeLifetimeError, match="'lent' was stopped by its owner"):
                await rollout.step()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(step)
            await asked.wait()
            await runtime.stop()
            assert place.processes() == []
        assert rollout.state == "aborted"
        assert rollout.trace.errors == []
