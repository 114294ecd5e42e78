"""What a rollout is made of, settled before it starts: everything that its caller chose, and nothing that happens to
it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from attrs import Factory, field, frozen

from rollout_fsm.flow import Flow
from rollout_fsm.harness import Harness
from rollout_fsm.hooks import BoundHook, Hooks
from rollout_fsm.hosting import Hosting
from rollout_fsm.judge import Judge
from rollout_fsm.limits import Bounds, RolloutLimits, RolloutPolicy
from rollout_fsm.machine.endings import Endings
from rollout_fsm.messages import Sampling
from rollout_fsm.model import Model
from rollout_fsm.overdue import Overdue
from rollout_fsm.runtime import Answer, Runtime, RuntimeFactory
from rollout_fsm.task import Task
from rollout_fsm.toolset import RolloutContext, Toolset
from rollout_fsm.trace import Trace

if TYPE_CHECKING:
    from rollout_fsm.gateway import Interceptable


class Slot(Protocol):
    """A rollout's own way through the gateway (L58)."""

    @property
    def url(self) -> str:
        """Base URL for programs on the engine's host."""
        ...

    @property
    def secret(self) -> str:
        """The bearer token that tells this rollout from the others."""
        ...

    @property
    def answer(self) -> Answer | None:
        """Serves connections that are made in this rollout's box; None where there is no gateway."""
        ...

    def close(self) -> None:
        """End admission; later calls are answered "rollout concluded"."""
        ...


@frozen
class NoGatewaySlot:
    """The slot of a rollout whose engine has no gateway: harnesses in this process need none."""

    url: str = ""
    secret: str = ""
    answer: None = None

    def close(self) -> None:
        """Nothing was opened."""


class StateDoor(Protocol):
    """The way of a tool server in another process to its rollout's state."""

    @property
    def url(self) -> str:
        """Where it is on the engine's host; empty where there is no gateway."""
        ...

    @property
    def secret(self) -> str:
        """The bearer token that opens it, and nothing else."""
        ...

    def close(self) -> None:
        """Give the state away to nobody any more."""
        ...


@frozen
class NoStateDoor:
    """What a tool server in another process is given where there is no gateway: nothing."""

    url: str = ""
    secret: str = ""

    def close(self) -> None:
        """Nothing was opened."""


class ToolServer(Protocol):
    """A tool server that the engine runs for one rollout."""

    @property
    def url(self) -> str:
        """Where it is; nobody else is told."""
        ...

    async def stop(self) -> None:
        """Stop it, and what it runs. Raises what it crashed with, if it did."""
        ...


class Services(Protocol):
    """What the engine does for its rollouts."""

    @property
    def overdue(self) -> Overdue:
        """Who is told of everything bounded that begins and ends (L74)."""
        ...

    @property
    def endings(self) -> Endings:
        """The table of endings that the embedder's changes have made."""
        ...

    @property
    def flow(self) -> Flow:
        """What is let through: turns, segments."""
        ...

    def open_slot(self, session: "Interceptable", *, model_name: str) -> Slot:
        """A slot at the gateway for one rollout."""
        ...

    def open_state(self, slot: Slot, trace: Trace) -> StateDoor:
        """A door to the state of the rollout that has this slot, open until it or the slot is closed."""
        ...

    @property
    def hosting(self) -> Hosting:
        """What holds something open for a rollout, from call to call."""
        ...

    async def serve_tools(self, toolset: Toolset, context: RolloutContext) -> ToolServer:
        """Serve the tools of a toolset to one rollout. What fails or is cancelled undoes itself (L8)."""
        ...

    async def enter(self, shared: object) -> None:
        """Enter a harness or a model that is an async context manager, once for the engine."""
        ...

    def lend(self, shared: object) -> AbstractAsyncContextManager[None]:
        """Have it entered for the length of a block, once for all whose blocks overlap."""
        ...


@frozen(kw_only=True, eq=False)
class Plan:
    """One rollout, as it was asked for."""

    task: Task
    harness: Harness
    model: Model
    runtime: Runtime | RuntimeFactory
    """A runtime is borrowed; a factory makes an owned one, named after the trace (L2)."""
    limits: RolloutLimits
    bounds: Bounds
    policy: RolloutPolicy
    sampling: Sampling
    tools: Sequence[Callable[[], Toolset]] = ()
    judges: Sequence[Judge] = ()
    has_user: bool = False
    hooks: Hooks
    harness_metrics: Sequence[BoundHook] = ()
    harness_name: str
    model_name: str
    services: Services = field(repr=False)
    borrowed: Runtime | None = field(
        init=False,
        default=Factory(lambda plan: plan.runtime if isinstance(plan.runtime, Runtime) else None, takes_self=True),
    )
    """The borrowed runtime, None if the rollout will own one."""
