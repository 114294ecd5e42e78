"""`setup`: everything up to the opened harness session, under one deadline, in the order of L5."""

from collections.abc import Awaitable, Callable
from functools import partial

from attrs import frozen

from rollout_fsm.attempt import strikeable
from rollout_fsm.errors import HarnessError, InterceptionError, SandboxError, TaskError, ToolsetError
from rollout_fsm.foreign import call, is_given
from rollout_fsm.harness import Exchange, HarnessSession
from rollout_fsm.held_open import SessionHolds
from rollout_fsm.holdings import Held, OwnMethod
from rollout_fsm.outcome import Outcome
from rollout_fsm.plan import NoGatewaySlot
from rollout_fsm.runtime import Route
from rollout_fsm.session import Session
from rollout_fsm.toolset import RolloutContext, Toolset
from rollout_fsm.world import World, nobody

SHARED = ", shared setup budget"


async def setup(world: World) -> Outcome:
    """Prepare the world for the exchange. What begins is registered for release in the same step (L8)."""
    plan, trace, runtime = world.plan, world.trace, world.require_runtime()
    world.calling(TaskError, "task setup", f"{SHARED}; harness setup had not started")
    if given := is_given(plan.task, "setup"):
        await strikeable(call, plan.task.setup, trace, runtime)
    await world.proceed(called=given)

    world.calling(HarnessError, "harness setup", SHARED)
    world.hold_cleanup(runtime)
    if given := is_given(plan.harness, "setup"):
        await strikeable(call, plan.harness.setup, runtime)
    await world.proceed(called=given)

    world.calling(TaskError, "naming the task's tool servers", SHARED)
    own = list(plan.task.toolsets())
    world.calling(ToolsetError, "building the tool servers", SHARED)
    toolsets = _by_name([*own, *(make() for make in plan.tools)])

    world.calling(InterceptionError, "opening the interception slot", SHARED)
    assert world.gate is not None
    session = world.session = Session(plan, trace, world.clock, runtime, world.gate, world.watcher or nobody)
    slot = plan.services.open_slot(session, model_name=plan.model_name)
    state = plan.services.open_state(slot, trace)

    async def close_slot() -> None:
        slot.close()
        state.close()

    if not isinstance(slot, NoGatewaySlot):
        world.hold("close", "interception slot", close_slot)

    routes = [Route(slot.url, slot.answer)] if slot.url else []
    urls: dict[str, str] = {}
    here: dict[str, str] = {}
    for name, toolset in toolsets.items():
        world.calling(ToolsetError, f"starting tool server {name!r}", SHARED)
        context = RolloutContext(
            task=plan.task,
            trace=trace,
            runtime=runtime,
            state_url=state.url,
            state_secret=state.secret,
            serve=partial(_serve, world, name),
        )
        url = await call(toolset.start, context)
        world.hold("close", f"tool server {name!r}", partial(call, toolset.stop))
        await world.proceed()
        if not isinstance(url, str):
            raise TypeError(f"its start() returned {type(url).__name__}; it returns a URL as text")
        routes.append(url if isinstance(url, Route) else Route(url))
        here[name] = url
        urls[name] = _reachable(world, f"tool server {name!r}", url)

    world.calling(SandboxError, "applying the network policy", SHARED)
    if given := is_given(runtime, "prepare_execution"):
        await call(runtime.prepare_execution, routes)
    await world.proceed(called=given)
    if not isinstance(restricted := runtime.restricted, bool):
        raise TypeError(f"restricted of the runtime is of type {type(restricted).__name__}; it is a bool")
    session.restricted = restricted

    world.calling(TaskError, "prompt interception", SHARED)
    world.opening = await session.intercept(plan.task.opening, opening=True)

    endpoint = _reachable(world, "the gateway", slot.url) if slot.url else ""
    world.calling(HarnessError, "opening the harness session", SHARED)
    holds = SessionHolds(plan.services.hosting, session)
    holds.on_first = _AfterSession(world, len(world.holdings.held))
    exchange = Exchange(
        prompt=world.opening,
        system_prompt=plan.task.system_prompt,
        runtime=runtime,
        endpoint=endpoint,
        secret=slot.secret,
        tool_urls=urls,
        local_tool_urls=here,
        trace=trace,
        respond=session.respond,
        hold=holds.hold,
        remaining=world.agent.remaining,
    )
    harness_session = await call(plan.harness.open_session, exchange)
    if not isinstance(harness_session, HarnessSession):
        raise TypeError(f"open_session returned {type(harness_session).__name__}; it returns a HarnessSession")
    world.harness_session = harness_session
    world.hold("close", "harness session", OwnMethod(harness_session, "close"))
    return Outcome(trigger="ready")


@frozen(eq=False)
class _AfterSession:
    """Has what the session holds open left when the session is closed, which is registered above this place."""

    world: World
    place: int

    def __call__(self, leave: Callable[[], Awaitable[None]]) -> None:
        name, bound = "things that the harness session held open", self.world.plan.bounds.close
        held = Held(kind="close", name=name, undo=leave, boundary=HarnessError, setting="close", bound=bound)
        self.world.holdings.held.insert(self.place, held)


async def _serve(world: World, name: str, toolset: Toolset, context: RolloutContext) -> str:
    """Serve tools with a server of the engine's, which is stopped after the toolset (L8)."""
    server = await world.plan.services.serve_tools(toolset, context)
    world.hold("close", f"tool server {name!r}", server.stop)
    return server.url


def _reachable(world: World, what: str, url: str) -> str:
    """The URL under which programs in the runtime reach something of the engine's host."""
    world.calling(SandboxError, f"mapping the URL of {what} into the runtime", SHARED)
    mapped = world.present_runtime.host_url(url)
    if not isinstance(mapped, str):
        raise TypeError(f"host_url() returned {type(mapped).__name__}; it returns a URL as text")
    return mapped


def _by_name(toolsets: list[Toolset]) -> dict[str, Toolset]:
    """The tool servers under their names, each asked for once. Raises `TypeError`, and `ValueError` for a name
    twice."""
    named: dict[str, Toolset] = {}
    for toolset in toolsets:
        if not isinstance(toolset, Toolset):
            raise TypeError(f"a tool server was built as {type(toolset).__name__}; it must be a Toolset")
        if not isinstance(name := toolset.name, str):
            raise TypeError(f"the name of {type(toolset).__name__} is of type {type(name).__name__}; a name is text")
        if name in named:
            raise ValueError(f"two tool servers are named {name!r}; give one of them another name")
        named[name] = toolset
    return named
