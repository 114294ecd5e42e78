"""A small scripted world for tests of the driver: every outside party notes what begins, and takes a checkpoint or
what it is told.

Parties are real implementations of the contracts; only what they do is scripted. `World.script` maps an event to an
async function that is run in its place; whatever is acquired is noted, so that a test can ask what was released, and
in which order.
"""

from collections.abc import Awaitable, Callable, Sequence

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
    RolloutContext,
    Runtime,
    Sampling,
    Task,
    Toolset,
    Trace,
    Usage,
    UserMessage,
    metric,
    reward,
)

Act = Callable[[], Awaitable[object]]

PAIRS = {
    "runtime.start": "runtime.stop",
    "harness.setup": "harness.cleanup",
    "tools.start:a": "tools.stop:a",
    "tools.start:b": "tools.stop:b",
    "session.open": "session.close",
}
"""What begins, and what releases it. The first two are released whenever they began, the others once they were had."""


@define(eq=False)
class World:
    """What the parties share: the script and the notes."""

    script: dict[str, Act] = field(factory=dict)
    turns: int = 1
    began: list[str] = field(factory=list)
    ended: list[str] = field(factory=list)
    left: list[str] = field(factory=list)

    async def act(self, event: str) -> object:
        """Note the event and do what the script says, else take one checkpoint."""
        self.began.append(event)
        try:
            act = self.script.get(event)
            value = await act() if act is not None else await trio.lowlevel.checkpoint()
            self.ended.append(event)
            return value
        finally:
            self.left.append(event)

    def unreleased(self) -> list[str]:
        """What was acquired and not released exactly once, or released out of order; empty when all is well."""
        faults: list[str] = []
        held: list[str] = []
        for acquire, release in PAIRS.items():
            had = acquire in (self.began if acquire in ("runtime.start", "harness.setup") else self.ended)
            if (times := self.began.count(release)) != int(had):
                faults.append(f"{acquire} {'was' if had else 'was not'} had, {release} began {times} times")
            if release in self.began and release not in self.ended and release not in self.script:
                faults.append(f"{release} was cut short")
            if had:
                held.append(release)
        order = [event for event in self.began if event in held]
        if order != sorted(held, key=list(PAIRS.values()).index, reverse=True):
            faults.append(f"released in the order {order}")
        return faults


class ScriptedRuntime(Runtime):
    """A box that is only noted."""

    def __init__(self, world: World, name: str = "box") -> None:
        self.world = world
        self.name = name
        self.killed = True
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    async def start(self) -> None:
        await self.world.act("runtime.start")

    async def stop(self) -> None:
        self._stopped = True
        await self.world.act("runtime.stop")

    async def run(self, argv: Sequence[str], **_: object) -> ProgramResult:  # type: ignore[override]
        raise NotImplementedError(argv)

    async def kill(self) -> bool:
        return self.killed

    async def read(self, path: str) -> bytes:
        raise FileNotFoundError(path)

    async def write(self, path: str, data: bytes | str) -> None:
        raise PermissionError(path)


class ScriptedToolset(Toolset):
    """A tool server that is only noted."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def start(self, context: RolloutContext) -> str:
        await self.world.act(f"tools.start:{self._name}")
        return f"http://tools/{self._name}"

    async def stop(self) -> None:
        await self.world.act(f"tools.stop:{self._name}")


class ScriptedSession(HarnessSession):
    """Makes `turns` model calls in a segment, each with the whole conversation."""

    def __init__(self, world: World, exchange: Exchange) -> None:
        self.world = world
        self.exchange = exchange
        self.conversation: list[Message] = list(exchange.prompt)

    async def run(self, messages: Sequence[Message] | None) -> ProgramResult | None:
        self.world.began.append("segment")
        self.conversation += messages or ()
        if (act := self.world.script.get("segment")) is not None:
            result = await act()
            assert result is None or isinstance(result, ProgramResult)
            return result
        for turn in range(self.world.turns):
            if turn:
                self.conversation.append(UserMessage(f"go on {turn}"))
            reply = await self.exchange.respond(Request(messages=self.conversation))
            self.conversation.append(reply.message)
        return None

    async def close(self) -> None:
        await self.world.act("session.close")


class ScriptedHarness(Harness):
    """A harness in this process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sessions: list[ScriptedSession] = []

    async def setup(self, runtime: Runtime) -> None:
        await self.world.act("harness.setup")

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        await self.world.act("session.open")
        session = ScriptedSession(self.world, exchange)
        self.sessions.append(session)
        return session

    async def cleanup(self, trace: Trace, runtime: Runtime) -> None:
        self.sessions.clear()
        await self.world.act("harness.cleanup")


class EchoModel(Model):
    """Answers "reply"; what the script says comes first."""

    name = "echo"

    def __init__(self, world: World) -> None:
        self.world = world

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        said = await self.world.act("model")
        if isinstance(said, Response):
            return said
        text = said if isinstance(said, str) else "reply"
        return Response(message=AssistantMessage(text), usage=Usage(prompt_tokens=10, completion_tokens=5))


def world_task(world: World, *, served: Sequence[str] = (), prompt: str | None = "hello") -> Task:
    """A task of this world, with these tool servers, a reward and a metric."""

    @frozen(kw_only=True)
    class WorldTask(Task):
        async def setup(self, trace: Trace, runtime: Runtime) -> None:
            await world.act("task.setup")

        async def finalize(self, trace: Trace, runtime: Runtime) -> None:
            await world.act("finalize")

        def toolsets(self) -> Sequence[Toolset]:
            return [ScriptedToolset(world, name) for name in served]

        @reward
        async def good(self) -> float:
            await world.act("score.good")
            return 1.0

        @metric
        async def steps(self, trace: Trace) -> float:
            await world.act("score.steps")
            return float(trace.num_turns)

    return WorldTask(prompt=prompt)
