"""What an engine does for its rollouts: the gateway, the harnesses and models that hold something open, the file of
traces.

Services are the last to go: each runs in a task of its own under a shield that the engine ends when every rollout is
final (L75). Whatever is entered here is entered and left by one task.
"""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import trio
from attrs import define, field, frozen

from rollout_fsm.attempt import attempt
from rollout_fsm.errors import text
from rollout_fsm.flow import Flow
from rollout_fsm.foreign import manager
from rollout_fsm.hosting import Hosting
from rollout_fsm.identity import identity_of
from rollout_fsm.journal import JournalError
from rollout_fsm.keeping import Keeper
from rollout_fsm.machine.endings import Endings
from rollout_fsm.machine.endings_file import endings as shipped_endings
from rollout_fsm.overdue import Overdue
from rollout_fsm.plan import NoGatewaySlot, NoStateDoor, Slot, StateDoor, ToolServer
from rollout_fsm.toolset import RolloutContext, Toolset
from rollout_fsm.toolsets.serving import ToolServers
from rollout_fsm.trace import Trace

if TYPE_CHECKING:
    from rollout_fsm.gateway import Gateway, Interceptable
    from rollout_fsm.gateway import Slot as GatewaySlot
    from rollout_fsm.journal import Attempt, Journal

log = logging.getLogger("rollout_fsm")


_Unwritten: TypeAlias = tuple[Trace, Keeper | None, trio.Event]


class TraceSink(Protocol):
    """Where finished traces go."""

    def append(self, trace: Trace) -> None:
        """Write one trace, whole or not at all, and return when it is on disk. Blocks."""
        ...


@frozen(kw_only=True)
class LostTrace:
    """A finished trace that could not be written, by name."""

    id: str
    task: str
    error: str


