"""The peer's side of the works: verifiers' own `Agent`, with a box, a harness and a model that are scripted.

    PEER_PYTHON tests/benchmarks/peer.py WORK [NUMBER …]

Prints one JSON object of figures. It runs in the peer's interpreter and imports nothing of this project; `ours.py` is
the same work on this side, function by function. What is scripted never waits, so all that is measured is the engine's.
A turn is taken as the peer's interception server takes one, the same steps in the same order, without HTTP and without
reading a body: limits and stops, the prompt found in the graph, the model, the commit, the record of the call.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from statistics import median

from metering import Meter, resident
from verifiers import v1 as vf
from verifiers.v1 import graph, rollout
from verifiers.v1.clients import ModelContext
from verifiers.v1.harnesses.null import NullHarness, NullHarnessConfig
from verifiers.v1.interception import Interception
from verifiers.v1.interception.base import Slot
from verifiers.v1.runtimes import ProgramResult, Runtime, RuntimeConfig, SubprocessRuntimeInfo
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import ModelCall, TimeSpan

WARM_UP = 50
"""Rollouts before the clock is read."""
NO_CAP = 10**9
LAST = 10
"""How many turns at the end of a long rollout are looked at one by one."""
FILLER = " and more" * 8


class Nowhere(Runtime):
    """A box without anything in it."""

    stops = 0
    """How many were taken down."""

    def __init__(self, config: RuntimeConfig, name: str | None = None) -> None:
        super().__init__(name)
        self.config = config
        self.info = SubprocessRuntimeInfo()

    async def start(self) -> None:
        pass

    async def teardown(self) -> None:
        Nowhere.stops += 1

    async def run(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
        raise NotImplementedError

    async def _read(self, path: str) -> bytes:
        raise NotImplementedError

    async def write(self, path: str, data: bytes) -> None:
        raise NotImplementedError


class InProcess(Interception):
    """Slots without a server: the harness calls `respond` instead of posting to a URL."""

    def __init__(self, answer: Callable[[vf.Request], Awaitable[vf.Response]]) -> None:
        super().__init__()
        self.answer = answer
        self.sessions: dict[str, RolloutSession] = {}

    async def start(self) -> None:
        pass

    @asynccontextmanager
    async def acquire(self, session: RolloutSession) -> AsyncIterator[Slot]:
        secret = session.trace.id
        self.sessions[secret] = session
        try:
            yield "http://127.0.0.1:1", secret, secret
        finally:
            del self.sessions[secret]
            session.release()

    async def respond(self, secret: str, request: vf.Request) -> vf.Response:
        """One turn, as `InterceptionServer.handle_request` takes it."""
        session = self.sessions[secret]
        if (refused := await session.refused()) is not None:
            raise RuntimeError(f"rollout stopped: {refused}")
        request, _, _ = await session.rewrite_request(request)
        turn = graph.prepare_turn(session.trace, request.messages)
        session.error = None
        started = time.time()
        response = await self.answer(request)
        node = turn.commit(response, request.tools)
        session.consume_prepared(turn.tail)
        session.trace.calls.append(
            ModelCall(
                node=node,
                model=session.ctx.model,
                sampling=session.ctx.sampling,
                endpoint="/chat/completions",
                finish_reason=response.finish_reason,
                usage=response.usage,
                time=TimeSpan(start=started, end=time.time()),
            )
        )
        return response


class Talker(NullHarness):
    """Talks for many turns, all in this process, and re-sends the whole conversation each time."""

    def __init__(self, interception: InProcess, turns: int = 1) -> None:
        super().__init__(NullHarnessConfig(id="null"))
        self.interception = interception
        self.turns = turns
        self.last: list[tuple[float, float]] = []
        """What each of the last turns took, in seconds of the clock and of the processor."""

    async def setup(self, runtime: Runtime) -> None:
        pass

    async def launch(
        self,
        ctx: ModelContext,
        trace: vf.Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> ProgramResult:
        said: vf.Messages = [vf.UserMessage(content=data.prompt)]
        for turn in range(self.turns):
            clock, processor = time.perf_counter(), time.process_time()
            reply = await self.interception.respond(secret, vf.Request(messages=said))
            if turn >= self.turns - LAST:
                self.last.append((time.perf_counter() - clock, time.process_time() - processor))
            said += reply.message, vf.UserMessage(content=f"and what of {turn}?{FILLER}")
        return ProgramResult(0, "", "")


Answer = Callable[[vf.Request], Awaitable[vf.Response]]


async def yes(request: vf.Request) -> vf.Response:
    """Answers at once."""
    return vf.Response(
        id="",
        created=0,
        model="scripted",
        message=vf.AssistantMessage(content="yes"),
        finish_reason="stop",
        usage=vf.Usage(prompt_tokens=len(request.messages), completion_tokens=1),
    )


class Silent:
    """Answers nobody, and tells when as many ask as are to."""

    def __init__(self, awaited: int) -> None:
        self.awaited = awaited
        self.full = asyncio.Event()

    async def __call__(self, request: vf.Request) -> vf.Response:
        self.awaited -= 1
        if not self.awaited:
            self.full.set()
        await asyncio.Future()
        raise AssertionError


class Asked(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def answered(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == "yes")

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


def tasks(number: int) -> list[Asked]:
    return [Asked(vf.TaskData(idx=place, prompt=f"number {place}")) for place in range(number)]


def agent(answer: Answer = yes, *, turns: int = 1, **limits: int) -> vf.Agent:
    """An agent that is scripted altogether."""
    rollout.make_runtime = Nowhere  # where a rollout takes its box from
    interception = InProcess(answer)
    config = vf.AgentConfig(
        harness=NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig(), model="scripted", **limits
    )
    made = vf.Agent(config, interception=interception)
    made.harness = Talker(interception, turns)
    return made


def checked(trace: vf.Trace) -> None:
    assert trace.ok, trace.errors
    assert trace.reward == 1.0, trace.rewards


async def rollouts(number: int, at_once: int) -> dict[str, float]:
    """Whole rollouts: one segment, one turn, one reward, one metric."""
    one = agent()
    room = asyncio.Semaphore(at_once)

    async def within(task: Asked) -> None:
        async with room:
            checked(await one.run(task))

    async def run(asked: list[Asked]) -> None:
        if at_once == 1:
            for task in asked:
                checked(await one.run(task))
        else:
            await asyncio.gather(*map(within, asked))

    await run(tasks(WARM_UP))
    asked = tasks(number)
    meter = Meter()
    await run(asked)
    clock, processor = meter.read()
    return {"rate": number / clock, "cpu_us": processor / number * 1e6}


async def turns(number: int) -> dict[str, float]:
    """One rollout of so many turns, each re-sending the whole conversation, with all four limits set."""
    limits = {
        "max_turns": NO_CAP,
        "max_input_tokens": NO_CAP,
        "max_output_tokens": NO_CAP,
        "max_total_tokens": NO_CAP,
    }
    checked(await agent(turns=LAST, **limits).run(*tasks(1)))
    one = agent(turns=number, **limits)
    meter = Meter()
    trace = await one.run(*tasks(1))
    clock, processor = meter.read()
    checked(trace)
    assert trace.num_turns == number, trace.num_turns
    wall, cpu = (median(part) for part in zip(*one.harness.last, strict=True))
    return {"total_s": clock, "total_cpu_s": processor, "last_us": wall * 1e6, "last_cpu_us": cpu * 1e6}


async def memory(number: int) -> dict[str, float]:
    """So many rollouts open at once, each waiting for its first user message: what each adds to the process (RSS)."""
    one = agent()
    asked = [Asked(vf.TaskData(idx=place)) for place in range(number)]
    checked(await one.run(*tasks(1)))
    before, stopped = resident(), Nowhere.stops
    with suppress(asyncio.CancelledError):
        async with AsyncExitStack() as stack:
            everyone = [await stack.enter_async_context(one.interaction(task)) for task in asked]
            taken = resident() - before
            assert not any(each.trace.is_completed for each in everyone)
            raise asyncio.CancelledError
    assert Nowhere.stops - stopped == number, "a box was left standing"
    return {"kib": taken / number / 1024}


async def cancelling(number: int) -> dict[str, float]:
    """So many rollouts in flight, each in a turn, are cancelled: until the last one's box is released."""
    asked = tasks(number)
    model = Silent(number)
    one = agent(model)
    everyone = [asyncio.create_task(one.run(task)) for task in asked]
    await model.full.wait()
    meter = Meter()
    for each in everyone:
        each.cancel()
    await asyncio.wait(everyone)
    clock, processor = meter.read()
    assert all(each.cancelled() for each in everyone)
    assert Nowhere.stops == number, "a box was left standing"
    return {"ms": clock * 1e3, "cpu_ms": processor * 1e3}


WORKS: dict[str, Callable[..., Coroutine[None, None, dict[str, float]]]] = {
    "rollouts": rollouts,
    "turns": turns,
    "memory": memory,
    "cancelling": cancelling,
}


def main(arguments: list[str]) -> None:
    """The command."""
    work, *numbers = arguments
    sys.stdout.write(f"{json.dumps(asyncio.run(WORKS[work](*map(int, numbers))))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
