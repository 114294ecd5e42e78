"""A rollout, a batch or an engine that is left early, at whatever it is just then, leaves nothing behind (L8, L70, L72,
L75)."""

import signal
from collections.abc import Awaitable, Callable, Mapping

import pytest
import trio

from rollout_fsm import LocalRuntime, Request, Runtime, ScriptedModel, Task, Trace, open_engine, reward
from rollout_fsm.engine import Engine
from tests.end_to_end.agents import DAEMONISES, QUICK, QUIET, TWO_TURNS, agent
from tests.end_to_end.endings import ABORTED, COMPLETED, ending
from tests.end_to_end.leftovers import Place
from tests.end_to_end.watched import Watched
from tests.runtimes.boxes import Bell

pytestmark = pytest.mark.real_time


class Busy:
    """A task that stays at one place for ever, with a program running there, and tells when it is at it."""

    def __init__(self, place: Place, where: str) -> None:
        busy = self
        self.there = trio.Event()
        self._place = place
        self._where = where
        self._model = Watched(place, answers=where != "segment")

        class BusyTask(Task):
            async def setup(self, trace: Trace, runtime: Runtime) -> None:
                await busy._at("setup", runtime)

            async def finalize(self, trace: Trace, runtime: Runtime) -> None:
                await busy._at("finalize", runtime)

            @reward
            async def good(self, runtime: Runtime) -> float:
                await busy._at("scoring", runtime)
                return 1.0

        self.task = BusyTask(prompt="go")
        self.model = self._model.model

    async def _at(self, where: str, runtime: Runtime) -> None:
        if where != self._where:
            return
        assert isinstance(runtime, LocalRuntime)
        bell = Bell(runtime.workspace)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    runtime.run, ["sh", "-c", "trap '' TERM; exec 9>bell; sleep 1000 & echo up >&9; wait"]
                )
                assert await bell.line() == "up"
                self.there.set()
        finally:
            bell.close()

    async def wait(self) -> None:
        """Wait until the rollout is at the place."""
        await (self._model.asked if self._where == "segment" else self.there).wait()
        assert self._place.processes() != []


async def run(engine: Engine, busy: Busy) -> None:
    await engine.run(
        busy.task,
        harness=agent(TWO_TURNS, before=f"exec 3>&1 {QUIET}; {DAEMONISES} exec >&3; "),
        model=busy.model,
        runtime=QUICK,
    )


async def beside(end: Callable[[], Awaitable[None]], engine: Engine, busy: Busy) -> None:
    """Run a rollout in this task while another task puts an end to it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        await run(engine, busy)


class Kept:
    """Keeps the finished traces."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def on_finished(self, trace: Trace) -> None:
        self.traces.append(trace)


async def by_a_scope(engine: Engine, busy: Busy) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, engine, busy)
        await busy.wait()
        nursery.cancel_scope.cancel()


async def by_an_exception(engine: Engine, busy: Busy) -> None:
    async def fail() -> None:
        await busy.wait()
        raise LookupError("the caller's own")

    with pytest.raises(ExceptionGroup) as caught:
        await beside(fail, engine, busy)
    assert [type(error) for error in caught.value.exceptions] == [LookupError]


async def by_leaving_a_batch(engine: Engine, busy: Busy) -> None:
    async with engine.run_all(
        [busy.task] * 4, harness=agent(TWO_TURNS, before=DAEMONISES), model=busy.model, runtime=QUICK
    ):
        await busy.wait()


async def by_a_scope_around_a_batch(engine: Engine, busy: Busy) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(by_waiting_for_a_batch, engine, busy)
        await busy.wait()
        nursery.cancel_scope.cancel()


async def by_waiting_for_a_batch(engine: Engine, busy: Busy) -> None:
    async with engine.run_all(
        [busy.task] * 4, harness=agent(TWO_TURNS, before=DAEMONISES), model=busy.model, runtime=QUICK
    ) as traces:
        async for trace in traces:
            pytest.fail(f"ended by itself: {trace}")


