"""The world of one rollout: what its activities share while it lives. The machine decides what happens, the phases do
it, this holds it."""

from collections.abc import Awaitable, Callable

import trio
from attrs import define, field

from rollout_fsm.clock import AnchoredClock
from rollout_fsm.errors import RolloutError, RuntimeLifetimeError, SandboxError
from rollout_fsm.harness import HarnessSession
from rollout_fsm.holdings import Held, Holdings, Kind, Setting
from rollout_fsm.messages import Message
from rollout_fsm.outcome import Blame, Failure
from rollout_fsm.plan import Plan
from rollout_fsm.runtime import Runtime
from rollout_fsm.session import Owner, Segment, Session
from rollout_fsm.trace import Trace


@define(eq=False, kw_only=True)
class World:
    """What is open, what was said, what is running."""

    plan: Plan
    trace: Trace
    clock: AnchoredClock
    owner: Owner | None = field(repr=False)
    """The rollout, as its session sees it; None once it is final."""
    holdings: Holdings = field(init=False)
    runtime: Runtime | None = None
    session: Session | None = None
    harness_session: HarnessSession | None = None
    tool_urls: dict[str, str] = field(factory=dict)
    opening: tuple[Message, ...] = ()
    """The prompt as the interceptors left it, until the first segment has taken it (L10)."""
    said: tuple[Message, ...] = ()
    """What the user said for the segment that begins."""
    segment: Segment | None = None
    """The segment that runs, or the last one: the guards ask what became of it."""
    agent_used: float = 0.0
    """Seconds of the agent budget that are spent (L12)."""
    agent_began: float | None = None
    """When the running segment began, in the event loop's seconds; None while none runs."""
    deadline: trio.CancelScope | None = field(default=None, repr=False)
    """The scope that bounds the running activity."""
    returned: float | None = None
    """When the foreign code of the running activity returned, if the activity went on after it (L14a)."""
    blame: Blame = field(factory=lambda: Blame(boundary=SandboxError, doing="booting"))
    """Which boundary is being crossed."""
    standing: list[Failure] = field(factory=list)
    """Failures of the running activity that stand, however it ends (L63)."""
    lost: list[str] = field(factory=list)
    """Exceptions that the running activity kept, as text, because an interruption overruled them (L14a)."""

    def __attrs_post_init__(self) -> None:
        self.holdings = Holdings(self.trace.id, self.plan.services.overdue, self.trace.warnings.append)

    @staticmethod
    async def proceed() -> None:
        """Go on to the next step of an activity, unless it was interrupted: code that swallowed that is not asked for
        more (L14a)."""
        if trio.current_effective_deadline() <= trio.current_time():
            await trio.lowlevel.checkpoint()

    def calling(self, boundary: type[RolloutError], doing: str, note: str = "") -> None:
        """From now on, what is raised or runs out of time is this (L14, L40)."""
        self.blame = Blame(boundary=boundary, doing=doing, note=note)

    def hold(self, kind: Kind, name: str, undo: Callable[[], Awaitable[None]]) -> None:
        """Register what is to be released (L8), with the bound that its kind has (L55)."""
        bounds = self.plan.bounds
        setting: Setting = "close" if kind == "close" else "release"
        self.holdings.hold(Held(kind=kind, name=name, undo=undo, setting=setting, bound=getattr(bounds, setting)))

    def doing(self) -> str:
        """What is running, in the log."""
        return self.blame.doing

    @property
    def runtime_lost(self) -> bool:
        """Whether the runtime is borrowed and its owner has stopped it (L3)."""
        return (borrowed := self.plan.borrowed) is not None and borrowed.stopped

    def require_runtime(self) -> Runtime:
        """The runtime, for a phase that begins. Raises `RuntimeLifetimeError` if its owner has stopped it (L3)."""
        if self.runtime_lost:
            raise lifetime_error(self.plan.borrowed)
        return self.present_runtime

    @property
    def present_runtime(self) -> Runtime:
        """The runtime, in every state after `booting`."""
        assert self.runtime is not None
        return self.runtime

    @property
    def present_session(self) -> Session:
        """The session, from `setup` on."""
        assert self.session is not None
        return self.session

    def agent_left(self) -> float:
        """Seconds of the agent budget that are left, between and within segments (L12)."""
        running = 0.0 if self.agent_began is None else trio.current_time() - self.agent_began
        return max(0.0, self.plan.bounds.agent - self.agent_used - running)

    def forget(self) -> None:
        """Let go of everything that the trace does not hold: the rollout is final."""
        if self.session is not None:
            self.session.owner = self.session.segment = None
        self.owner = self.runtime = self.session = self.harness_session = self.segment = self.deadline = None
        self.opening = self.said = ()
        self.tool_urls.clear()


def lifetime_error(runtime: Runtime | None) -> RuntimeLifetimeError:
    """The owner's bug, as the caller is told it (L3)."""
    name = getattr(runtime, "name", "?")
    return RuntimeLifetimeError(
        f"the borrowed runtime {name!r} was stopped by its owner while a rollout needed it; keep it running until the "
        f"rollout is closed"
    )
