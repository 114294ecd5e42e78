"""This side of the works: the engine, with a box, a harness and a model that are scripted.

    python -m tests.benchmarks.ours WORK [NUMBER …]

Prints one JSON object of figures. `peer.py` is the same work on the other side, function by function. What is scripted
never waits, so all that is measured is the engine's.
"""

import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from typing import Any

import trio
from attrs import define, field, frozen

from rollout_fsm import (
    AssistantMessage,
    Exchange,
    Harness,
    HarnessSession,
    Message,
    Model,
    ProgramResult,
    Request,
    Response,
    RolloutLimits,
    Runtime,
    Sampling,
    Task,
    Trace,
    Usage,
    UserMessage,
    metric,
    open_engine,
    reward,
)
from rollout_fsm.simulation import simulate
from tests.benchmarks.waiting import resident

WARM_UP = 50
"""Rollouts before the clock is read."""
NO_CAP = 10**9
LAST = 10
"""How many turns at the end of a long rollout are looked at one by one."""
FILLER = " and more" * 8


class Nowhere(Runtime):
    """A box without anything in it."""

    runs_on = "trio"
    stops = 0
    """How many were taken down."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        self._stopped = True
        Nowhere.stops += 1

    async def run(self, argv: Sequence[str], **_: Any) -> ProgramResult:
        raise NotImplementedError

    async def read(self, path: str) -> bytes:
        raise NotImplementedError

    async def write(self, path: str, data: bytes | str) -> None:
        raise NotImplementedError


@define(eq=False)
class Talker(Harness):
    """Talks for many turns, all in this process, and re-sends the whole conversation each time."""

    turns: int = 1
    last: list[tuple[float, float]] = field(init=False, factory=list)
    """What each of the last turns took, in seconds of the clock and of the processor."""

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        return TalkerSession(self, exchange)


@define(eq=False)
class TalkerSession(HarnessSession):
    harness: Talker
    exchange: Exchange

    async def run(self, messages: Sequence[Message] | None) -> None:
        said: list[Message] = list(self.exchange.prompt)
        for turn in range(self.harness.turns):
            clock, processor = time.perf_counter(), time.process_time()
            reply = await self.exchange.respond(Request(messages=said))
            if turn >= self.harness.turns - LAST:
                self.harness.last.append((time.perf_counter() - clock, time.process_time() - processor))
            said += reply.message, UserMessage(f"and what of {turn}?{FILLER}")


class Yes(Model):
    """Answers at once."""

    name = "scripted"

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        return Response(
            message=AssistantMessage("yes"),
            finish_reason="stop",
            usage=Usage(prompt_tokens=len(request.messages), completion_tokens=1),
        )


class Silent(Model):
    """Answers nobody, and tells when as many ask as are to."""

    name = "scripted"

    def __init__(self, awaited: int) -> None:
        self.awaited = awaited
        self.full = trio.Event()

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        self.awaited -= 1
        if not self.awaited:
            self.full.set()
        await trio.sleep_forever()
        raise AssertionError


@frozen(kw_only=True)
class Asked(Task):
    @reward
    async def answered(self, trace: Trace) -> float:
        return float(trace.last_reply == "yes")

    @metric
    async def turns(self, trace: Trace) -> float:
        return float(trace.num_turns)


def tasks(number: int) -> list[Asked]:
    return [Asked(prompt=f"number {place}") for place in range(number)]


def checked(trace: Trace) -> None:
    assert trace.ok, trace.errors
    assert trace.reward == 1.0, trace.rewards


def settings(model: Model | None = None, *, turns: int = 1) -> dict[str, Any]:
    """Everything about a rollout but its task, scripted."""
    return {"harness": Talker(turns), "model": model or Yes(), "runtime": Nowhere}


class Meter:
    """Seconds of the clock and of the processor since it was made."""

    def __init__(self) -> None:
        gc.collect()
        self.began = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        clock, processor = time.perf_counter(), time.process_time()
        return clock - self.began[0], processor - self.began[1]


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
        before, stopped = weighed(), Nowhere.stops
        async with AsyncExitStack() as stack:
            everyone = [await stack.enter_async_context(engine.interaction(task, **given)) for task in asked]
            taken = weighed() - before
            assert all(one.rollout.can_go_on for one in everyone)
    assert Nowhere.stops - stopped == number, "a box was left standing"
    return {"kib": taken / number / 1024}


def weighed() -> int:
    """Bytes of this process that are in memory, without what is garbage."""
    gc.collect()
    return resident()


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
