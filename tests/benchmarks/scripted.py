"""A box, a harness, a model and a task, scripted: none of them waits, so what a rollout costs is the engine's."""

import time
from collections.abc import Sequence
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
    Runtime,
    Sampling,
    Task,
    Trace,
    Usage,
    UserMessage,
    metric,
    reward,
)

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
