"""Parties that raise where a test says so, and hold something real until then: a process, a folder, a socket.

Each trap has a name. What is held is released by the engine's own calls and by nothing else.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import trio
from attrs import define, field, frozen

from rollout_fsm import (
    Exchange,
    Harness,
    HarnessSession,
    Judge,
    LocalRuntime,
    Message,
    Model,
    ProgramResult,
    Request,
    Response,
    RolloutContext,
    Runtime,
    ScriptedModel,
    Task,
    Toolset,
    Trace,
    intercept,
    metric,
    reward,
    stop,
)
from tests.end_to_end.agents import QUIET


def spring(trap: str, name: str) -> None:
    """Raise if this is the trap that is set."""
    if trap == name:
        raise RuntimeError(f"sprung: {name}")


@frozen(kw_only=True)
class TrappedTask(Task):
    """A task with a hook of every kind, and a server of its own in the box."""

    trap: str

    async def setup(self, trace: Trace, runtime: Runtime) -> None:
        await runtime.run(["sh", "-c", f"sleep 1000 {QUIET} &"])
        spring(self.trap, "task.setup")

    async def finalize(self, trace: Trace, runtime: Runtime) -> None:
        spring(self.trap, "task.finalize")

    def toolsets(self) -> Sequence[Toolset]:
        spring(self.trap, "task.toolsets")
        return [Listening("", "first"), Listening(self.trap, "second")]

    def judges(self) -> Sequence[Judge]:
        spring(self.trap, "task.judges")
        return [TrappedJudge(self.trap)]

    @stop
    def before_a_turn(self, trace: Trace) -> bool:
        spring(self.trap, "stop.trace")
        return False

    @stop
    def before_the_model(self, request: Request) -> bool:
        spring(self.trap, "stop.request")
        return False

    @stop
    def after_the_model(self, response: Response) -> bool:
        spring(self.trap, "stop.response")
        return False

    @intercept
    def on_its_way(self, request: Request) -> None:
        spring(self.trap, "intercept.prompt" if len(request.messages) == 1 else "intercept.request")

    @intercept
    def on_its_way_back(self, response: Response) -> None:
        spring(self.trap, "intercept.response")

    @reward
    def good(self) -> float:
        spring(self.trap, "reward")
        return 1.0

    @metric
    def many(self, trace: Trace) -> float:
        spring(self.trap, "metric")
        return trace.num_turns


class TrappedJudge(Judge):
    """Finds everything good."""

    name = "judge"

    def __init__(self, trap: str) -> None:
        self.trap = trap

    async def score(self, task: Task, trace: Trace) -> float:
        spring(self.trap, "judge")
        return 1.0


class Listening(Toolset):
    """A tool server that holds a socket."""

    def __init__(self, trap: str, name: str) -> None:
        self.trap = trap
        self._name = name
        self._listeners: list[trio.SocketListener] = []

    @property
    def name(self) -> str:
        return self._name

    async def start(self, context: RolloutContext) -> str:
        spring(self.trap, "tools.start")
        self._listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        return f"http://127.0.0.1:{self._listeners[0].socket.getsockname()[1]}"

    async def stop(self) -> None:
        for listener in self._listeners:
            await listener.aclose()
        spring(self.trap, "tools.stop")


def trapped_tools(trap: str) -> Callable[[], Toolset]:
    """Builds one more tool server, or fails to."""

    def build() -> Toolset:
        spring(trap, "tools.build")
        return Listening("", "third")

    return build


@define(eq=False)
class TrappedHarness(Harness):
    """Any harness, with traps around it. It holds a folder from `setup` to `cleanup`; one object serves one rollout."""

    inner: Harness
    trap: str
    _folder: Path | None = field(default=None, init=False)

    async def setup(self, runtime: Runtime) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="harness-"))
        await self.inner.setup(runtime)
        spring(self.trap, "harness.setup")

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        session = await self.inner.open_session(exchange)
        spring(self.trap, "harness.open_session")
        return TrappedSession(session, self.trap)

    async def cleanup(self, trace: Trace, runtime: Runtime) -> None:
        await self.inner.cleanup(trace, runtime)
        if self._folder is not None:
            shutil.rmtree(self._folder)
        spring(self.trap, "harness.cleanup")

    @metric
    def effort(self, trace: Trace) -> float:
        spring(self.trap, "harness.metric")
        return len(trace.calls)


@define(eq=False)
class TrappedSession(HarnessSession):
    """The session of a trapped harness."""

    inner: HarnessSession
    trap: str

    async def run(self, messages: Sequence[Message] | None) -> ProgramResult | None:
        result = await self.inner.run(messages)
        spring(self.trap, "session.run")
        return result

    async def close(self) -> None:
        await self.inner.close()
        spring(self.trap, "session.close")


class TrappedBox(LocalRuntime):
    """A box that raises after it did what it was asked."""

    trap = ""

    async def start(self) -> None:
        await super().start()
        spring(self.trap, "runtime.start")

    async def prepare_setup(self) -> None:
        await super().prepare_setup()
        spring(self.trap, "runtime.prepare_setup")

    async def prepare_execution(self, routes: Sequence[str]) -> None:
        await super().prepare_execution(routes)
        spring(self.trap, "runtime.prepare_execution")

    async def kill(self) -> bool:
        dead = await super().kill()
        spring(self.trap, "runtime.kill")
        return dead

    async def stop(self) -> None:
        await super().stop()
        spring(self.trap, "runtime.stop")


def trapped_boxes(trap: str) -> Callable[[str], Runtime]:
    """A factory of boxes with this trap."""

    def make(name: str) -> Runtime:
        spring(trap, "runtime.factory")
        box = TrappedBox(name, grace=0.05)
        box.trap = trap
        return box

    return make


def trapped_model(trap: str) -> Model:
    """A model that says yes."""

    def reply(request: Request) -> str:
        spring(trap, "model")
        return "yes"

    return ScriptedModel(reply)


@define(eq=False)
class TrappedObserver:
    """Watches a rollout, badly."""

    trap: str
    told: set[str] = field(factory=set)

    def _tell(self, event: str) -> None:
        self.told.add(event)
        spring(self.trap, f"observer.{event}")

    def on_trace(self, trace: Trace) -> None:
        self._tell("on_trace")

    def on_transition(self, trace: Trace, transition: object) -> None:
        self._tell("on_transition")

    def on_finished(self, trace: Trace) -> None:
        self._tell("on_finished")
