"""Tool servers of whole rollouts: what tools, hooks and signals share, and what is left after any end."""

import gc
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, frozen

from rollout_fsm import (
    ChatHarness,
    Exchange,
    Harness,
    HarnessSession,
    HttpToolset,
    Request,
    RolloutContext,
    RolloutTimeouts,
    ScriptedModel,
    SharedToolset,
    StdioToolset,
    Task,
    Toolset,
    Trace,
    check_trace,
    open_engine,
    reward,
    stop,
    tool,
)
from rollout_fsm.engine import Engine
from rollout_fsm.tool_client import http_tool_client
from tests.harnesses.runs import Ending, calling, ending, failure, run, said
from tests.toolsets.rollouts import model

pytestmark = pytest.mark.real_time

SERVER = Path(__file__).with_name("stdio_server.py")
COMPLETED: Ending = (True, "agent_completed", [], [])


def stdio(*modes: str) -> StdioToolset:
    return StdioToolset([sys.executable, "-I", str(SERVER), *modes], name="tools")


class Purse(Toolset):
    @tool
    def pay(self, amount: int, task: "Errand", state: dict[str, Any]) -> str:
        state["paid"] = state.get("paid", 0) + amount
        return f"{state['paid']} of {task.budget}"


@frozen(kw_only=True)
class Errand(Task):
    budget: int = 5

    def toolsets(self) -> Sequence[Toolset]:
        return [Purse()]

    @stop
    def spent(self, trace: Trace) -> bool:
        return bool(trace.state.get("paid", 0) >= self.budget)

    @reward
    def thrift(self, trace: Trace) -> float:
        return 1 - trace.state.get("paid", 0) / 10  # type: ignore[operator]


async def test_a_tool_a_stop_and_a_reward_see_one_state() -> None:
    trace = await run(ChatHarness(), ScriptedModel([calling(("pay", '{"amount": 6}')), "done"]), Errand(prompt="go"))
    assert ending(trace) == (True, "spent", [], [])
    assert (trace.reward, trace.state) == (0.4, {"paid": 6})


async def test_the_trace_shows_tools_calls_and_results() -> None:
    trace = await run(ChatHarness(), model(("pay", {"amount": 2})), Errand(prompt="go"))
    assert ending(trace) == COMPLETED
    assert [shown.name for shown in trace.tools] == ["pay"]
    assert said(trace) == [("user", "go"), ("assistant", ""), ("tool", "2 of 5"), ("assistant", "2 of 5")]


async def test_a_tool_server_in_another_process_shares_the_state_too() -> None:
    class Counted(Task):
        async def setup(self, trace: Trace, runtime: Any) -> None:
            trace.state["count"] = 40

        @reward
        def counted(self, trace: Trace) -> float:
            return float(trace.state["count"])  # type: ignore[arg-type]

    trace = await run(
        ChatHarness(max_parallel=1), model(("count", {}), ("count", {})), Counted(prompt="x"), tools=[stdio]
    )
    assert ending(trace) == COMPLETED
    assert (trace.last_reply, trace.reward) == ("41\n42", 42.0)


async def test_without_a_gateway_tools_are_served_and_a_program_is_told_of_no_state() -> None:
    trace = await run(
        ChatHarness(),
        model(("pay", {"amount": 1}), ("environment", {"name": "ROLLOUT_STATE_URL"})),
        Errand(prompt="x"),
        tools=[stdio],
        gateway=False,
    )
    assert (ending(trace), trace.last_reply) == (COMPLETED, "1 of 5\nnone")


class Prying(Harness):
    """Tells the URLs that a rollout is given, and waits until all have told theirs."""

    def __init__(self, number: int) -> None:
        self.urls: dict[str, str] = {}
        self.all_told, self.number = trio.Event(), number

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        self.urls[exchange.trace.id] = exchange.tool_urls["Purse"]
        if len(self.urls) == self.number:
            self.all_told.set()
        await self.all_told.wait()
        return PryingSession(self, exchange)