async def by_ctrl_c(engine: Engine, busy: Busy) -> None:
    async def strike() -> None:
        await busy.wait()
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(BaseExceptionGroup) as caught:
        await beside(strike, engine, busy)
    assert [type(error) for error in caught.value.exceptions] == [KeyboardInterrupt]


WAYS: Mapping[str, Callable[[Engine, Busy], Awaitable[None]]] = {
    "scope": by_a_scope,
    "exception": by_an_exception,
    "batch": by_leaving_a_batch,
    "scope around a batch": by_a_scope_around_a_batch,
    "ctrl-c": by_ctrl_c,
}
PLACES = ("setup", "segment", "finalize", "scoring")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("where", PLACES)
async def test_nothing_is_left_of_a_rollout_that_is_left_early(
    where: str, way: Callable[[Engine, Busy], Awaitable[None]], place: Place
) -> None:
    busy, kept = Busy(place, where), Kept()
    async with open_engine(observers=[kept]) as engine:
        await way(engine, busy)
        assert place.processes() == []
        assert place.files() == []
    assert kept.traces
    for trace in kept.traces:
        ended = ending(trace)
        assert (ended.ok, ended.errors, ended.warnings) == (False, (), ())
        assert trace.transitions[-1].target == "aborted"


@pytest.mark.parametrize("where", PLACES)
async def test_nothing_is_left_of_a_rollout_that_another_task_cancels(where: str, place: Place) -> None:
    busy = Busy(place, where)
    went_on: list[bool | Trace] = []
    async with open_engine() as engine, trio.open_nursery() as nursery:
        rollout = engine.rollout(busy.task, harness=agent(TWO_TURNS), model=busy.model, runtime=QUICK)

        async def drive() -> None:
            went_on.append(await rollout.open())
            went_on.append(await rollout.step())
            went_on.append(await rollout.close())

        nursery.start_soon(drive)
        await busy.wait()
        await rollout.cancel()
        assert rollout.state == "aborted"
        assert place.processes() == []
        assert place.files() == []
    assert went_on[-1] is rollout.trace
    assert False in went_on or where in ("finalize", "scoring")


@pytest.mark.parametrize("where", PLACES)
async def test_nothing_is_left_of_an_engine_that_is_left_while_rollouts_run(where: str, place: Place) -> None:
    busies = [Busy(place, where) for _ in range(3)]
    kept = Kept()
    async with trio.open_nursery() as nursery:
        async with open_engine(observers=[kept]) as engine:
            for busy in busies:
                nursery.start_soon(run, engine, busy)
            for busy in busies:
                await busy.wait()
        assert place.processes() == []
        assert place.files() == []
        assert len(kept.traces) == len(busies)
    assert {trace.transitions[-1].target for trace in kept.traces} == {"aborted"}


async def test_a_batch_that_is_left_has_its_finished_traces_and_aborts_the_others(place: Place) -> None:
    """The first ends by itself while the others wait for the model; none beyond the bound has begun."""
    kept, asked, several = Kept(), [0], trio.Event()

    async def reply(request: Request) -> str:
        asked[0] += 1
        if asked[0] == 4:
            several.set()
        if request.messages[0].text == "0":
            await several.wait()
            return "yes"
        return await trio.sleep_forever()

    async with open_engine(observers=[kept]) as engine:
        async with engine.run_all(
            [Task(prompt=str(number)) for number in range(8)],
            harness=agent(TWO_TURNS, before=DAEMONISES),
            model=ScriptedModel(reply),
            runtime=QUICK,
            max_concurrent=4,
        ) as traces:
            async for trace in traces:
                assert ending(trace) == COMPLETED
                break
        assert place.processes() == []
    assert kept.traces[0] is trace
    assert len(kept.traces) in (4, 5)  # the place of the first may have been taken by another
    assert {ending(trace) for trace in kept.traces[1:]} == {ABORTED}
