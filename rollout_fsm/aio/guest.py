"""The trio run that is a guest of a running asyncio loop, and how asyncio has work done there.

Trio allows one run in a thread, so the engines of one loop share it: it begins with the first and ends with the last.
It belongs to its host: it installs no signal handler and patches nothing, and its tasks run in the host's thread, in
between the host's own callbacks. Whoever waits for work of it is told of its end, whatever that is.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import trio
from attrs import define, field

from rollout_fsm.aio.latch import Latch
from rollout_fsm.aio.work import Work
from rollout_fsm.errors import text
from rollout_fsm.foreign import HOST, Host

if TYPE_CHECKING:
    from outcome import Outcome

T = TypeVar("T")

LEFT = "the engine was closed before this had ended"
NOT_OPEN = "the engine is not open: use it inside `async with aio.open_engine() as engine`"


class EngineCrashed(RuntimeError):  # noqa: N818
    """The event loop of the engine crashed; its cause is what it crashed with."""


class EngineClosed(RuntimeError):  # noqa: N818
    """The engine is not open, or was closed before this had ended."""


@define(eq=False)
class Guest:
    """A trio run on an asyncio loop. All of it is called in the loop's thread."""

    loop: asyncio.AbstractEventLoop
    _make_host: Callable[["Guest"], Host] = field(repr=False)
    host: Host = field(init=False, repr=False)
    """What calls the embedder's functions; known to everything that runs here."""
    ended: Latch = field(init=False)
    users: int = field(default=0, init=False)
    """How many engines live in it."""
    token: trio.lowlevel.TrioToken | None = field(default=None, init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)
    _early: list[Work[Any]] = field(factory=list, init=False)
    """What was submitted before the first trio task could run."""
    _unended: set[Work[Any]] = field(factory=set, init=False)
    _unused: trio.Event = field(factory=trio.Event, init=False)
    _at_the_end: list[Callable[[], object]] = field(factory=list, init=False)
    _running: ClassVar[dict[asyncio.AbstractEventLoop, "Guest"]] = {}

    def __attrs_post_init__(self) -> None:
        self.ended = Latch(self.loop)
        self.host = self._make_host(self)

    @classmethod
    async def join(cls, make_host: Callable[["Guest"], Host]) -> "Guest":
        """The guest of the running loop, begun if there is none. Whoever joins has to `leave`.

        Raises `RuntimeError` where trio already runs in this thread and is none of ours.
        """
        loop = running_loop()
        while (guest := cls._running.get(loop)) is not None and not guest.users:
            if (said := await guest.ended.wait()) is not None:
                raise asyncio.CancelledError(*said)
        if guest is None:
            guest = cls(loop, make_host)
            guest._start()
        guest.users += 1
        return guest

    def leave(self) -> None:
        """An engine is gone. With the last one the run ends, and what still runs in it is cancelled."""
        self.users -= 1
        if not self.users:
            self._unused.set()

    def at_the_end(self, call: Callable[[], object]) -> None:
        """Have something called when the run has ended."""
        self._at_the_end.append(call)

    def submit(
        self,
        function: Callable[..., Awaitable[T]],
        *args: object,
        nursery: trio.Nursery | None = None,
        resident: bool = False,
    ) -> Work[T]:
        """Begin work, in a task of its own. Raises `EngineClosed` once the run, or the nursery, has ended.

        Where the run ends under it, whoever waits is told at once; for what is `resident`, when all has ended.
        """
        if self.ended.is_set:
            raise EngineClosed(NOT_OPEN)
        work = Work(self.loop, function, args, None if resident else self._cut_off)
        work.context.run(HOST.set, self.host)
        if (where := nursery or self._nursery) is None:
            self._early.append(work)
        else:
            try:
                work.start_in(where)
            except RuntimeError:
                raise EngineClosed(NOT_OPEN) from None
        self._unended.add(work)
        work.at_the_end(partial(self._unended.discard, work))
        return work

    async def call(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Call an async function of trio's, and await it from asyncio."""
        return await self.submit(function, *args).result()

    def _start(self) -> None:
        if trio.lowlevel.in_trio_run():
            raise RuntimeError(
                "trio already runs in this thread, as another guest or as a run that was abandoned: inside it use "
                "rollout_fsm.open_engine(), else open the engine in a thread and a loop of its own"
            )
        interrupt = signal.getsignal(signal.SIGINT)
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self.loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=self.loop.call_soon,
            done_callback=self._end,
            host_uses_signal_set_wakeup_fd=True,
        )
        if signal.getsignal(signal.SIGINT) is not interrupt:  # trio takes Python's own handler for nobody's
            signal.signal(signal.SIGINT, interrupt)
        self.token = trio.lowlevel.current_trio_token()
        self._running[self.loop] = self

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for work in self._early:
                work.start_in(nursery)
            self._early.clear()
            await self._unused.wait()
            nursery.cancel_scope.cancel()

    def _cut_off(self) -> BaseException:
        if self.users:
            return EngineCrashed("the event loop of the engine crashed; the engine's block tells what with")
        return EngineClosed(LEFT)

    def _end(self, outcome: "Outcome[None]") -> None:
        del self._running[self.loop]
        crash: BaseException | None = None
        try:
            outcome.unwrap()
        except BaseException as raised:  # noqa: BLE001  (whoever waits for work is told)
            crash = raised
        for work in tuple(self._unended):
            work.end(_told(crash))
        for call in self._at_the_end:
            call()
        self.ended.set()


def running_loop() -> asyncio.AbstractEventLoop:
    """The asyncio loop that runs here. Raises `RuntimeError` that says what to do where none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "aio.open_engine() is for a running asyncio loop; on trio write: async with rollout_fsm.open_engine()"
        ) from None


def _told(crash: BaseException | None) -> BaseException:
    """What somebody is told whose work went down with the run."""
    if crash is None:
        return EngineClosed(LEFT)
    told = EngineCrashed(f"the event loop of the engine crashed: {text(crash)}")
    told.__cause__ = crash
    return told