@define(eq=False)
class PryingSession(HarnessSession):
    harness: Prying
    exchange: Exchange

    async def run(self, messages: object) -> None:
        own = self.harness.urls[self.exchange.trace.id]
        (other,) = set(self.harness.urls.values()) - {own}
        secrets = [url.split("/")[3] for url in (own, other)]
        async with http_tool_client(own) as client:
            await client.call_tool("pay", {"amount": 1})
        with pytest.raises(Exception):  # noqa: B017, PT011
            async with http_tool_client(own.replace(secrets[0], secrets[1][:-1])) as client:
                await client.list_tools()
        await self.exchange.respond(Request(messages=self.exchange.prompt))


async def test_each_of_two_rollouts_has_a_secret_and_a_state_of_its_own() -> None:
    harness = Prying(2)
    tasks = [Errand(prompt="one"), Errand(prompt="two")]
    async with (
        open_engine() as engine,
        engine.run_all(tasks, harness=harness, model=ScriptedModel(lambda request: "ok")) as traces,
    ):
        finished = [trace async for trace in traces]
    assert [(ending(trace), trace.state) for trace in finished] == [(COMPLETED, {"paid": 1})] * 2
    assert len(set(harness.urls.values())) == 2


async def test_a_rollout_whose_tool_hangs_or_fails_does_not_disturb_the_other() -> None:
    class Trouble(Toolset):
        tool_timeout = 0.1

        @tool
        async def hang(self) -> None:
            await trio.sleep_forever()

        @tool
        def fail(self) -> None:
            raise SystemError("broken")

    def reply(request: Request) -> Any:
        if request.messages[-1].role != "user":
            return " ".join(message.text for message in request.messages if message.role == "tool")
        name = request.messages[0].text
        return calling(("pay", '{"amount": 1}')) if name == "pay" else calling((name, "{}"))

    class Both(Errand):
        def toolsets(self) -> Sequence[Toolset]:
            return [Purse(), Trouble()]

    tasks = [Both(prompt=prompt) for prompt in ("hang", "fail", "pay")]
    harness = ChatHarness()
    async with (
        open_engine() as engine,
        engine.run_all(tasks, harness=harness, model=ScriptedModel(reply)) as traces,
    ):
        replies = {trace.nodes[0].message.text: trace.last_reply async for trace in traces}
    assert replies == {
        "hang": "Error: hang did not answer within 0.1 s and was cancelled",
        "fail": "Error: SystemError: broken",
        "pay": "1 of 5",
    }


class Overriding(Purse):
    """Does something before and after, and is served as others are."""

    def __init__(self, log: list[str], fails: str = "") -> None:
        self.log, self.fails = log, fails

    async def start(self, context: RolloutContext) -> str:
        url = await super().start(context)
        self._do("start")
        return url

    async def stop(self) -> None:
        self._do("stop")

    def _do(self, what: str) -> None:
        self.log.append(what)
        if what == self.fails:
            raise ValueError(f"no {what}")


def held(engine: Engine) -> list[str]:
    """What the engine holds open for its rollouts."""
    assert engine._register is not None
    return sorted(hosted.name for hosted in engine._register.services.hosting._open)


HTTP = ["the HTTP server of the tool servers"]


@pytest.mark.parametrize(
    ("fails", "became", "log"),
    [
        ("", COMPLETED, ["start", "stop"]),
        ("stop", (True, "agent_completed", [], ["close"]), ["start", "stop"]),
        ("start", (False, "error", ["ToolsetError"], []), ["start"]),
    ],
)
async def test_what_an_overridden_start_has_served_ends_with_the_rollout(
    fails: str, became: Ending, log: list[str]
) -> None:
    done: list[str] = []
    async with open_engine() as engine:
        trace = await engine.run(
            Errand(prompt="x"), harness=ChatHarness(), model=model(), tools=[lambda: Overriding(done, fails)]
        )
        assert held(engine) == HTTP
    assert (ending(trace), done) == (became, log)


async def test_when_the_third_fails_to_start_the_two_that_ran_are_stopped() -> None:
    done: list[str] = []

    class Named(Overriding):
        name = "second"  # type: ignore[assignment]

    async with open_engine() as engine:
        trace = await engine.run(
            Errand(prompt="x"),
            harness=ChatHarness(),
            model=model(),
            tools=[stdio, lambda: Named(done), lambda: HttpToolset("http://127.0.0.1:9/mcp", name="third")],
        )
        assert held(engine) == HTTP
    assert failure(trace)[0] == "ToolsetError"
    assert failure(trace)[1].startswith("tool server 'third' cannot be reached: ")
    assert done == ["start", "stop"]


