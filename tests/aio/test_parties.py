"""Every party may be written for asyncio, or for trio, or half and half; they meet in one rollout."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio
import trio.lowlevel
from attrs import frozen

from rollout_fsm import (
    AssistantMessage,
    ChatHarness,
    Exchange,
    Harness,
    HarnessSession,
    LocalRuntime,
    Message,
    ProgramHarness,
    Request,
    Response,
    RolloutLimits,
    Runtime,
    Sampling,
    ScriptedModel,
    Task,
    ToolCall,
    Trace,
    Usage,
    aio,
    check_trace,
    reward,
)
from rollout_fsm.messages import Deliver, Delta
from tests.aio.conftest import Host
from tests.aio.parties import (
    AsyncHarness,
    AsyncJudge,
    AsyncModel,
    AsyncSession,
    AsyncTask,
    AsyncToolset,
    Observer,
    Stage,
    asked,
    reply,
)
from tests.aio.test_engine import agent, opened, released


def test_all_of_them_on_asyncio(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        model = AsyncModel(stage)
        async with opened(stage) as engine:
            trace = await engine.run(
                AsyncTask(prompt="x"),
                **{**agent(stage), "model": model},
                tools=[lambda: AsyncToolset(stage)],
                judges=[AsyncJudge(stage)],
            )
        assert trace.ok, trace.errors
        assert trace.reward == 1.0 + 2.0 * 0.5
        assert trace.metrics == {"turns": 1, "heard": 1.0}
        assert model.entered_by is model.left_by is not None
        assert check_trace(trace) == []
        assert [
            name for name in stage.called if name not in ("stop", "metric", "harness.metric", "reward", "judge")
        ] == [
            "model.enter",
            "runtime.start",
            "task.setup",
            "harness.setup",
            "runtime.write",
            "tools.start",
            "runtime.write",
            "session.open",
            "session.run",
            "model",
            "session.ran",
            "session.close",
            "tools.stop",
            "task.finalize",
            "harness.cleanup",
            "runtime.read",
            "runtime.stop",
            "model.leave",
        ]

    host(main)


class Parallel(AsyncHarness):
    """Makes many calls at once, with asyncio's own means, and gives one up."""

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        return ParallelSession(self.stage, exchange)


class ParallelSession(AsyncSession):
    """Its session."""

    async def run(self, messages: Sequence[Message] | None) -> None:
        respond = self.exchange.respond
        given_up = asyncio.create_task(respond(asked("given up")))
        await self.stage.reached.wait()
        given_up.cancel()
        await asyncio.wait([given_up])
        assert given_up.cancelled()
        self.stage.hang.clear()
        answers = await asyncio.gather(*(respond(asked(str(number))) for number in range(8)))
        assert [answer.message.content for answer in answers] == ["4"] * 8


def test_a_harness_makes_many_model_calls_at_once_and_gives_one_up(host: Host) -> None:
    async def main() -> None:
        stage = Stage(hang={"model"})
        async with opened(stage) as engine:
            trace = await engine.run(AsyncTask(prompt="x"), **{**agent(stage), "harness": Parallel(stage)})
        assert trace.ok, trace.errors
        assert trace.num_turns == 8
        assert stage.cancelled == ["model"]

    host(main)


