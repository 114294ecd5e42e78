"""`booting`: the runtime is started, or a borrowed one is taken over (L2, L8)."""

from attrs import frozen

from rollout_fsm.errors import HarnessError, ProviderError, SandboxError
from rollout_fsm.foreign import call, is_given
from rollout_fsm.keeping import Keeper
from rollout_fsm.outcome import Outcome
from rollout_fsm.runtime import Runtime
from rollout_fsm.world import World


async def boot(world: World) -> Outcome:
    """Bring the rollout's runtime up. Its stop is registered before its start begins."""
    plan, name = world.plan, world.trace.id
    world.calling(HarnessError, "entering the harness")
    await plan.services.enter(plan.harness)
    world.calling(ProviderError, "entering the model")
    await plan.services.enter(plan.model)
    world.calling(SandboxError, "starting the runtime")
    if isinstance(plan.runtime, Runtime):
        world.runtime, called = plan.runtime, _name(plan.runtime)
        _restrict(world, plan.runtime)
    else:
        runtime = plan.runtime(name)
        if not isinstance(runtime, Runtime):
            raise TypeError(f"the runtime factory returned {type(runtime).__name__}; it makes a Runtime from its name")
        called = _name(runtime)
        world.runtime = runtime
        _restrict(world, runtime)
        if world.keeper is not None:
            await world.keeper.acquiring(runtime, called)
        _hold(world, runtime, called)
        await call(runtime.start)
        await world.proceed()
        world.calling(SandboxError, "preparing the runtime for setup")
        if is_given(runtime, "prepare_setup"):
            await call(runtime.prepare_setup)
    kind = type(world.runtime).__name__
    world.trace.agent.runtime = {"type": "subprocess", "id": called, "borrowed": plan.borrowed is not None}
    harness = world.trace.agent.config.get("harness")
    if isinstance(harness, dict):
        harness["runtime"] = kind  # readers of the verifiers schema know no runtimes but their own
    return Outcome(trigger="booted")


def _restrict(world: World, runtime: Runtime) -> None:
    """Give the runtime the task's network policy, before anything of it is started or used. One that is borrowed is
    told if there is none: it may have that of the task before."""
    policy = world.plan.task.network
    if policy is None and world.plan.borrowed is None:
        return
    world.calling(SandboxError, "restricting the runtime to the task's network policy")
    said: object = runtime.restrict(policy)  # type: ignore[func-returns-value]
    if said is not None:
        raise TypeError(f"restrict() of {type(runtime).__name__} returned {type(said).__name__}; it returns nothing")
    world.calling(SandboxError, "starting the runtime")


def take_over(world: World, runtime: Runtime) -> None:
    """Hold a runtime that was set up and used by another process, as if it had been started here. Raises nothing: the
    runtime is not asked for its name."""
    world.runtime = runtime
    world.calling(SandboxError, "taking the runtime over")
    _hold(world, runtime, world.trace.id)
    world.calling(HarnessError, "taking the runtime over")
    world.hold_cleanup(runtime)


def _hold(world: World, runtime: Runtime, called: str) -> None:
    """Register the stop of an owned runtime, which is kept to be found again until then."""
    world.hold("leaked", f"runtime {called!r}", _Stop(runtime, world.keeper))


@frozen(eq=False)
class _Stop:
    """Stops an owned runtime."""

    runtime: Runtime
    keeper: Keeper | None

    async def __call__(self) -> None:
        await call(self.runtime.stop)
        if self.keeper is not None:
            self.keeper.released()


def _name(runtime: Runtime) -> str:
    if not isinstance(name := runtime.name, str):
        raise TypeError(f"the name of {type(runtime).__name__} is of type {type(name).__name__}; a name is text")
    return name
