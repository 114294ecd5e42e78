"""This side of the works: the engine, with a box, a harness and a model that are scripted.

    python -m tests.benchmarks.ours WORK [NUMBER …]

Prints one JSON object of figures. `peer.py` is the same work on the other side, function by function.
"""

import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from statistics import median

import trio

from rollout_fsm import RolloutLimits, open_engine
from rollout_fsm.simulation import simulate
from tests.benchmarks.metering import Meter, resident
from tests.benchmarks.scripted import LAST, Asked, Nowhere, Silent, checked, settings, tasks

WARM_UP = 50
"""Rollouts before the clock is read."""
NO_CAP = 10**9


async def rollouts(number: int, at_once: int) -> dict[str, float]:
    """Whole rollouts: one segment, one turn, one reward, one metric."""
    given = settings()
    async with open_engine(gateway=False) as engine:

        async def run(asked: Sequence[Asked]) -> None:
            if at_once == 1:
                for task in asked:
                    checked(await engine.run(task, **given))
                return
            async with engine.run_all(asked, max_concurrent=at_once, **given) as traces:
                async for trace in traces:
                    checked(trace)

        await run(tasks(WARM_UP))
        asked = tasks(number)
        meter = Meter()
        await run(asked)
        clock, processor = meter.read()
    return {"rate": number / clock, "cpu_us": processor / number * 1e6}


async def turns(number: int) -> dict[str, float]:
    """One rollout of so many turns, each re-sending the whole conversation, with all four limits set."""
    limits = RolloutLimits(max_turns=NO_CAP, max_input_tokens=NO_CAP, max_output_tokens=NO_CAP, max_total_tokens=NO_CAP)
    async with open_engine(gateway=False) as engine:
        checked(await engine.run(*tasks(1), **settings(turns=LAST), limits=limits))
        given = settings(turns=number)
        meter = Meter()
        trace = await engine.run(*tasks(1), **given, limits=limits)
        clock, processor = meter.read()
    checked(trace)
    assert trace.num_turns == number, trace.num_turns
    wall, cpu = (median(part) for part in zip(*given["harness"].last, strict=True))
    return {"total_s": clock, "total_cpu_s": processor, "last_us": wall * 1e6, "last_cpu_us": cpu * 1e6}


async def memory(number: int) -> dict[str, float]:
    """So many rollouts open at once, each waiting for its first user message: what each adds to the process (RSS)."""
    given = settings()
    asked = [Asked() for _ in range(number)]
    async with open_engine(gateway=False) as engine:
        checked(await engine.run(*tasks(1), **given))
        before, stopped = resident(), Nowhere.stops
        async with AsyncExitStack() as stack:
            everyone = []
            for task in asked:
                everyone.append(await stack.enter_async_context(engine.interaction(task, **given)))
                await trio.lowlevel.checkpoint()  # the scripted parties never wait, and trio tidies between two tasks
            taken = resident() - before
            assert all(one.rollout.can_go_on for one in everyone)
    assert Nowhere.stops - stopped == number, "a box was left standing"
    return {"kib": taken / number / 1024}


async def cancelling(number: int) -> dict[str, float]:
    """So many rollouts in flight, each in a turn, are cancelled: until the last one's box is released."""
    asked = tasks(number)
    model = Silent(number)
    given = settings(model)
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:

        async def run(task: Asked) -> None:
            trace = await engine.run(task, **given)
            raise AssertionError(f"it ended by itself: {trace.errors}")

        for task in asked:
            nursery.start_soon(run, task)
        await model.full.wait()
        meter = Meter()
        nursery.cancel_scope.cancel()
    clock, processor = meter.read()
    assert Nowhere.stops == number, "a box was left standing"
    return {"ms": clock * 1e3, "cpu_ms": processor * 1e3}


SCENARIO = {
    "segments": [{"turns": [{"delay": 3}]}],
    "rewards": [{"name": "right"}],
    "metrics": [{"name": "length"}],
    "limits": {"max_turns": 8},
}


def simulation(number: int) -> dict[str, float]:
    """So many simulated rollouts, one after another, each read from its scenario and played in virtual time."""
    for _ in range(WARM_UP):
        assert simulate(SCENARIO).trace.ok
    meter = Meter()
    for _ in range(number):
        simulate(SCENARIO)
    clock, processor = meter.read()
    return {"rate": number / clock, "cpu_us": processor / number * 1e6}


ON_TRIO: Mapping[str, Callable[..., Awaitable[dict[str, float]]]] = {
    "rollouts": rollouts,
    "turns": turns,
    "memory": memory,
    "cancelling": cancelling,
}


def main(arguments: Sequence[str]) -> None:
    """The command."""
    work, *given = arguments
    numbers = map(int, given)
    found = simulation(*numbers) if work == "simulation" else trio.run(partial(ON_TRIO[work], *numbers))
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
