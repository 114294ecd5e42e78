"""A small scripted world for tests of the driver: every outside party notes what begins, and takes a checkpoint or
what it is told.

Parties are real implementations of the contracts; only what they do is scripted. `World.script` maps an event to an
async function that is run in its place; whatever is acquired is noted, so that a test can ask what was released, and
in which order. `play` runs one rollout whole, `mint` only makes it, `held_in` brings one into any state and keeps it
there; what they end is checked against the declaration.
"""

import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio
import trio.testing
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
    Rollout,
    RolloutContext,
    Runtime,
    Sampling,
    Task,
    Toolset,
    Trace,
    TurnRefused,
    Usage,
    UserMessage,
    check_trace,
    metric,
    open_engine,
    reward,
)
from rollout_fsm.engine import Engine

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
    said: list[Sequence[Message] | None] = field(factory=list)
    """What each segment was given."""
    seen: list[Request] = field(factory=list)
    """What the model was shown."""
    restricted: bool = False
    """Whether the runtime holds its programs to a network policy."""
    state: str = ""
    """Where the rollout that `play` ran ended."""
    session: "ScriptedSession | None" = None
    """The newest harness session, until the harness is cleaned up."""
    runtime: "ScriptedRuntime | None" = None
    """The newest runtime."""
    minted: "weakref.ref[Rollout] | None" = None
    """The newest rollout; held weakly, since what it leaves behind is tested."""

    @property
    def rollout(self) -> Rollout:
        """The newest rollout."""
        rollout = None if self.minted is None else self.minted()
        assert rollout is not None
        return rollout

    async def note(self, event: str) -> object:
        """Note the event and do what the script says, if it says anything; no checkpoint of its own."""
        if event in self.script:
            return await self.act(event)
        self.began.append(event)
        return None

    @property
    def exchange(self) -> Exchange:
        """What the newest harness session was given."""
        assert self.session is not None
        return self.session.exchange

    async def act(self, event: str) -> object:
        """Note the event and do what the script says, else take one checkpoint."""
        self.began.append(event)
        try:
            act = self.script.get(event)
            value: object = None
            if act is None:
                await trio.lowlevel.checkpoint()
            else:
                value = await act()
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
        world.runtime = self

    @property
    def stopped(self) -> bool:
        return self._stopped

    async def start(self) -> None:
        await self.world.act("runtime.start")

    async def stop(self) -> None:
        self._stopped = True
        await self.world.act("runtime.stop")

    async def run(self, argv: Sequence[str], **_: object) -> ProgramResult:
        raise NotImplementedError(argv)

    async def prepare_setup(self) -> None:
        await self.world.note("runtime.prepare_setup")

    @property
    def restricted(self) -> bool:
        return self.world.restricted

    async def prepare_execution(self, routes: Sequence[str]) -> None:
        await self.world.note("runtime.prepare_execution")

    async def alive(self) -> bool:
        return await self.world.note("runtime.alive") is not False

    async def kill(self) -> bool:
        return await self.world.note("runtime.kill") is not False and self.killed

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
        self.world.said.append(messages)
        self.conversation += messages or ()
        if (act := self.world.script.get("segment")) is not None:
            result = await act()
            assert result is None or isinstance(result, ProgramResult)
            return result
        for turn in range(self.world.turns):
            await self.turn(f"go on {turn}" if turn else None)
        return None

    async def turn(self, said: str | None = None) -> Response:
        """One model call, with the whole conversation and something new."""
        if said is not None:
            self.conversation.append(UserMessage(said))
        reply = await self.exchange.respond(Request(messages=self.conversation))
        self.conversation.append(reply.message)
        return reply

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
        session = ScriptedSession(self.world, exchange)
        self.world.session = session
        await self.world.act("session.open")
        self.sessions.append(session)
        return session

    async def cleanup(self, trace: Trace, runtime: Runtime) -> None:
        self.sessions.clear()
        try:
            await self.world.act("harness.cleanup")
        finally:
            self.world.session = None


class EchoModel(Model):
    """Answers "reply"; what the script says comes first."""

    name = "echo"

    def __init__(self, world: World) -> None:
        self.world = world

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        self.world.seen.append(request)
        said = await self.world.act("model")
        if isinstance(said, Response):
            return said
        text = said if isinstance(said, str) else "reply"
        return Response(message=AssistantMessage(text), usage=Usage(prompt_tokens=10, completion_tokens=5))


class NoHooks:
    """A task without further hooks."""


def world_task(
    world: World, *, served: Sequence[str] = (), prompt: str | None = "hello", hooks: type = NoHooks, **fields: Any
) -> Task:
    """A task of this world, with these tool servers, a reward and a metric; `hooks` is a class with further ones."""

    @frozen(kw_only=True)
    class WorldTask(hooks, Task):  # type: ignore[misc]
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

    return WorldTask(prompt=prompt, **fields)


def agent(world: World, **given: Any) -> dict[str, Any]:
    """The settings of a rollout in this world."""
    defaults: dict[str, Any] = {
        "harness": ScriptedHarness(world),
        "model": EchoModel(world),
        "runtime": lambda name: ScriptedRuntime(world, name),
    }
    return {**defaults, **given}


Drive = Callable[[Rollout], Awaitable[object]]


async def whole(rollout: Rollout) -> None:
    """Open, one segment, close: a rollout as `Engine.run` drives it."""
    if await rollout.open():
        await rollout.step()
    await rollout.close()


