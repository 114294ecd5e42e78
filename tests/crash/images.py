"""What a crash leaves, taken at every moment of a run: the run's folder as it is on disk, and the boxes that stand.

A process that is killed leaves its files as they are then, and its boxes standing. So a run is looked at whenever
something happens in it, and each look is a crash to be resumed from, without a process to be killed.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen

from rollout_fsm import (
    AssistantMessage,
    Harness,
    HarnessSession,
    Model,
    ProgramResult,
    ProviderError,
    Request,
    Response,
    RetryPolicy,
    Runtime,
    Sampling,
    Task,
    Trace,
    Usage,
    open_engine,
    reward,
)
from rollout_fsm.harness import Exchange
from rollout_fsm.messages import JSON, Message
from rollout_fsm.trace import TransitionRecord


@define(eq=False)
class Site:
    """Where boxes stand, whatever becomes of the processes that started them."""

    standing: dict[str, dict[str, bytes]] = field(factory=dict)
    """The files of each."""
    look: Callable[[str], None] = field(default=lambda what: None)
    """Told of everything that happens."""


SITE = Site()
"""A lease names no object, so this is the one place where every process finds its boxes."""


class Box(Runtime):
    """A box of the site."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def lease(self) -> Mapping[str, JSON]:
        return {"box": self.name}

    @classmethod
    async def reclaim(cls, lease: Mapping[str, JSON]) -> None:
        await happens("reclaim")
        SITE.standing.pop(str(lease["box"]), None)

    @classmethod
    async def adopt(cls, name: str, lease: Mapping[str, JSON]) -> "Runtime | None":
        await happens("adopt")
        return cls(name) if str(lease["box"]) in SITE.standing else None

    async def start(self) -> None:
        SITE.standing[self.name] = {}
        await happens("start")

    async def stop(self) -> None:
        self._stopped = True
        await happens("stop")
        SITE.standing.pop(self.name, None)

    async def run(self, argv: Sequence[str], **_: object) -> ProgramResult:
        return ProgramResult(exit_code=0)

    async def read(self, path: str) -> bytes:
        return SITE.standing[self.name][path]

    async def write(self, path: str, data: bytes | str) -> None:
        SITE.standing[self.name][path] = data if isinstance(data, bytes) else data.encode()


async def happens(what: str) -> None:
    SITE.look(what)
    await trio.lowlevel.checkpoint()


class Writes(Task):
    """Its reward is what the agent left in the box."""

    async def setup(self, trace: Trace, runtime: Runtime) -> None:
        await happens("setup")

    async def finalize(self, trace: Trace, runtime: Runtime) -> None:
        await happens("finalize")
        trace.info["collected"] = (await runtime.read("out")).decode()

    @reward
    async def left_behind(self, trace: Trace, runtime: Runtime) -> float:
        await happens("score")
        return float(trace.info["collected"] == (await runtime.read("out")).decode() == trace.last_reply)


class Writer(Harness):
    async def open_session(self, exchange: Exchange) -> HarnessSession:
        return WriterSession(exchange)


class WriterSession(HarnessSession):
    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    async def run(self, messages: Sequence[Message] | None) -> None:
        reply = await self.exchange.respond(Request(messages=self.exchange.prompt))
        await self.exchange.runtime.write("out", reply.message.text)

    async def close(self) -> None:
        await happens("close")


@define
class Moody(Model):
    """Fails so many times for each prompt, and answers with its number of calls then."""

    failures: int = 0
    name: str = "moody"
    _calls: dict[str, int] = field(factory=dict, init=False)

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        await happens("model")
        prompt = request.messages[-1].text
        self._calls[prompt] = self._calls.get(prompt, 0) + 1
        if self._calls[prompt] <= self.failures:
            raise ProviderError("overloaded", status_code=529)
        usage = Usage(prompt_tokens=3, completion_tokens=3)
        return Response(message=AssistantMessage(f"answer to {prompt}"), usage=usage)


@frozen(kw_only=True)
class Image:
    """A crash: what it came after, and what it left."""

    after: str
    folder: Path
    standing: Mapping[str, Mapping[str, bytes]]
    yielded: tuple[Trace, ...]
    """What the consumer had been given."""


def tasks(count: int) -> list[Task]:
    """Tasks of which the first two are equal."""
    return [Writes(prompt=f"number {max(1, number)}") for number in range(count)]


def agent(failures: int = 0, **more: Any) -> dict[str, Any]:
    retry = RetryPolicy(max_retries=9, backoff=lambda number: 0)
    return {"harness": Writer(), "model": Moody(failures), "runtime": Box, "retry": retry, "max_concurrent": 2, **more}


@define(eq=False)
class Camera:
    """Takes images of a run: an observer, and who is told by the site."""

    run: Path
    images: Path
    taken: list[Image] = field(factory=list)
    yielded: list[Trace] = field(factory=list)

    def on_transition(self, trace: Trace, transition: TransitionRecord) -> None:
        self.look(transition.target)

    def look(self, after: str) -> None:
        """The process dies now."""
        folder = self.images / f"{len(self.taken)}"
        shutil.copytree(self.run, folder)
        standing = {name: dict(files) for name, files in SITE.standing.items()}
        self.taken.append(Image(after=after, folder=folder, standing=standing, yielded=tuple(self.yielded)))


async def photographed(
    where: Path,
    *,
    count: int,
    failures: int,
    rollouts_per_task: int = 2,
    resume_from: Image | None = None,
    **more: Any,
) -> Camera:
    """A run of so many tasks, or the resumption of one, with an image of every moment; `more` is said of the agent."""
    run = where / "run"
    if resume_from is not None:
        shutil.copytree(resume_from.folder, run)
    SITE.standing = {} if resume_from is None else {name: dict(files) for name, files in resume_from.standing.items()}
    camera = Camera(run, where / "images")
    camera.yielded += () if resume_from is None else resume_from.yielded
    try:
        async with open_engine(
            output_dir=run, resume=resume_from is not None, gateway=False, observers=[camera]
        ) as engine:
            SITE.look = camera.look
            begin = engine.run_all if resume_from is None else engine.resume
            async with begin(tasks(count), rollouts_per_task=rollouts_per_task, **agent(failures, **more)) as traces:
                async for trace in traces:
                    camera.yielded.append(trace)
                    camera.look("yielded")
    finally:
        SITE.look = lambda what: None
    return camera
