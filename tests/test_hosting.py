"""What an engine holds open from call to call: entered and left by one task, whoever is cancelled, whatever crashes."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
import trio.testing
from attrs import define, field

from rollout_fsm.errors import leaves
from rollout_fsm.hosting import LEAVING, Hosting

STEPS = 3


@define
class Held(AbstractAsyncContextManager[str]):
    """Takes `STEPS` checkpoints to enter, and as many to leave; says what became of it, and in which tasks."""

    log: list[str] = field(factory=list)
    tasks: set[trio.lowlevel.Task] = field(factory=set)

    async def __aenter__(self) -> str:
        try:
            await self._steps()
        except BaseException:
            self.log.append("undone")
            raise
        self.log.append("entered")
        return "held"

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._steps()
        finally:
            self.log.append("left")

    async def _steps(self) -> None:
        self.tasks.add(trio.lowlevel.current_task())
        for _ in range(STEPS):
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def hosting() -> AsyncIterator[Hosting]:
    async with trio.open_nursery() as nursery:
        engine = Hosting(nursery)
        yield engine
        await engine.end()


@asynccontextmanager
async def crashing(crash: trio.Event) -> AsyncIterator[str]:
    """Holds a nursery open, in which something fails."""

    async def child() -> None:
        await crash.wait()
        raise ValueError("a child's")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        yield "fragile"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def raising(error: Callable[[], BaseException], *, leaving: bool = False) -> AsyncIterator[str]:
    await trio.lowlevel.checkpoint()
    if not leaving:
        raise error()
    yield "held"
    raise error()


async def test_one_task_that_is_none_of_the_callers_enters_and_leaves() -> None:
    held = Held()
    async with hosting() as engine:
        hosted = await engine.enter(held, name="it")
        assert (hosted.value, hosted.ended, held.log) == ("held", False, ["entered"])
        async with trio.open_nursery() as other:
            other.start_soon(hosted.leave)
        assert (hosted.ended, held.log) == (True, ["entered", "left"])
        await hosted.leave()
    assert held.log == ["entered", "left"]
    (task,) = held.tasks
    assert task is not trio.lowlevel.current_task()


async def test_what_was_left_is_not_to_be_had_any_more() -> None:
    async with hosting() as engine:
        hosted = await engine.enter(Held(), name="the thing")
        await hosted.leave()
        with pytest.raises(RuntimeError, match="the thing is not open any more"):
            assert hosted.value
        assert repr(hosted) == "<Hosted the thing ended>"


@pytest.mark.parametrize("steps", range(2 * STEPS + 2))
async def test_a_cancelled_entering_has_undone_itself_when_its_cancellation_is_told(steps: int) -> None:
    held, entered = Held(), False
    async with hosting() as engine:
        with trio.CancelScope() as scope:

            async def enter() -> None:
                nonlocal entered
                await engine.enter(held, name="it")
                entered = True

            async def cancel() -> None:
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(enter)
                nursery.start_soon(cancel)
        assert held.log in ([["entered"]] if entered else [[], ["undone"], ["entered", "left"]])
    assert held.log.count("entered") == held.log.count("left")


async def test_what_entering_raises_is_raised_where_it_was_asked_for() -> None:
    async with hosting() as engine:
        with pytest.raises(ValueError, match="no entrance"):
            await engine.enter(raising(lambda: ValueError("no entrance")), name="it")


async def test_what_leaving_raises_is_raised_once_to_who_leaves() -> None:
    async with hosting() as engine:
        hosted = await engine.enter(raising(lambda: ValueError("no exit"), leaving=True), name="it")
        with pytest.raises(ValueError, match="no exit"):
            await hosted.leave()
        await hosted.leave()


async def test_a_cancelled_leaving_is_cancelled_and_waited_for() -> None:
    unwound = False

    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        nonlocal unwound
        yield
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            unwound = True

    async with hosting() as engine:
        hosted = await engine.enter(slow(), name="it")
        with trio.move_on_after(5) as scope:
            await hosted.leave()
        assert (scope.cancelled_caught, unwound, hosted.ended) == (True, True, True)


async def test_a_crash_is_logged_and_told_to_who_leaves_and_reaches_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crash = trio.Event()
    async with hosting() as engine:
        hosted = await engine.enter(crashing(crash), name="the server")
        sibling = await engine.enter(Held(), name="another")
        crash.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (hosted.ended, sibling.value) == (True, "held")
        assert [record.getMessage() for record in caplog.records] == ["the server crashed: ValueError: a child's"]
        with pytest.raises(ExceptionGroup) as told:
            await hosted.leave()
        assert [str(leaf) for leaf in leaves(told.value)] == ["a child's"]


async def test_what_holds_a_nursery_can_be_entered_and_left() -> None:
    async with hosting() as engine:
        hosted = await engine.enter(crashing(trio.Event()), name="it")
        await hosted.leave()
        assert await engine.share(engine, lambda: crashing(trio.Event()), name="it") == "fragile"


async def test_what_is_shared_is_entered_once_and_left_at_the_end() -> None:
    made: list[Held] = []

    def make() -> Held:
        made.append(Held())
        return made[-1]

    values: list[str] = []
    async with hosting() as engine:

        async def ask() -> None:
            values.append(await engine.share("key", make, name="it"))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
        assert (values, len(made), made[0].log) == (["held"] * 3, 1, ["entered"])
    assert made[0].log == ["entered", "left"]


async def test_entering_what_is_shared_goes_on_when_who_waits_is_cancelled() -> None:
    held = Held()
    async with hosting() as engine:
        with trio.CancelScope() as scope:
            scope.cancel()
            await engine.share("key", lambda: held, name="it")
        assert await engine.share("key", Held, name="it") == "held"
        assert held.log == ["entered"]


async def test_what_could_not_be_shared_is_told_to_all_who_wait_and_tried_again_for_who_comes_later() -> None:
    told: list[str] = []
    async with hosting() as engine:

        async def ask() -> None:
            try:
                await engine.share("key", lambda: raising(lambda: ValueError("not yet")), name="it")
            except ValueError as error:
                told.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
        assert told == ["not yet"] * 2
        assert await engine.share("key", Held, name="it") == "held"


async def test_what_is_shared_and_crashed_is_entered_again() -> None:
    crash = trio.Event()
    async with hosting() as engine:
        assert await engine.share("key", lambda: crashing(crash), name="it") == "fragile"
        crash.set()
        await trio.testing.wait_all_tasks_blocked()
        assert await engine.share("key", Held, name="it") == "held"


async def test_the_end_leaves_what_is_left_and_gives_up_what_is_being_entered() -> None:
    held, entering = Held(), False

    @asynccontextmanager
    async def endless() -> AsyncIterator[None]:
        nonlocal entering
        entering = True
        try:
            await trio.sleep_forever()
            yield
        finally:
            entering = False

    async with trio.open_nursery() as nursery:
        engine = Hosting(nursery)
        await engine.enter(held, name="it")
        async with trio.open_nursery() as waiting:
            waiting.start_soon(lambda: engine.share("key", endless, name="that"))
            await trio.testing.wait_all_tasks_blocked()
            assert entering
            waiting.cancel_scope.cancel()
        await engine.end()
        assert (held.log, entering) == (["entered", "left"], False)
        with pytest.raises(RuntimeError, match="the engine has ended"):
            await engine.enter(Held(), name="late")


async def test_what_cannot_be_left_in_time_when_the_engine_ends_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def clinging() -> AsyncIterator[None]:
        yield
        await trio.sleep_forever()

    began = trio.current_time()
    async with hosting() as engine:
        await engine.enter(clinging(), name="it")
        await engine.enter(raising(lambda: ValueError("no exit"), leaving=True), name="that")
    assert trio.current_time() - began == LEAVING
    assert {record.getMessage() for record in caplog.records} == {
        f"leaving it took more than {LEAVING:g} s and was given up",
        "leaving that failed: ValueError: no exit",
    }


async def test_an_interrupt_is_the_engines() -> None:
    async def engine_with_an_interrupt() -> None:
        async with hosting() as engine:
            with pytest.raises(SystemExit):
                await engine.enter(raising(lambda: SystemExit(4)), name="it")
            await trio.lowlevel.checkpoint()

    with pytest.raises(BaseExceptionGroup) as raised:
        await engine_with_an_interrupt()
    assert [leaf.code for leaf in leaves(raised.value) if isinstance(leaf, SystemExit)] == [4]


async def test_a_cancelled_engine_holds_everything_until_its_end() -> None:
    held = Held()
    async with trio.open_nursery() as nursery:
        engine = Hosting(nursery)
        await engine.enter(held, name="it")
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
            assert held.log == ["entered"]
            await engine.end()
    assert held.log == ["entered", "left"]
