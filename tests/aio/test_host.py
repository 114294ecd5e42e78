"""The embedder's coroutines, called from trio: run by an asyncio task, cancelled there, and told apart from what lives
on trio."""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import sniffio
import trio
import trio.lowlevel

from rollout_fsm import foreign
from rollout_fsm.aio import CancelledByHost
from rollout_fsm.aio.guest import Guest
from rollout_fsm.aio.host import AsyncioHost
from tests.aio.conftest import Host

Program = Callable[[], Awaitable[None]]


@pytest.fixture
def on_trio(host: Host) -> Callable[[Program], None]:
    """Runs a program on a guest."""

    def run(program: Program) -> None:
        async def main() -> None:
            guest = await Guest.join(AsyncioHost)
            try:
                await guest.call(program)
            finally:
                guest.leave()
                await guest.ended.wait()

        host(main)

    return run


async def on_asyncio(value: object = "value") -> object:
    """The embedder's."""
    assert asyncio.current_task() is not None
    assert sniffio.current_async_library() == "asyncio"
    await asyncio.sleep(0)
    return value


def test_a_coroutine_runs_on_asyncio_and_a_plain_function_inline(on_trio: Callable[[Program], None]) -> None:
    color: contextvars.ContextVar[str] = contextvars.ContextVar("color")

    async def colored() -> str:
        await on_asyncio()
        return color.get()

    def plain(value: str) -> str:
        assert trio.lowlevel.current_task()
        return value

    def gives_a_future() -> "asyncio.Future[str]":
        return asyncio.ensure_future(colored())

    async def program() -> None:
        color.set("red")
        assert await foreign.call(on_asyncio, "x") == "x"
        assert await foreign.call(partial(on_asyncio, value="y")) == "y"
        assert await foreign.ask(plain, "z") == "z"
        assert await foreign.call(colored) == "red"
        assert await foreign.ask(gives_a_future) == "red"
        assert sniffio.current_async_library() == "trio"

    on_trio(program)


def test_what_it_raises_comes_out_as_it_is(on_trio: Callable[[Program], None]) -> None:
    async def fails(error: BaseException) -> None:
        await on_asyncio()
        raise error

    async def program() -> None:
        for error in (
            ValueError("x"),
            KeyboardInterrupt(),
            SystemExit(3),
            GeneratorExit(),
            ExceptionGroup("g", [OSError()]),
        ):
            with pytest.raises(type(error)) as caught:
                await foreign.call(fails, error)
            assert caught.value is error

    on_trio(program)


def test_a_cancel_waits_for_the_cleaning_up(on_trio: Callable[[Program], None]) -> None:
    cleaned: list[str] = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.001)
            cleaned.append("up")

    async def program() -> None:
        with trio.move_on_after(0.001) as scope:
            await foreign.call(hangs)
        assert scope.cancelled_caught
        assert cleaned == ["up"]

    on_trio(program)


def test_one_that_is_cancelled_before_it_begins_runs_to_its_first_await(on_trio: Callable[[Program], None]) -> None:
    said: list[str] = []

    async def hook() -> None:
        said.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            said.append("left")

    async def program() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await foreign.call(hook)
        assert scope.cancelled_caught
        assert said == ["began", "left"]

    on_trio(program)


def test_one_that_swallows_its_cancellation_has_its_say(on_trio: Callable[[Program], None]) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "all the same"
        raise AssertionError

    async def program() -> None:
        with trio.move_on_after(0.001):
            assert await foreign.call(stubborn) == "all the same"

    on_trio(program)


def test_a_cancellation_of_nobody_of_ours_is_a_failure(on_trio: Callable[[Program], None]) -> None:
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def awaits_a_cancelled_one() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async def program() -> None:
        for hook in (cancels_itself, awaits_a_cancelled_one):
            with pytest.raises(CancelledByHost, match=f"{hook.__name__} was cancelled on the asyncio loop, and not by"):
                await foreign.call(hook)

    on_trio(program)