@define(eq=False)
class EngineServices:
    """The services of one engine, in its nursery."""

    nursery: trio.Nursery
    sink: TraceSink | None = None
    journal: "Journal | None" = None
    endings: Endings = field(factory=shipped_endings)
    max_active_segments: int | None = None
    overdue: Overdue = field(factory=Overdue, init=False)
    flow: Flow = field(init=False)
    gateway: "Gateway | None" = field(default=None, init=False)
    hosting: Hosting = field(init=False)
    """What is held open for rollouts, from call to call."""
    tools: ToolServers = field(init=False)
    lost: list[LostTrace] = field(factory=list, init=False)
    _journal_failed: str | None = field(default=None, init=False)
    _last: trio.Event | None = field(default=None, init=False)
    """Of the trace that was submitted last: they are written in order."""
    _gateway_closing: trio.Event = field(factory=trio.Event, init=False)
    _all_written: trio.Event = field(factory=trio.Event, init=False)
    _writing: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(1), init=False)
    """The writer's own thread: tasks that hold every thread of the process must not keep traces from being written."""
    _unwritten: trio.MemorySendChannel[_Unwritten] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        most = self.max_active_segments
        self.flow = Flow(self.overdue, None if most is None else trio.CapacityLimiter(most))
        self.hosting = Hosting(self.nursery)
        self.tools = ToolServers(self.hosting)

    @property
    def journal_failed(self) -> str | None:
        """Why something could not be kept in the journal; None if all was."""
        return self._journal_failed

    def keep(self, trace: Trace, *, attempt: int) -> Keeper | None:
        """Who keeps an attempt in the journal; None where there is none."""
        if self.journal is None:
            return None
        began = trace.timing.start or time.time()
        entry = self.journal.attempt(
            trace.id, identity=identity_of(trace), hash=trace.task.hash, attempt=attempt, began=began
        )
        return Keeper(trace, entry, self.journal_fails)

    def keep_on(self, trace: Trace, left: "Attempt") -> Keeper | None:
        """Who keeps on an attempt that another process left."""
        if self.journal is None:
            return None
        box = next((self.journal.acquisition(lease.number) for lease in left.leases), None)
        return Keeper(trace, self.journal.entry(left.number), self.journal_fails, box)

    def journal_fails(self, why: str) -> None:
        """Something could not be kept in the journal."""
        self._journal_failed = self._journal_failed or why

    async def start(self, *, host: str, port: int, gateway: bool) -> None:
        """Start what every rollout may need. Raises `OSError` where the gateway cannot listen."""
        if gateway:
            self.gateway = await self.nursery.start(self._serve, host, port)
        self.nursery.start_soon(self._watch)
        if self.sink is not None:
            self._unwritten, unwritten = trio.open_memory_channel[_Unwritten](float("inf"))
            self.nursery.start_soon(self._write, unwritten, self.sink)
        if self.journal is not None:
            self.nursery.start_soon(self._keep, self.journal)

    def open_slot(self, session: "Interceptable", *, model_name: str) -> Slot:
        """A rollout's own way through the gateway (L58)."""
        if self.gateway is None:
            return NoGatewaySlot()
        return self.gateway.open_slot(session, model_name=model_name)

    def open_state(self, slot: Slot, trace: Trace) -> StateDoor:
        """A door to a rollout's state, for its tool servers in other processes."""
        if self.gateway is None:
            return NoStateDoor()
        return self.gateway.open_state(cast("GatewaySlot", slot), trace)  # all slots are its own, then

    async def serve_tools(self, toolset: Toolset, context: RolloutContext) -> ToolServer:
        """Serve the tools of a toolset to one rollout."""
        return await self.tools.serve(toolset, context)

    async def enter(self, shared: object) -> None:
        """Enter a harness or a model that is an async context manager, once for the engine, in a task of the engine.

        Raises what entering it raises, to each rollout that needs it.
        """
        if not isinstance(shared, AbstractAsyncContextManager):
            return
        await self.hosting.share(shared, partial(manager, shared), name=type(shared).__name__)

    @asynccontextmanager
    async def lend(self, shared: object) -> AsyncIterator[None]:
        """Have what is an async context manager entered for the length of the block; once for all whose blocks overlap,
        in a task of the engine. Raises what entering it raises."""
        if not isinstance(shared, AbstractAsyncContextManager):
            yield
            return
        async with self.hosting.lend(shared, partial(manager, shared), name=type(shared).__name__):
            yield

    def submit(self, trace: Trace, keeper: Keeper | None) -> trio.Event | None:
        """Have a finished trace written. The event is set when it is on disk or lost; None where nothing is written."""
        if self.sink is None:
            return None
        if self._unwritten is None:
            self._lose(trace, "the engine has ended")
            return None
        written = self._last = trio.Event()
        self._unwritten.send_nowait((trace, keeper, written))
        return written

    async def flushed(self) -> None:
        """Wait until every trace that was submitted is on disk or lost."""
        if self._last is not None:
            await self._last.wait()

    async def stop(self) -> None:
        """Write what is unwritten, leave what was entered, close journal and gateway, in this order."""
        if self._unwritten is not None:
            await self._unwritten.aclose()
            self._unwritten = None
            await self._all_written.wait()
        await self.hosting.end()
        if self.journal is not None:
            try:
                await self.journal.aclose()
            except JournalError as error:
                log.error("%s", error)
                self.journal_fails(str(error))
        self._gateway_closing.set()
        self.overdue.stop()

    async def _watch(self) -> None:
        with trio.CancelScope(shield=True):
            await self.overdue.run()

    @staticmethod
    async def _keep(journal: "Journal") -> None:
        with trio.CancelScope(shield=True):
            await journal.run()

    async def _serve(self, host: str, port: int, task_status: "trio.TaskStatus[Gateway]") -> None:
        from rollout_fsm.gateway import open_gateway  # here, since harnesses in this process need none

        with trio.CancelScope() as life:
            async with open_gateway(host=host, port=port) as gateway:
                task_status.started(gateway)
                await trio.lowlevel.checkpoint_if_cancelled()  # the engine is not opened after all
                life.shield = True
                await self._gateway_closing.wait()

    async def _append(self, sink: TraceSink, trace: Trace) -> None:
        await trio.to_thread.run_sync(sink.append, trace, limiter=self._writing)

    @trio.lowlevel.enable_ki_protection
    async def _write(self, unwritten: trio.MemoryReceiveChannel[_Unwritten], sink: TraceSink) -> None:
        try:
            with trio.CancelScope(shield=True):
                async for trace, keeper, written in unwritten:
                    done = await attempt(self._append, sink, trace)
                    if done.error is not None:  # a full disk, say: this one is lost, the others go on
                        self._lose(trace, text(done.error))
                    elif keeper is not None:
                        keeper.written()
                    written.set()
        finally:
            self._all_written.set()

    def _lose(self, trace: Trace, why: str) -> None:
        self.lost.append(LostTrace(id=trace.id, task=trace.task.type, error=why))
        log.error("the trace of rollout %s could not be written: %s", trace.id, why)
