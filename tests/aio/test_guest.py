"""Work on a trio run that is a guest of asyncio: what comes back, what a cancellation does, how everything ends."""

import asyncio
import contextvars
import signal
import sys
import threading

import pytest
import trio
import trio.lowlevel

from rollout_fsm import foreign
from rollout_fsm.aio import EngineClosed, EngineCrashed
from rollout_fsm.aio.guest import Guest
from rollout_fsm.aio.host import AsyncioHost
from tests.aio.conftest import Host, LoopFactory


async def joined() -> Guest:
    return await Guest.join(AsyncioHost)


async def left(guest: Guest) -> None:
    guest.leave()
    if not guest.users:
        await guest.ended.wait()


def test_a_value_an_error_and_the_context_variables_cross(host: Host) -> None:
    color: contextvars.ContextVar[str] = contextvars.ContextVar("color")

    async def work(given: str) -> tuple[str, str, object]:
        await trio.lowlevel.checkpoint()
        return given, color.get(), foreign.HOST.get()

    async def fails() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("no")

    async def main() -> None:
        guest = await joined()
        color.set("red")
        assert await guest.call(work, "x") == ("x", "red", guest.host)
        assert foreign.HOST.get() is None
        with pytest.raises(ValueError, match="no"):
            await guest.call(fails)
        await left(guest)

    host(main)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_cancel_waits_for_a_shielded_release_however_often_it_comes(host: Host, times: int) -> None:
    async def main() -> None:
        guest = await joined()
        began, release, released = asyncio.Event(), trio.Event(), False

        async def work() -> None:
            nonlocal released
            began.set()
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await release.wait()
                released = True

        task = asyncio.create_task(guest.call(work))
        await began.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert not task.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert released
        assert task.cancelled()
        await left(guest)

    host(main)


def test_a_cancel_goes_on_even_where_the_work_came_to_a_value(host: Host) -> None:
    async def main() -> None:
        guest = await joined()
        began, release = asyncio.Event(), trio.Event()

        async def work() -> str:
            began.set()
            with trio.CancelScope(shield=True):
                await release.wait()
            return "value"

        work_ = guest.submit(work)
        task = asyncio.create_task(work_.result())
        await began.wait()
        task.cancel("why")
        await asyncio.sleep(0)
        release.set()
        with pytest.raises(asyncio.CancelledError, match="why"):
            await task
        assert work_.value == "value"
        await left(guest)

    host(main)


def test_a_cancel_in_the_very_round_in_which_the_work_ends_goes_on(host: Host) -> None:
    async def main() -> None:
        guest = await joined()

        async def work() -> str:
            task.cancel()
            return "value"

        task = asyncio.create_task(guest.call(work))
        with pytest.raises(asyncio.CancelledError):
            await task
        await left(guest)

    host(main)


def test_timeouts_and_task_groups_of_asyncio_work(host: Host) -> None:
    async def main() -> None:
        guest, unwound, began = await joined(), [], asyncio.Semaphore(0)

        async def work() -> None:
            began.release()
            try:
                await trio.sleep_forever()
            finally:
                unwound.append(1)

        async def ends(patience: asyncio.Timeout) -> None:
            await began.acquire()
            patience.reschedule(asyncio.get_running_loop().time())

        with pytest.raises(TimeoutError):  # noqa: PT012
            async with asyncio.timeout(None) as patience:
                ending = asyncio.create_task(ends(patience))
                await guest.call(work)
        await ending
        assert len(unwound) == 1
        with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
            async with asyncio.TaskGroup() as group:
                group.create_task(guest.call(work))
                group.create_task(guest.call(work))
                await began.acquire()
                await began.acquire()
                raise ValueError("the group's")
        assert [type(error) for error in caught.value.exceptions] == [ValueError]
        assert len(unwound) == 3
        await left(guest)

    host(main)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_the_work_reaches_who_waits_and_ends_nothing_else(
    host: Host, kind: type[BaseException]
) -> None:
    async def main() -> None:
        guest = await joined()

        async def work() -> None:
            raise kind("x")

        with pytest.raises(kind):
            await guest.call(work)

        async def fine() -> str:
            return "fine"

        assert await guest.call(fine) == "fine"
        await left(guest)

    host(main)


def test_a_crash_of_the_trio_run_reaches_all_who_wait(host: Host) -> None:
    async def main() -> None:
        guest = await joined()

        async def bug() -> None:
            raise ValueError("the bug")

        resident = guest.submit(trio.sleep_forever, resident=True)
        waiting = [asyncio.create_task(guest.call(trio.sleep_forever)) for _ in range(20)]
        await asyncio.sleep(0)
        trio.lowlevel.spawn_system_task(bug)
        done, _ = await asyncio.wait(waiting)
        for task in done:
            error = task.exception()
            assert isinstance(error, EngineCrashed)
        with pytest.raises(EngineCrashed) as caught:
            await resident.result()
        assert isinstance(caught.value.__cause__, trio.TrioInternalError)
        await guest.ended.wait()
        with pytest.raises(EngineClosed):
            guest.submit(trio.sleep_forever)
        another = await joined()
        assert another is not guest
        await left(another)

    host(main)


