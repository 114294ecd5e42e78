"""The world of one rollout: what its activities share while it lives. The machine decides what happens, the phases do
it, this holds it."""

import logging
from collections.abc import Awaitable, Callable, Sequence

import trio
from attrs import define, field

from rollout_fsm.agent_clock import AgentClock
from rollout_fsm.clock import AnchoredClock
from rollout_fsm.errors import RolloutError, RuntimeLifetimeError, SandboxError, text
from rollout_fsm.harness import HarnessSession
from rollout_fsm.holdings import Held, Holdings, OwnMethod, Setting, WarningKind
from rollout_fsm.keeping import Keeper
from rollout_fsm.messages import Message
from rollout_fsm.outcome import Blame, Failure, is_cancelled, pass_on
from rollout_fsm.plan import Plan
from rollout_fsm.runtime import Runtime
from rollout_fsm.segment_run import Gate, SegmentRun
from rollout_fsm.session import Session
from rollout_fsm.trace import Trace

log = logging.getLogger("rollout_fsm")


@define(eq=False, kw_only=True)
class World:
    """What is open, what was said, what is running."""

    plan: Plan
    trace: Trace
    clock: AnchoredClock
    gate: Gate | None = field(repr=False)
    """The rollout's state, as far as turns depend on it; None once it is final."""
    watcher: Callable[[], None] | None = field(default=None, repr=False)
    """Told whenever the rollout does something else; None where nobody watches."""
    permit_wait: trio.CancelScope | None = field(default=None, repr=False)
    """Ends the wait of the segment that was asked for, while it waits for its permit."""
    keeper: Keeper | None = field(default=None, repr=False)
    """Keeps the rollout in a journal; None where there is none."""
    agent: AgentClock = field(init=False)
    holdings: Holdings = field(init=False)
    runtime: Runtime | None = None
    session: Session | None = None
    harness_session: HarnessSession | None = None
    opening: tuple[Message, ...] = ()
    """The prompt as the interceptors left it, until the first segment has taken it (L10)."""
    said: tuple[Message, ...] = ()
    """What the user said for the segment that begins."""
    segment: SegmentRun | None = None
    """The segment that runs, or the last one: the guards ask what became of it."""
    bound: trio.CancelScope | None = field(default=None, repr=False)
    """The scope that bounds the running activity."""
    returned: tuple[float, float] | None = None
    """When the foreign code of the running activity returned, and its deadline then, both in the event loop's seconds;
    None where the activity does nothing after it (L14a)."""
    _crossing: tuple[type[RolloutError], str, str] = field(default=(SandboxError, "booting", ""), init=False)
    """Which boundary is being crossed, what is done there, and what a timeout of it adds."""
    standing: Sequence[Failure] = ()
    """Failures of the running activity that stand, however it ends (L63)."""
    lost: Sequence[str] = ()
    """Exceptions that the running activity kept, as text, because an interruption overruled them (L14a)."""

    def __attrs_post_init__(self) -> None:
        overdue = self.plan.services.overdue
        self.agent = AgentClock(self.plan.bounds.agent, overdue)
        self.holdings = Holdings(self.trace, overdue, self.watcher or nobody)

    def begin(self, boundary: type[RolloutError], doing: str) -> None:
        """A new activity begins, and crosses this boundary first."""
        self.calling(boundary, doing)
        self.returned, self.standing, self.lost = None, (), ()

    def limit(self, bound: str) -> float:
        """Seconds that an activity under this bound may take (L2, L12)."""
        return self.agent.left if bound == "agent" else float(getattr(self.plan.bounds, bound))

    def foreign_code_returned(self) -> None:
        """What the activity was about is over; what follows is the engine's tidying, and not under its deadline
        (L14a)."""
        if self.bound is not None and self.returned is None:
            self.agent.stop()
            self.returned = trio.current_time(), self.bound.deadline
            self.plan.services.overdue.lift(self.bound)

    @staticmethod
    async def proceed(*, called: bool = True) -> None:
        """Go on to the next step of an activity, unless it was interrupted: code that swallowed that is not asked for
        more (L14a). If nothing foreign was called since, no time has passed, and only who was told of the step can have
        interrupted it."""
        if not called:
            await trio.lowlevel.checkpoint_if_cancelled()
        elif is_cancelled():
            await trio.lowlevel.checkpoint()

    def calling(self, boundary: type[RolloutError], doing: str, note: str = "") -> None:
        """From now on, what is raised or runs out of time is this (L14, L40)."""
        self._crossing = boundary, doing, note
        if self.watcher is not None:
            self.watcher()

    def await_permit(self, wait: trio.CancelScope | None) -> None:
        """The segment that was asked for waits for its permit, or does not any more."""
        self.permit_wait = wait
        self.activity_changed()

    def activity_changed(self) -> None:
        """Tell whoever watches that the rollout does something else now."""
        if self.watcher is not None:
            self.watcher()

    async def kept(self) -> None:
        """What was told of the rollout so far is on disk, where there is a journal (L73)."""
        if self.keeper is not None:
            await self.keeper.durable()

    def hold(self, kind: WarningKind, name: str, undo: Callable[[], Awaitable[None]]) -> None:
        """Register what is to be released (L8), with the bound that its kind has (L55)."""
        setting: Setting = "close" if kind == "close" else "release"
        bound = getattr(self.plan.bounds, setting)
        boundary = self._crossing[0]
        self.holdings.hold(Held(kind=kind, name=name, undo=undo, boundary=boundary, setting=setting, bound=bound))

    def hold_cleanup(self, runtime: Runtime) -> None:
        """From now on what the harness did to the runtime is to be undone, if it has a way to undo it (L8)."""
        undo = OwnMethod(self.plan.harness, "cleanup", (self.trace, runtime))
        self.hold("cleanup", f"harness {self.plan.harness_name!r}", undo)

    def doing(self) -> str:
        """What is running, in the log."""
        return self._crossing[1]

    @property
    def blame(self) -> Blame:
        """Which boundary is being crossed."""
        boundary, doing, note = self._crossing
        return Blame(boundary=boundary, doing=doing, note=note)

    @property
    def runtime_lost(self) -> bool:
        """Whether the runtime is borrowed and its owner has stopped it (L3); one that cannot say so is not."""
        borrowed = self.plan.borrowed
        try:
            return borrowed is not None and bool(borrowed.stopped)
        except BaseException as unsaid:  # noqa: BLE001  (foreign code inside a guard: it decides nothing by raising)
            pass_on(unsaid)
            log.warning("rollout %s: the borrowed runtime cannot say if it is stopped: %s", self.trace.id, text(unsaid))
            return False

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

    def forget(self) -> None:
        """Let go of everything that the trace does not hold: the rollout is final."""
        if self.session is not None:
            self.session.gate = self.session.segment = None
            self.session.changed = nobody
        self.holdings.changed = nobody
        self.gate = self.runtime = self.session = self.harness_session = self.segment = self.bound = None
        self.watcher = self.keeper = None
        self.opening = self.said = ()


def nobody() -> None:
    """Is told, and does nothing."""


def lifetime_error(runtime: Runtime | None) -> RuntimeLifetimeError:
    """The owner's bug, as the caller is told it (L3)."""
    name = getattr(runtime, "name", "?")
    return RuntimeLifetimeError(
        f"the borrowed runtime {name!r} was stopped by its owner while a rollout needed it; keep it running until the "
        f"rollout is closed"
    )
