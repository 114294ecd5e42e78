"""Whatever an agent leaves about, it is gone when the rollout has ended, however that was (L13, L18, L41, L55)."""

from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock

from rollout_fsm import (
    ChatHarness,
    Harness,
    ProgramHarness,
    RolloutLimits,
    RolloutTimeouts,
    Runtime,
    ScriptedModel,
    Task,
    Trace,
    open_engine,
)
from rollout_fsm.trace import TransitionRecord
from tests.end_to_end.agents import DAEMONISES, IGNORES_BEING_ASKED, LEAVES_CHILDREN, QUICK, QUIET, TWO_TURNS, agent
from tests.end_to_end.clock import with_a_clock
from tests.end_to_end.endings import COMPLETED, Ending, ending, failed
from tests.end_to_end.leftovers import Place
from tests.end_to_end.watched import Watched

real_time = pytest.mark.real_time

AGENTS: Mapping[str, str] = {
    "leaves children": LEAVES_CHILDREN,
    "ignores being asked": IGNORES_BEING_ASKED,
    "daemonises": DAEMONISES,
}
"""What an agent's shell does before the agent talks to the model."""


@pytest.fixture(params=list(AGENTS.values()), ids=list(AGENTS))
def before(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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


@real_time
async def test_an_agent_that_cannot_be_started_leaves_nothing() -> None:
    async with open_engine() as engine:
        trace = await engine.run(
            Task(prompt="go"), harness=ProgramHarness(["no-such-agent"]), model=ScriptedModel(["yes"]), runtime=QUICK
        )
    assert ending(trace) == failed("HarnessError")
    assert "no-such-agent" in trace.errors[0].message
