"""The background tasks of something that one call starts and another call stops.

They are children of a system task of the event loop: a nursery that a call opened would have to be left in the same
call. They run in the context of who opened them. What one of them raises is logged and ends that one alone. The
invariant: after `close`, none runs.
"""

import logging
from collections.abc import Awaitable, Callable
from contextvars import copy_context

import trio
from attrs import define, field

log = logging.getLogger("rollout_fsm")


@define(eq=False, repr=False)
class Tasks:
    """The tasks. `name` says whose, for the log; `ended` is called when they have ended, also with the event loop."""

    name: str
    _ended: Callable[[], object]
    _scope: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    _nursery: trio.Nursery | None = field(init=False, default=None)
    _opened: trio.Event = field(init=False, factory=trio.Event)
    _closed: trio.Event | None = field(init=False, default=None)

    async def open(self) -> None:
        """Make ready for tasks."""
        self._closed = trio.Event()
        trio.lowlevel.spawn_system_task(self._hold, name=f"tasks of {self.name}", context=copy_context())
        await self._opened.wait()

    def start_soon(self, work: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start a task. Raises `RuntimeError` where they are not open."""
        if self._nursery is None:
            raise RuntimeError(f"the tasks of {self.name} are not open")
        self._nursery.start_soon(self._contained, work, *args)

    async def close(self) -> None:
        """Cancel the tasks and wait for them. Any number of times."""
        self._scope.cancel()
        if self._closed is not None:
            await self._closed.wait()

    async def _hold(self) -> None:
        assert self._closed is not None
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    self._opened.set()
                    await trio.sleep_forever()
        finally:
            self._nursery = None
            self._opened.set()
            self._ended()
            self._closed.set()

    async def _contained(self, work: Callable[..., Awaitable[object]], *args: object) -> None:
        try:
            await work(*args)
        except Exception:
            log.exception("a task of %s failed", self.name)