def test_a_task_that_a_stranger_cancels_before_it_begins_is_a_failure(on_trio: Callable[[Program], None]) -> None:
    async def never() -> None:
        raise AssertionError("it never begins")

    def stranger() -> None:
        for task in asyncio.all_tasks():
            if "hook" in task.get_name():
                task.cancel()

    def hook() -> Awaitable[None]:
        asyncio.get_running_loop().call_soon(stranger)  # before the first step of the task that is made next
        return never()

    async def program() -> None:
        with pytest.raises(CancelledByHost):
            await foreign.ask(hook)

    on_trio(program)


def test_trio_awaited_on_asyncio_says_what_to_do(on_trio: Callable[[Program], None]) -> None:
    async def wrong() -> None:
        await trio.sleep(1)

    async def program() -> None:
        with pytest.raises(RuntimeError) as caught:
            await foreign.call(wrong)
        assert "on_trio(" in caught.value.__notes__[0]
        assert 'runs_on = "trio"' in caught.value.__notes__[0]

    on_trio(program)


def test_in_a_trio_run_of_another_thread_the_host_is_none(on_trio: Callable[[Program], None]) -> None:
    async def native() -> str:
        await trio.lowlevel.checkpoint()
        return "native"

    def thread() -> object:
        return trio.run(foreign.call, native)

    async def program() -> None:
        assert await trio.to_thread.run_sync(thread) == "native"

    on_trio(program)


class Held:
    """A context manager that insists on one task."""

    def __init__(self) -> None:
        self.tasks: list[object] = []
        self.left_by: object = None
        self.hang = False
        self.deaf = False
        self.began = asyncio.Event()

    async def __aenter__(self) -> str:
        self.tasks.append(asyncio.current_task())
        self.began.set()
        await asyncio.sleep(0)
        if self.hang:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self.deaf:
                    raise
        return "held"

    async def __aexit__(self, kind: object, error: object, traceback: object) -> bool:
        self.tasks.append(asyncio.current_task())
        await asyncio.sleep(0)
        self.left_by = error
        return isinstance(error, KeyError)


def test_a_context_manager_is_entered_and_left_by_one_task(on_trio: Callable[[Program], None]) -> None:
    async def program() -> None:
        held = Held()
        async with foreign.manager(held) as value:
            assert value == "held"
        assert held.tasks[0] is held.tasks[1] is not None
        assert held.left_by is None
        async with foreign.manager(Held()):
            raise KeyError  # swallowed by it
        held = Held()
        with pytest.raises(ValueError, match="x"):
            async with foreign.manager(held):
                raise ValueError("x")
        assert isinstance(held.left_by, ValueError)

    on_trio(program)


def test_one_that_cannot_be_entered_says_why(on_trio: Callable[[Program], None]) -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        await asyncio.sleep(0)
        raise OSError("down")
        yield

    async def program() -> None:
        with pytest.raises(OSError, match="down"):
            async with foreign.manager(broken()):
                raise AssertionError

    on_trio(program)


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_entering_that_is_cancelled_is_undone(on_trio: Callable[[Program], None], deaf: bool, begun: bool) -> None:
    async def program() -> None:
        held = Held()
        held.hang, held.deaf = True, deaf
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def cancels() -> None:
                    while begun and not held.began.is_set():
                        await trio.lowlevel.checkpoint()
                    scope.cancel()

                async with foreign.manager(held):
                    raise AssertionError
        assert scope.cancelled_caught
        assert len(held.tasks) == (0 if not held.tasks else 2 if deaf else 1)

    on_trio(program)


def test_a_holder_that_a_stranger_cancels_leaves_at_once_and_says_so(on_trio: Callable[[Program], None]) -> None:
    async def program() -> None:
        held = Held()
        with pytest.raises(CancelledByHost):  # noqa: PT012
            async with foreign.manager(held):
                task = held.tasks[0]
                assert isinstance(task, asyncio.Task)
                task.cancel()
                while len(held.tasks) < 2:
                    await trio.lowlevel.checkpoint()
        assert isinstance(held.left_by, asyncio.CancelledError)

    on_trio(program)
