"""What a rollout is made of, settled before it starts: everything that its caller chose, and nothing that happens to
it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import field, frozen

from rollout_fsm.flow import Flow
from rollout_fsm.harness import Harness
from rollout_fsm.hooks import BoundHook, Hooks
from rollout_fsm.judge import Judge
from rollout_fsm.limits import Bounds, RolloutLimits, RolloutPolicy
from rollout_fsm.machine.endings import Endings
from rollout_fsm.messages import Deliver, Request, Response, Sampling
from rollout_fsm.model import Model
from rollout_fsm.overdue import Overdue
from rollout_fsm.runtime import Answer, Runtime, RuntimeFactory
from rollout_fsm.task import Task
from rollout_fsm.toolset import Toolset


class Respondent(Protocol):
    """Whoever answers the model calls of a rollout."""

    async def respond(self, request: Request, *, deliver: Deliver | None = None) -> Response:
        """Answer, or raise what the harness is to be told; `deliver` takes the pieces of an answer as it is made."""
        ...

    async def count_tokens(self, request: Request) -> int:
        """How many tokens a prompt has."""
        ...


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

    def open_slot(self, respondent: Respondent, *, model_name: str) -> Slot:
        """A slot at the gateway for one rollout."""
        ...

    async def enter(self, shared: object) -> None:
        """Enter a harness or a model that is an async context manager, once for the engine."""
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

    @property
    def borrowed(self) -> Runtime | None:
        """The borrowed runtime, None if the rollout will own one."""
        return self.runtime if isinstance(self.runtime, Runtime) else None