async def test_a_start_that_hangs_is_named_when_setup_times_out() -> None:
    trace = await run(
        ChatHarness(), model(), Task(prompt="x"), tools=[lambda: stdio("mute")], timeouts=RolloutTimeouts(setup=0.5)
    )
    type, message = failure(trace)
    assert type == "ToolsetError"
    assert message.startswith("starting tool server 'tools' timed out after 0.")


class Slow(Purse):
    """Waits at a place until it is cancelled there."""

    def __init__(self, place: str, reached: trio.Event) -> None:
        self.place, self.reached = place, reached

    async def start(self, context: RolloutContext) -> str:
        await self._wait("before")
        url = await super().start(context)
        await self._wait("after")
        return url

    @tool
    async def ponder(self) -> None:
        await self._wait("calling")

    async def _wait(self, place: str) -> None:
        if place == self.place:
            self.reached.set()
            await trio.sleep_forever()


@pytest.mark.parametrize("place", ["before", "after", "calling"])
async def test_a_cancelled_rollout_leaves_no_server_no_task_and_no_process(place: str) -> None:
    reached = trio.Event()
    async with open_engine() as engine:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def rollout() -> None:
                    await engine.run(
                        Errand(prompt="x"),
                        harness=ChatHarness(),
                        model=model(("ponder", {})),
                        tools=[stdio, lambda: Slow(place, reached)],
                    )

                nursery.start_soon(rollout)
                await reached.wait()
                assert "tool server 'tools'" in held(engine)
                scope.cancel()
        assert held(engine) == HTTP
    assert scope.cancelled_caught


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377])
async def test_a_rollout_that_is_cancelled_after_any_number_of_steps_leaves_nothing(steps: int) -> None:
    import mcp.client.streamable_http

    import rollout_fsm.toolsets.mcp_server  # noqa: F401  (no thread is waited for below)

    assert mcp.client.streamable_http
    async with open_engine() as engine:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def cancel() -> None:
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()

                nursery.start_soon(cancel)
                trace = await engine.run(Errand(prompt="x"), harness=ChatHarness(), model=model(("pay", {"amount": 1})))
                nursery.cancel_scope.cancel()
                assert ending(trace) == COMPLETED
        assert set(held(engine)) <= set(HTTP)


async def test_a_rollout_with_tool_servers_is_freed_without_the_collector() -> None:
    task: Errand | None = Errand(prompt="x")
    seen = weakref.ref(task)
    async with open_engine() as engine:
        await engine.run(Errand(prompt="x"), harness=ChatHarness(), model=model(("pay", {"amount": 1})))
        gc.collect()
        gc.disable()
        try:
            await engine.run(task, harness=ChatHarness(), model=model(("pay", {"amount": 1})))
            task = None
            await trio.testing.wait_all_tasks_blocked()
            assert seen() is None
        finally:
            gc.enable()


class Open(Toolset):
    @tool
    def who(self, trace: Trace) -> str:
        return trace.id


async def test_a_shared_toolset_of_many_rollouts_ends_with_the_engine() -> None:
    shared = SharedToolset(Open())
    async with open_engine() as engine:
        for id in ("one", "two"):
            trace = await engine.run(
                Task(prompt="x"), harness=ChatHarness(), model=model(("who", {})), tools=[lambda: shared], id=id
            )
            assert trace.last_reply == id
        assert held(engine) == sorted([*HTTP, "shared tool server 'Open'"])


async def test_an_engine_that_is_left_while_tools_run_ends_them() -> None:
    reached = trio.Event()
    traces: list[Trace] = []
    async with trio.open_nursery() as nursery, open_engine() as engine:

        async def rollout() -> None:
            traces.append(
                await engine.run(
                    Errand(prompt="x"),
                    harness=ChatHarness(),
                    model=model(("ponder", {})),
                    tools=[lambda: Slow("calling", reached)],
                )
            )

        nursery.start_soon(rollout)
        await reached.wait()
    assert [ending(trace)[:2] for trace in traces] == [(False, "cancelled")]
    assert check_trace(traces[0]) == []