def mint(engine: Engine, world: World, *, task: Task | None = None, borrowed: bool = False, **settings: Any) -> Rollout:
    """A rollout of this world, not opened."""
    given = agent(world, **({"runtime": ScriptedRuntime(world)} if borrowed else {}))
    rollout = engine.rollout(world_task(world) if task is None else task, **{**given, **settings})
    world.minted = weakref.ref(rollout)
    return rollout


async def play(world: World, *, drive: Drive = whole, **settings: Any) -> Trace:
    """One rollout in an engine of its own; its trace, which conforms, with everything released (L70, L83)."""
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world, **settings)
        try:
            await drive(rollout)
        finally:
            world.state = rollout.state
    trace = rollout.trace
    assert check_trace(trace) == []
    if not settings.get("borrowed"):
        assert world.unreleased() == []
    return trace


def events(world: World, *names: str) -> list[str]:
    """Those events, in the order in which they began."""
    return [event for event in world.began if event in names]


def warnings(trace: Trace, *kinds: str) -> list[str]:
    """The messages of the trace's warnings, of these kinds if any are named."""
    return [warning.message for warning in trace.warnings if not kinds or warning.kind in kinds]


def kinds(trace: Trace) -> list[str]:
    """The kinds of the trace's warnings."""
    return [warning.kind for warning in trace.warnings]


def error_types(trace: Trace) -> list[str]:
    """The types of the trace's errors, oldest first."""
    return [error.type for error in trace.errors]


# ---- what a party may be told to do


def raises(kind: type[BaseException], *args: object) -> Act:
    """Raise a fresh exception."""

    async def act() -> object:
        await trio.lowlevel.checkpoint()
        raise kind(*args)

    return act


def returns(value: object) -> Act:
    """Return something."""

    async def act() -> object:
        await trio.lowlevel.checkpoint()
        return value

    return act


def sleeps(seconds: float, value: object = None) -> Act:
    """Take a while."""

    async def act() -> object:
        await trio.sleep(seconds)
        return value

    return act


async def swallows() -> None:
    """Swallow an interruption and return as if nothing had been."""
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        return


async def stray() -> None:
    """Raise a Cancelled that was kept from an earlier cancellation."""
    kept: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            kept.append(cancelled)
            raise
    raise kept.pop()


def at_once(*acts: Act) -> Act:
    """Do several things side by side."""

    async def act() -> object:
        async with trio.open_nursery() as nursery:
            for each in acts:
                nursery.start_soon(each)
        return None

    return act


# ---- a rollout in any state

HELD_AT = {
    "booting": "runtime.start",
    "setup": "task.setup",
    "stepping": "segment",
    "stopping": "segment",
    "closing": "session.close",
    "finalizing": "finalize",
    "scoring": "score.good",
    "releasing": "harness.cleanup",
    "discarding": "harness.cleanup",
    "aborting": "harness.cleanup",
}
"""What does not return, in the states that have an activity."""
RESTING = ("created", "waiting", "stopped", "failing")
FINAL = ("completed", "failed", "aborted")
STATES = (*RESTING, *HELD_AT, *FINAL)


@define(eq=False)
class Held:
    """A rollout that is kept in a state."""

    rollout: Rollout
    world: World
    gate: trio.Event = field(factory=trio.Event)
    """Lets the running activity end."""
    pending: list[object] = field(factory=list)
    """What the verb in progress returned, or raised."""

    async def drive(self, verb: str) -> None:
        """Call a verb, and keep what comes of it."""
        try:
            self.pending.append(await getattr(self.rollout, verb)())
        except Exception as raised:  # noqa: BLE001  (kept for the test to judge)
            self.pending.append(raised)

    async def refused(self) -> None:
        """A segment whose turn is refused, and which then does not end."""
        self.rollout.stop("enough")
        with suppress(TurnRefused):
            assert self.world.session is not None
            await self.world.session.turn()
        await self.gate.wait()


_WAY: dict[str, tuple[str, ...]] = {
    "created": (),
    "booting": (),
    "setup": (),
    "stopped": ("open", "stop"),
    "failing": ("open", "fail"),
    "discarding": ("open", "fail"),
    "completed": ("open", "close"),
    "failed": ("open", "fail", "close"),
    "aborted": ("open", "cancel"),
}
"""What is called, and ends, on the way to the state; by default `open`."""
_LAST = {"booting": "open", "setup": "open", "stepping": "step", "stopping": "step", "aborting": "cancel"}
"""What is called, and does not end; by default `close`."""


@asynccontextmanager
async def held_in(state: str, **settings: Any) -> AsyncIterator[Held]:
    """A rollout that has a user, in that state; what it holds up is let go of at the end."""
    world = World()
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        rollout = mint(engine, world, has_user=True, **settings)
        held = Held(rollout, world)
        for verb in _WAY.get(state, ("open",)):
            if verb == "fail":
                rollout.fail(OwnersError("the owner's"))
            elif verb == "stop":
                rollout.stop("enough")
            else:
                await getattr(rollout, verb)()
        if state in HELD_AT:
            world.script[HELD_AT[state]] = held.refused if state == "stopping" else held.gate.wait
            nursery.start_soon(held.drive, _LAST.get(state, "close"))
            await trio.testing.wait_all_tasks_blocked()
        assert rollout.state == state
        try:
            yield held
        finally:
            held.gate.set()
    assert rollout.is_final
    assert check_trace(rollout.trace) == []
    assert world.unreleased() == []


class OwnersError(Exception):
    """What the owner of a rollout reports."""
