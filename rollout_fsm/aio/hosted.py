"""An awaitable of the embedder's, as an asyncio task that trio waits for.

A cancellation of the waiting trio task cancels the asyncio task and waits for its end, its own cleaning up included.
What it raises comes out as it is, KeyboardInterrupt and SystemExit too: the loop is not to meet them here. Only a
CancelledError that none of ours sent is no cancellation for trio, so it becomes an ordinary failure.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Generic, NoReturn, TypeVar, cast

import trio
from attrs import define, field

T = TypeVar("T")

ON_ASYNCIO = (
    "a coroutine that lives on trio was awaited on asyncio, where it cannot run: await it as `await "
    'rollout_fsm.aio.on_trio(function, …)`, or mark the class or function that awaits it with runs_on = "trio"'
)


class CancelledByHost(RuntimeError):  # noqa: N818
    """A coroutine of the embedder's was cancelled, and not by the engine."""


@define(eq=False)
class Hosted(Generic[T]):
    """An awaitable that runs on the host's loop."""

    _loop: asyncio.AbstractEventLoop = field(repr=False)
    _awaitable: Awaitable[T]
    _called: str
    """What an error says was called."""
    began: bool = field(default=False, init=False)
    _task: "asyncio.Task[None] | None" = field(default=None, init=False)
    _cancel_asked: bool = field(default=False, init=False)
    _returned: bool = field(default=False, init=False)
    _value: T | None = field(default=None, init=False)
    _error: BaseException | None = field(default=None, init=False)

    def start(self, ended: Callable[["Hosted[T]"], object]) -> None:
        """Begin with the loop's next round, in a copy of this context; `ended` is told of the end.

        A task factory that begins a task at once would do so in the middle of a trio task, so none is asked.
        """
        self._task = asyncio.Task(
            self._run(), loop=self._loop, name=f"rollout_fsm: {self._called}", context=copy_context()
        )
        self._task.add_done_callback(lambda _: ended(self))

    def cancel(self) -> None:
        """Cancel it; one that has not begun runs to its first await, as it would on trio."""
        self._cancel_asked = True
        if self.began and self._task is not None:
            self._task.cancel()

    async def result(self) -> T:
        """Wait for it, from trio."""
        assert self._task is not None
        waiting, asked = trio.lowlevel.current_task(), list[Callable[[], NoReturn]]()

        def abort(raise_cancel: Callable[[], NoReturn]) -> trio.lowlevel.Abort:
            asked.append(raise_cancel)
            self.cancel()
            return trio.lowlevel.Abort.FAILED

        self._task.add_done_callback(lambda _: trio.lowlevel.reschedule(waiting))
        await trio.lowlevel.wait_task_rescheduled(abort)
        self._task, error, self._error = None, self._error, None
        try:
            if self._returned:
                return cast("T", self._value)
            if error is not None and not isinstance(error, asyncio.CancelledError):
                raise error
            if asked:
                asked[0]()
            raise CancelledByHost(
                f"{self._called} was cancelled on the asyncio loop, and not by the engine: what it awaits was "
                f"cancelled, or somebody cancels tasks that are not theirs"
            ) from error
        finally:
            del error  # a frame that keeps an exception which it raises is kept by it
            asked.clear()

    async def _run(self) -> None:
        task = asyncio.current_task()
        self.began = True
        if self._cancel_asked and task is not None:
            task.cancel()
        try:
            self._value = await self._awaitable
            self._returned = True
        except BaseException as error:
            if isinstance(error, GeneratorExit) and asyncio.current_task() is not task:
                raise  # the loop is gone, and this task with it
            if _awaited_trio(error):
                error.add_note(ON_ASYNCIO)
            self._error = error

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """It has ended; if it never began, its coroutine is closed."""
        if not self.began and inspect.iscoroutine(self._awaitable):
            self._awaitable.close()


def _awaited_trio(error: BaseException) -> bool:
    """Whether this is what asyncio and trio say where a coroutine of trio's is awaited on asyncio."""
    said = str(error) if type(error) is RuntimeError else ""
    return said == "must be called from async context" or said.startswith("Task got bad yield")
