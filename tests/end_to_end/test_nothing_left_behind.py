"""Whatever an agent leaves about, and however its rollout ends, it is gone when the rollout is final (L13, L18, L55,
L70, L75)."""

import signal
from collections.abc import Awaitable, Callable, Mapping

import pytest
import trio
from trio.testing import MockClock

from rollout_fsm import (
    ChatHarness,
    Harness,
    LocalRuntime,
    ProgramHarness,
    Request,
    RolloutLimits,
    RolloutTimeouts,
    Runtime,
    ScriptedModel,
    Task,
    Trace,
    open_engine,
    reward,
)
from rollout_fsm.engine import Engine
from rollout_fsm.trace import TransitionRecord
from tests.end_to_end.agents import DAEMONISES, IGNORES_BEING_ASKED, LEAVES_CHILDREN, QUICK, QUIET, TWO_TURNS, agent
from tests.end_to_end.clock import with_a_clock
from tests.end_to_end.endings import ABORTED, COMPLETED, Ending, ending, failed
from tests.end_to_end.leftovers import Place
from tests.runtimes.boxes import Bell

real_time = pytest.mark.real_time

AGENTS: Mapping[str, str] = {
    "leaves children": LEAVES_CHILDREN,
    "ignores being asked": IGNORES_BEING_ASKED,
    "daemonises": DAEMONISES,
}
"""What an agent's shell does before the agent talks to the model."""


class Watched:
    """A model that tells when it was asked, counts the processes there are then, and answers when it may."""

    def __init__(self, place: Place, *, answers: bool) -> None:
        self.asked = trio.Event()
        self.most = 0
        self._place = place
        self._answers = answers
        self.model = ScriptedModel(self._reply)

    async def _reply(self, request: Request) -> str:
        self.most = max(self.most, len(self._place.processes()))
        self.asked.set()
        if not self._answers:
            await trio.sleep_forever()
        return "yes"

    @property
    def saw_more_than_the_agent(self) -> bool:
        return self.most > 1


@pytest.fixture(params=list(AGENTS.values()), ids=list(AGENTS))
def before(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- however the rollout ends


@real_time
@pytest.mark.parametrize("quiet", [True, False], ids=["lets go of its output", "holds its output"])
async def test_nothing_is_left_after_a_success(before: str, quiet: bool, place: Place) -> None:
    watched = Watched(place, answers=True)
    silenced = f"exec 3>&1 {QUIET}; {before} exec >&3; " if quiet else before
    async with open_engine() as engine:
        trace = await engine.run(
            Task(prompt="go"), harness=agent(TWO_TURNS, before=silenced), model=watched.model, runtime=QUICK
        )
        assert place.processes() == []
        assert place.files() == []
    assert ending(trace) == COMPLETED
    assert watched.saw_more_than_the_agent


@real_time
async def test_nothing_is_left_after_a_failure(before: str, place: Place) -> None:
    watched = Watched(place, answers=True)
    async with open_engine() as engine:
        trace = await engine.run(
            Task(prompt="go"),
            harness=agent(TWO_TURNS + "sys.exit('not today')", before=before),
            model=watched.model,
            runtime=QUICK,
        )
        assert place.processes() == []
    assert ending(trace) == Ending(False, "error", (("HarnessError", None),))
    assert "exited with 1; the end of its output:\nnot today" in trace.errors[0].message
    assert watched.saw_more_than_the_agent


@real_time
async def test_nothing_is_left_after_a_limit(before: str, place: Place) -> None:
    watched = Watched(place, answers=True)
    async with open_engine() as engine:
        trace = await engine.run(
            Task(prompt="go"),
            harness=agent(TWO_TURNS, before=before),
            model=watched.model,
            runtime=QUICK,
            limits=RolloutLimits(max_turns=1),
        )
        assert place.processes() == []
    assert ending(trace) == Ending(True, "max_turns")
    assert watched.saw_more_than_the_agent


@pytest.mark.parametrize("in_process", [False, True], ids=["program", "in process"])
def test_nothing_is_left_after_the_agents_time_is_over(before: str, in_process: bool, place: Place) -> None:
    class Served(Task):
        async def setup(self, trace: Trace, runtime: Runtime) -> None:
            await runtime.run(["sh", "-c", f"sleep 1000 {QUIET} & sleep 1000 {QUIET} &"])

    async def test(clock: MockClock) -> None:
        watched = Watched(place, answers=False)
        harness: Harness = ChatHarness() if in_process else agent(TWO_TURNS, before=before)

        async def put_on() -> None:
            await watched.asked.wait()
            clock.jump(301)

        async with open_engine() as engine, trio.open_nursery() as nursery:
            nursery.start_soon(put_on)
            trace = await engine.run(
                Served(prompt="go"),
                harness=harness,
                model=watched.model,
                runtime=QUICK,
                timeouts=RolloutTimeouts(agent=300),
            )
        assert ending(trace) == Ending(False, "error", (("HarnessError", None),))
        assert trace.errors[0].message.startswith("agent timeout: ")
        assert watched.saw_more_than_the_agent

    with_a_clock(test)


def test_nothing_is_left_of_an_agent_that_does_not_end_after_a_refusal(before: str, place: Place) -> None:
    stays = """
messages = [{"role": "user", "content": sys.argv[1]}]
ask(messages)
status, document = post(messages)
import time
time.sleep(1000)
"""

    async def test(clock: MockClock) -> None:
        watched = Watched(place, answers=True)

        refused = trio.Event()

        class Refusals:
            def on_transition(self, trace: Trace, transition: TransitionRecord) -> None:
                if transition.target == "stopping":
                    refused.set()

        async def put_on() -> None:
            await refused.wait()
            clock.jump(31)

        async with open_engine(observers=[Refusals()]) as engine, trio.open_nursery() as nursery:
            nursery.start_soon(put_on)
            trace = await engine.run(
                Task(prompt="go"),
                harness=agent(stays, before=before),
                model=watched.model,
                runtime=QUICK,
                limits=RolloutLimits(max_turns=1),
                timeouts=RolloutTimeouts(drain=30),
            )
        assert ending(trace) == Ending(True, "max_turns")
        assert watched.saw_more_than_the_agent

    with_a_clock(test)


# --- however it is left early


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
    "ctrl-c": by_ctrl_c,
}
PLACES = ("setup", "segment", "finalize", "scoring")


@real_time
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


@real_time
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


@real_time
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


@real_time
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


@real_time
async def test_an_agent_that_cannot_be_started_leaves_nothing() -> None:
    async with open_engine() as engine:
        trace = await engine.run(
            Task(prompt="go"), harness=ProgramHarness(["no-such-agent"]), model=ScriptedModel(["yes"]), runtime=QUICK
        )
    assert ending(trace) == failed("HarnessError")
    assert "no-such-agent" in trace.errors[0].message
