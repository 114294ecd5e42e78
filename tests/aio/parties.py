"""The outside parties of a rollout as an asyncio program writes them: each notes where it is called, and may be told
to wait, on asyncio, until the test lets it go."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sniffio
from attrs import define, field, frozen

from rollout_fsm import (
    AssistantMessage,
    Exchange,
    Harness,
    HarnessSession,
    Judge,
    Message,
    Model,
    ProgramResult,
    Request,
    Response,
    RolloutContext,
    Runtime,
    Sampling,
    Task,
    Toolset,
    Trace,
    Usage,
    UserMessage,
    intercept,
    metric,
    reward,
    stop,
)


def reply(text: str = "4") -> Response:
    """What a model says."""
    return Response(message=AssistantMessage(text), usage=Usage(prompt_tokens=1, completion_tokens=1))


@define(eq=False)
class Stage:
    """What the parties share: the notes, and who has to wait."""

    called: list[str] = field(factory=list)
    boxes: list["AsyncRuntime"] = field(factory=list)
    cancelled: list[str] = field(factory=list)
    """Who was cancelled on asyncio, and has cleaned up."""
    hang: set[str] = field(factory=set)
    """Who waits until `go` is set."""
    reached: asyncio.Event = field(factory=asyncio.Event)
    """Set when somebody waits."""
    go: asyncio.Event = field(factory=asyncio.Event)
    deaf: set[str] = field(factory=set)
    """Who, when it waits, does not mind being cancelled, and ends by `go` alone."""

    async def at(self, where: str) -> None:
        """A coroutine of the embedder's has come here: it is an asyncio task."""
        assert asyncio.current_task() is not None
        assert sniffio.current_async_library() == "asyncio"
        self.called.append(where)
        await asyncio.sleep(0)
        if where in self.hang:
            self.reached.set()
            try:
                await self._let_go(deaf=where in self.deaf)
            except asyncio.CancelledError:
                await asyncio.sleep(0)  # what it does to clean up
                self.cancelled.append(where)
                raise

    async def _let_go(self, *, deaf: bool) -> None:
        while True:
            try:
                await self.go.wait()
                return
            except asyncio.CancelledError:
                if not deaf:
                    raise


@frozen(kw_only=True)
class AsyncTask(Task):
    """Every hook and signal is a coroutine of asyncio's."""

    answer: str = "4"

    async def setup(self, trace: Trace, runtime: Runtime) -> None:
        await stage(trace).at("task.setup")

    async def finalize(self, trace: Trace, runtime: Runtime) -> None:
        await stage(trace).at("task.finalize")

    @stop
    async def said_done(self, trace: Trace) -> bool:
        await stage(trace).at("stop")
        return "DONE" in (trace.last_reply or "")

    @intercept
    async def shown(self, request: Request) -> None:
        await asyncio.sleep(0)

    @metric
    async def turns(self, trace: Trace) -> float:
        await stage(trace).at("metric")
        return trace.num_turns

    @reward
    async def correct(self, trace: Trace) -> float:
        await stage(trace).at("reward")
        return float(self.answer in (trace.last_reply or ""))


def stage(trace: Trace) -> Stage:
    """Of this rollout."""
    found = trace.state["stage"]
    assert isinstance(found, Stage)
    return found


@define(eq=False)
class Observer:
    """Puts the stage on every trace that is minted, and keeps those that are finished."""

    stage: Stage
    minted: list[Trace] = field(factory=list)
    finished: list[Trace] = field(factory=list)

    def on_trace(self, trace: Trace) -> None:
        trace.state["stage"] = self.stage
        self.minted.append(trace)

    def on_finished(self, trace: Trace) -> None:
        self.finished.append(trace)


class AsyncModel(Model):
    """Holds something open, and answers after a round of the loop."""

    name = "async"

    def __init__(self, stage: Stage, text: str = "4") -> None:
        self.stage = stage
        self.text = text
        self.entered_by: asyncio.Task[Any] | None = None
        self.left_by: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> "AsyncModel":
        self.entered_by = asyncio.current_task()
        await self.stage.at("model.enter")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.left_by = asyncio.current_task()
        await self.stage.at("model.leave")

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        await self.stage.at("model")
        return reply(self.text)


class AsyncRuntime(Runtime):
    """A box of the embedder's: all that it has to do itself is asyncio's, `alive` and `kill` are inherited."""

    def __init__(self, stage: Stage, name: str = "box") -> None:
        self.stage = stage
        self.name = name
        self.files: dict[str, bytes] = {}
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    async def start(self) -> None:
        await self.stage.at("runtime.start")

    async def stop(self) -> None:
        self._stopped = True
        await self.stage.at("runtime.stop")

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        await self.stage.at("runtime.run")
        return ProgramResult(exit_code=0, stdout=" ".join(argv))

    async def read(self, path: str) -> bytes:
        await self.stage.at("runtime.read")
        return self.files[path]

    async def write(self, path: str, data: bytes | str) -> None:
        await self.stage.at("runtime.write")
        self.files[path] = data.encode() if isinstance(data, str) else data


class AsyncToolset(Toolset):
    """A tool server of the embedder's, which looks at the runtime."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def start(self, context: RolloutContext) -> str:
        await self.stage.at("tools.start")
        await context.runtime.write("tools", "up")
        return "http://127.0.0.1:1/tools"

    async def stop(self) -> None:
        await self.stage.at("tools.stop")


class AsyncJudge(Judge):
    """A judge of the embedder's."""

    name = "judge"
    weight = 2.0

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def score(self, task: Task, trace: Trace) -> float:
        await self.stage.at("judge")
        return 0.5


class AsyncHarness(Harness):
    """A harness of the embedder's: one model call a segment."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def setup(self, runtime: Runtime) -> None:
        await self.stage.at("harness.setup")
        await runtime.write("ready", "yes")

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        await self.stage.at("session.open")
        return AsyncSession(self.stage, exchange)

    async def cleanup(self, trace: Trace, runtime: Runtime) -> None:
        await self.stage.at("harness.cleanup")
        assert await runtime.read("ready") == b"yes"

    @metric
    async def heard(self, trace: Trace) -> float:
        await self.stage.at("harness.metric")
        return 1.0


class AsyncSession(HarnessSession):
    """One exchange of it."""

    def __init__(self, stage: Stage, exchange: Exchange) -> None:
        self.stage = stage
        self.exchange = exchange
        self.said: list[Message] = list(exchange.prompt)

    async def run(self, messages: Sequence[Message] | None) -> None:
        await self.stage.at("session.run")
        self.said += messages or ()
        answer = await self.exchange.respond(Request(messages=tuple(self.said)))
        self.said.append(answer.message)
        await self.stage.at("session.ran")

    async def close(self) -> None:
        await self.stage.at("session.close")


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until this is so."""
    while not condition():  # noqa: ASYNC110  (what it waits for sets no event)
        await asyncio.sleep(0)


def asked(text: str) -> Request:
    """A request with one message."""
    return Request(messages=(UserMessage(text),))
