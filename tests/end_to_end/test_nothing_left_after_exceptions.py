"""An exception in every place where foreign code is called: it is attributed, said, and leaves nothing behind (L7, L9,
L35, L40, L42, L50-L55, L63)."""

import logging
from collections.abc import Callable, Mapping

import pytest
from attrs import evolve

from rollout_fsm import ChatHarness, Exchange, Harness, HarnessSession, Task, UserMessage, open_engine
from tests.end_to_end.agents import DAEMONISES, QUICK, QUIET, TWO_TURNS, agent
from tests.end_to_end.endings import COMPLETED, Ending, ending, failed, failed_late
from tests.end_to_end.traps import (
    TrappedHarness,
    TrappedObserver,
    TrappedTask,
    trapped_boxes,
    trapped_model,
    trapped_tools,
)

pytestmark = pytest.mark.real_time

TASKS: Mapping[str, Ending] = {
    "task.setup": failed("TaskError"),
    "task.toolsets": failed("TaskError"),
    "task.finalize": failed_late("TaskError"),
    "task.judges": failed_late("TaskError"),
    "tools.start": failed("ToolsetError"),
    "tools.stop": Ending(True, "agent_completed", warnings=("close",)),
    "stop.trace": failed("TaskError"),
    "stop.request": failed("TaskError"),
    "stop.response": failed("TaskError"),
    "intercept.prompt": failed("TaskError"),
    "intercept.request": failed("TaskError"),
    "intercept.response": failed("TaskError"),
    "reward": failed_late("TaskError"),
    "metric": failed_late("TaskError"),
    "judge": failed_late("TaskError"),
}
"""The traps in a task's own code, and how a rollout ends that steps into one."""

OTHERS: Mapping[str, Ending] = {
    "tools.build": failed("ToolsetError"),
    "harness.setup": failed("HarnessError"),
    "harness.open_session": failed("HarnessError"),
    "session.run": failed("HarnessError"),
    "session.close": Ending(True, "agent_completed", warnings=("close",)),
    "harness.metric": failed_late("TaskError"),
    "harness.cleanup": Ending(True, "agent_completed", warnings=("cleanup",)),
    "runtime.factory": failed("SandboxError"),
    "runtime.start": failed("SandboxError"),
    "runtime.prepare_setup": failed("SandboxError"),
    "runtime.prepare_execution": failed("SandboxError"),
    "runtime.stop": Ending(True, "agent_completed", warnings=("leaked",)),
    "model": failed("ProviderError"),
}

OBSERVERS = ("observer.on_trace", "observer.on_transition", "observer.on_finished")


def program() -> Harness:
    """Leaves children about that ignore being asked, and a daemon."""
    return agent(TWO_TURNS, before=f"exec 3>&1 {QUIET}; {DAEMONISES} sleep 1000 & exec >&3; ")


class InProcess(ChatHarness):
    """Talks in two turns, and does not ask the tool server, which would never answer."""

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        session = await super().open_session(evolve(exchange, tool_urls={}, local_tool_urls={}))
        first = session.run

        class Session(HarnessSession):
            async def run(self, messages: object) -> None:
                await first(None)
                await first([UserMessage("more")])

        return Session()


KINDS: Mapping[str, Callable[[], Harness]] = {"program": program, "in process": InProcess}


async def run_into(trap: str, harness: Harness) -> tuple[Ending, str]:
    """How a rollout with this trap ends, and all that its trace says about what went wrong."""
    async with open_engine() as engine:
        trace = await engine.run(
            TrappedTask(prompt="go", trap=trap),
            harness=TrappedHarness(harness, trap),
            model=trapped_model(trap),
            runtime=trapped_boxes(trap),
            tools=[trapped_tools(trap)],
        )
    said = [error.message for error in trace.errors] + [warning.message for warning in trace.warnings]
    return ending(trace), "; ".join(said)


@pytest.mark.parametrize("harness", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("trap", "expected"), [*TASKS.items(), *OTHERS.items()], ids=[*TASKS, *OTHERS])
async def test_an_exception_is_told_and_nothing_is_left(
    trap: str, expected: Ending, harness: Callable[[], Harness]
) -> None:
    ended, said = await run_into(trap, harness())
    assert ended == expected
    assert f"RuntimeError: sprung: {trap}" in said


@pytest.mark.parametrize("harness", KINDS.values(), ids=KINDS)
async def test_without_a_trap_the_rollout_completes_and_nothing_is_left(harness: Callable[[], Harness]) -> None:
    assert await run_into("", harness()) == (COMPLETED, "")


@pytest.mark.parametrize("trap", OBSERVERS)
async def test_what_an_observer_raises_is_logged_and_disturbs_nothing(
    trap: str, caplog: pytest.LogCaptureFixture
) -> None:
    observer = TrappedObserver(trap)
    async with open_engine(observers=[observer]) as engine:
        trace = await engine.run(Task(prompt="go"), harness=agent(TWO_TURNS), model=trapped_model(""), runtime=QUICK)
    assert ending(trace) == COMPLETED
    assert observer.told == {"on_trace", "on_transition", "on_finished"}
    raised = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert raised
    assert all(record.exc_info and str(record.exc_info[1]) == f"sprung: {trap}" for record in raised)


async def test_a_box_that_cannot_kill_its_agent_fails_the_rollout_and_still_goes() -> None:
    async with open_engine() as engine:
        trace = await engine.run(
            TrappedTask(prompt="go", trap="stop.response"),
            harness=TrappedHarness(program(), ""),
            model=trapped_model(""),
            runtime=trapped_boxes("runtime.kill"),
        )
    assert ending(trace) == Ending(False, "error", (("TaskError", None), ("SandboxError", None)))


async def test_failing_rollouts_do_not_disturb_their_siblings() -> None:
    traps = [*TASKS, *[""] * 5]
    async with (
        open_engine() as engine,
        engine.run_all(
            [TrappedTask(prompt="go", trap=trap) for trap in traps],
            harness=agent(TWO_TURNS),
            model=trapped_model(""),
            runtime=QUICK,
            max_concurrent=8,
        ) as traces,
    ):
        ended = [(str(trace.task.data["trap"]), ending(trace)) async for trace in traces]
    expected: dict[str, Ending] = {**TASKS, "": COMPLETED}
    assert sorted(trap for trap, _ in ended) == sorted(traps)
    assert [(trap, how) for trap, how in ended if how != expected[trap]] == []