def test_what_still_runs_when_the_last_engine_leaves_is_cancelled_and_told(host: Host) -> None:
    async def main() -> None:
        guest, unwound, began = await joined(), [], asyncio.Event()

        async def work() -> None:
            began.set()
            try:
                await trio.sleep_forever()
            finally:
                unwound.append(1)

        task = asyncio.create_task(guest.call(work))
        await began.wait()
        await left(guest)
        with pytest.raises(EngineClosed, match="before this had ended"):
            await task
        assert unwound == [1]

    host(main)


def test_a_guest_is_shared_and_ends_with_its_last_user(host: Host) -> None:
    async def main() -> None:
        one, two = await asyncio.gather(joined(), joined())
        assert one is two
        await left(one)
        assert not one.ended.is_set
        one.leave()
        again = await joined()  # waits for the end of the first
        assert again is not one
        assert one.ended.is_set
        await left(again)

    host(main)


def test_joining_a_guest_that_ends_can_be_cancelled(host: Host) -> None:
    async def main() -> None:
        guest = await joined()
        began, release = asyncio.Event(), trio.Event()

        async def work() -> None:
            began.set()
            with trio.CancelScope(shield=True):
                await release.wait()

        waiting = asyncio.create_task(guest.call(work))
        await began.wait()
        guest.leave()
        joining = asyncio.create_task(joined())
        await asyncio.sleep(0)
        joining.cancel()
        await asyncio.sleep(0)
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await joining
        await waiting
        assert guest.ended.is_set

    host(main)


def test_code_on_trio_that_awaits_what_is_asyncios_is_told(host: Host) -> None:
    async def main() -> None:
        guest = await joined()

        async def work() -> None:
            await guest.call(trio.sleep, 0)

        with pytest.raises(RuntimeError, match="awaited by an asyncio task"):
            await guest.call(work)
        await left(guest)

    host(main)


def test_a_coroutine_that_is_closed_while_it_waits_cancels_its_work(host: Host) -> None:
    async def main() -> None:
        guest, unwound = await joined(), asyncio.Event()

        async def work() -> None:
            try:
                await trio.sleep_forever()
            finally:
                unwound.set()

        waiting = guest.call(work)
        waiting.send(None)
        waiting.close()
        await unwound.wait()
        await left(guest)

    host(main)


def test_where_trio_runs_already_nobody_joins(loop_factory: LoopFactory) -> None:
    async def on_trio() -> None:
        with (
            asyncio.Runner(loop_factory=loop_factory) as runner,
            pytest.raises(RuntimeError, match="trio already runs"),
        ):
            runner.run(joined())

    trio.run(on_trio)


@pytest.mark.parametrize("handler", ["default", "runner", "own"])
def test_the_handler_of_ctrl_c_is_the_hosts_before_during_and_after(loop_factory: LoopFactory, handler: str) -> None:
    def own(*_: object) -> None:
        raise AssertionError("nobody pressed it")

    seen: list[object] = []
    hooks: list[object] = []

    async def main() -> None:
        seen.append(signal.getsignal(signal.SIGINT))
        hooks.append(sys.get_asyncgen_hooks())
        guest = await joined()
        await guest.call(trio.sleep, 0)
        seen.append(signal.getsignal(signal.SIGINT))
        await left(guest)
        seen.append(signal.getsignal(signal.SIGINT))
        hooks.append(sys.get_asyncgen_hooks())

    before = signal.signal(signal.SIGINT, own if handler == "own" else signal.default_int_handler)
    try:
        if handler == "runner":
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(main())
        else:
            loop = loop_factory()
            loop.run_until_complete(main())
            loop.close()
        expected = own if handler == "own" else signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is expected
        assert seen[0] is seen[1] is seen[2]
        assert (seen[0] is expected) == (handler != "runner")
        assert hooks[0] == hooks[1]
    finally:
        signal.signal(signal.SIGINT, before)


def test_each_thread_has_its_own_guest(loop_factory: LoopFactory) -> None:
    both = threading.Barrier(2)
    guests: list[Guest] = []

    async def main() -> None:
        guest = await joined()
        guests.append(guest)
        both.wait(30)
        assert await guest.call(trio.to_thread.run_sync, lambda: "done") == "done"
        await left(guest)

    def thread() -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(main())

    threads = [threading.Thread(target=thread) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(set(map(id, guests))) == 2