def test_a_refused_turn_is_an_exception_in_the_harness(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            async with engine.rollout(
                AsyncTask(), has_user=True, limits=RolloutLimits(max_turns=1), **agent(stage)
            ) as rollout:
                await rollout.open()
                assert await rollout.step("one")
                assert not await rollout.step("two")
            assert rollout.trace.stop_condition == "max_turns"
            assert rollout.ok

    host(main)


class Shell(AsyncHarness):
    """On asyncio, with the programs of a runtime that lives on trio."""

    async def setup(self, runtime: Runtime) -> None:
        assert isinstance(runtime, LocalRuntime)
        await runtime.write("question", "2 + 2")
        ran = await runtime.run(["sh", "-c", "cat question"])
        assert ran.stdout == "2 + 2"
        one, other = await asyncio.gather(runtime.read("question"), runtime.run(["true"]))
        assert (one, other.exit_code) == (b"2 + 2", 0)
        hanging = asyncio.create_task(runtime.run(["sleep", "1000"]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await hanging
        assert await runtime.kill()
        self.workspace = runtime.workspace

    async def cleanup(self, trace: Trace, runtime: Runtime) -> None:
        assert isinstance(runtime, LocalRuntime)
        assert runtime.workspace == self.workspace


def test_a_harness_on_asyncio_uses_a_runtime_on_trio(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            trace = await engine.run(AsyncTask(prompt="x"), harness=Shell(stage), model=AsyncModel(stage))
        assert trace.ok, trace.errors

    host(main)


class Mixed(LocalRuntime):
    """Half of it on asyncio."""

    notes: Mapping[str, int]

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.reads: list[str] = []

    async def read(self, path: str) -> bytes:
        assert asyncio.current_task() is not None
        await asyncio.sleep(0)
        self.reads.append(path)
        return await aio.on_trio(super().read, path)


def test_a_harness_on_trio_uses_a_runtime_of_which_half_is_on_asyncio(host: Host) -> None:
    @frozen(kw_only=True)
    class Reads(Task):
        @reward
        async def wrote(self, runtime: Runtime) -> float:
            return float(await runtime.read("out") == b"4")

    async def main() -> None:
        made: list[Mixed] = []

        def box(name: str) -> Mixed:
            made.append(Mixed(name))
            return made[-1]

        async with aio.open_engine() as engine:
            trace = await engine.run(
                Reads(prompt="x"),
                harness=ProgramHarness(["sh", "-c", "printf 4 > out"]),
                model=ScriptedModel([]),
                runtime=box,
            )
        assert trace.ok, trace.errors
        assert trace.reward == 1.0
        assert made[0].reads == ["out"]

    host(main)


def test_a_harness_on_trio_uses_a_runtime_on_asyncio(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with aio.open_engine(observers=[Observer(stage)]) as engine:
            trace = await engine.run(
                AsyncTask(prompt="x"), **{**agent(stage), "harness": ProgramHarness(["echo", "4"])}
            )
        assert trace.ok, trace.errors
        assert "runtime.run" in stage.called
        assert released(stage)

    host(main)


class OnTrio(ScriptedModel):
    """The embedder's, written for trio."""

    runs_on = "trio"

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        await trio.lowlevel.checkpoint()
        return await super().respond(request, sampling)


class Wraps(Harness):
    """On asyncio, round a harness of the package's."""

    def __init__(self, inner: Harness) -> None:
        self.inner = inner

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        await asyncio.sleep(0)
        return await aio.on_trio(self.inner.open_session, exchange)


def test_what_is_written_for_trio_says_so_and_what_wraps_it_crosses(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            trace = await engine.run(AsyncTask(prompt="x"), harness=Wraps(ChatHarness()), model=OnTrio(["4"]))
        assert trace.ok, trace.errors
        assert trace.reward == 1.0

    host(main)


class WrongModel(ScriptedModel):
    """Forgets to say that it is written for trio."""

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        await trio.lowlevel.checkpoint()
        return await super().respond(request, sampling)


def test_what_forgets_to_say_so_fails_with_the_way_out(host: Host) -> None:
    async def main() -> None:
        stage = Stage(hang={"model"})
        async with opened(stage) as engine:
            harness = AsyncHarness(stage)

            async def broken(exchange: Exchange) -> HarnessSession:
                return await ChatHarness().open_session(exchange)

            harness.open_session = broken  # type: ignore[method-assign]
            failed = await engine.run(AsyncTask(prompt="x"), harness=ChatHarness(), model=WrongModel(["4"]))
        assert failed.errors[0].type == "ProviderError"
        assert failed.stop_condition == "error"

    host(main)


def test_a_tool_of_the_embedders_runs_on_asyncio(host: Host) -> None:
    async def add(left: int, right: int) -> int:
        """Add."""
        assert asyncio.current_task() is not None
        await asyncio.sleep(0)
        return left + right

    async def script(request: Request) -> Any:
        await asyncio.sleep(0)
        if len(request.messages) == 1:
            call = ToolCall(id="1", name="add", arguments='{"left": 2, "right": 2}')
            return Response(
                message=AssistantMessage("", tool_calls=(call,)), usage=Usage(prompt_tokens=1, completion_tokens=1)
            )
        return f"it is {request.messages[-1].content}"

    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            trace = await engine.run(
                AsyncTask(prompt="x"), harness=ChatHarness(tools=[add]), model=ScriptedModel(script)
            )
        assert trace.ok, trace.errors
        assert trace.reward == 1.0

    host(main)


def test_a_hook_may_run_a_rollout_of_its_own_in_the_same_box(host: Host) -> None:
    engines: list[aio.Engine] = []

    @frozen(kw_only=True)
    class Outer(Task):
        @reward
        async def graded(self, trace: Trace, runtime: Runtime) -> float:
            inner = await engines[0].run(
                AsyncTask(prompt="grade it"),
                harness=ChatHarness(),
                model=ScriptedModel(["4"]),
                runtime=runtime,
            )
            return inner.reward or 0.0

    async def main() -> None:
        stage = Stage()
        observer = Observer(stage)
        async with aio.open_engine(gateway=False, observers=[observer]) as engine:
            engines.append(engine)
            trace = await engine.run(Outer(prompt="x"), harness=ChatHarness(), model=ScriptedModel(["hm"]))
        assert trace.ok, trace.errors
        assert trace.reward == 1.0
        inner = observer.finished[0]
        assert inner.agent.runtime is not None
        assert inner.agent.runtime["borrowed"] is True

    host(main)


def test_a_hook_that_fails_or_is_cancelled_by_a_stranger_fails_the_rollout(host: Host) -> None:
    @frozen(kw_only=True)
    class Cancels(AsyncTask):
        @reward
        async def correct(self, trace: Trace) -> float:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
            raise AssertionError

    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            trace = await engine.run(Cancels(prompt="x"), **agent(stage))
        assert not trace.ok
        assert trace.errors[0].type == "TaskError"
        assert "CancelledByHost" in trace.errors[0].message
        assert released(stage)

    host(main)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_hook_reaches_the_caller_after_the_release(host: Host, kind: type[BaseException]) -> None:
    @frozen(kw_only=True)
    class Interrupts(AsyncTask):
        @reward
        async def correct(self, trace: Trace) -> float:
            await asyncio.sleep(0)
            raise kind

    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            with pytest.raises(kind):
                await engine.run(Interrupts(prompt="x"), **agent(stage))
            assert released(stage)
            assert (await engine.run(AsyncTask(prompt="x"), **agent(stage))).ok

    host(main)


class Streaming(AsyncModel):
    """On asyncio, tells its answer in pieces."""

    async def stream_response(self, request: Request, sampling: Sampling, deliver: Deliver) -> Response:
        for piece in ("4", "2"):
            await asyncio.sleep(0)
            await deliver(Delta(content=piece))
        return reply("42")


class Listening(AsyncHarness):
    """On asyncio, takes the pieces of each answer there."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.pieces: list[str] = []

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        async def deliver(delta: Delta) -> None:
            assert asyncio.current_task() is not None
            await asyncio.sleep(0)
            self.pieces.append(delta.content)

        class Session(HarnessSession):
            async def run(self, messages: Sequence[Message] | None) -> None:
                await exchange.respond(Request(messages=exchange.prompt), deliver=deliver)

        return Session()


@pytest.mark.parametrize(("kind", "pieces"), [(Streaming, ["4", "2"]), (AsyncModel, [])])
def test_pieces_of_an_answer_cross_from_model_to_harness(kind: type[AsyncModel], pieces: list[str], host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        harness = Listening(stage)
        async with opened(stage) as engine:
            trace = await engine.run(AsyncTask(prompt="x"), harness=harness, model=kind(stage))
        assert trace.ok, trace.errors
        assert trace.reward == 1.0
        assert harness.pieces == pieces

    host(main)
