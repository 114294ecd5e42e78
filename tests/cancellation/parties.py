"""The outside parties of a play: those of `tests.world`, for several rollouts at once, and a slot that notes its end.

Tasks are made once for each case and told before a play which world they belong to: an attrs class for each of some
thousand plays would cost more than the play.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from attrs import define, field

from rollout_fsm import Exchange, Harness, HarnessSession, Model, Request, Response, Runtime, Sampling, Task, Trace
from rollout_fsm.services import EngineServices
from rollout_fsm.session import Session
from tests.world import EchoModel, ScriptedHarness, ScriptedRuntime, World, world_task

OPENED, CLOSED = "slot.open", "slot.close"


@define(eq=False)
class Relay(World):
    """A world that stands for another."""

    to: World = field(factory=World)

    async def act(self, event: str) -> object:
        return await self.to.act(event)


@cache
def task_of(served: Sequence[str], place: int) -> tuple[Task, Relay]:
    """A task with these tool servers, the so many-th of those that are played side by side; and who it listens to."""
    relay = Relay()
    return world_task(relay, served=served, idx=place, prompt=str(place)), relay


class HarnessByRuntime(Harness):
    """One harness for all rollouts; each is noted in the world of its runtime."""

    async def setup(self, runtime: Runtime) -> None:
        await _scripted(runtime).setup(runtime)

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        return await _scripted(exchange.runtime).open_session(exchange)

    async def cleanup(self, trace: Trace, runtime: Runtime) -> None:
        await _scripted(runtime).cleanup(trace, runtime)


def _scripted(runtime: Runtime) -> ScriptedHarness:
    assert isinstance(runtime, ScriptedRuntime)
    return ScriptedHarness(runtime.world)


@define(eq=False)
class ModelByPrompt(Model):
    """One model for all rollouts; each is noted in the world that its prompt names."""

    world: Callable[[int], World]
    name = "echo"

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        return await EchoModel(self.world(int(request.messages[0].text))).respond(request, sampling)


@define(eq=False)
class NotedSlot:
    """A slot at a gateway that is only noted."""

    world: World
    fails: Callable[[], None]
    secret: str = "secret"
    url: str = ""

    def close(self) -> None:
        self.world.began.append(CLOSED)
        try:
            self.fails()
            self.world.ended.append(CLOSED)
        finally:
            self.world.left.append(CLOSED)


@contextmanager
def noted_slots(world_of: Callable[[Trace], World], fails: Callable[[], None]) -> Iterator[None]:
    """Engines in this block open slots that are noted; closing one does what `fails` does."""
    real = EngineServices.open_slot

    def open_slot(self: EngineServices, respondent: Session, *, model_name: str) -> NotedSlot:
        world = world_of(respondent.trace)
        world.began.append(OPENED)
        world.ended.append(OPENED)
        return NotedSlot(world, fails)

    EngineServices.open_slot = open_slot  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        EngineServices.open_slot = real  # type: ignore[method-assign]
