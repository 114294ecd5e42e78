"""What is written for asyncio is tested where it lives."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from rollout_fsm.aio import on_trio
from rollout_fsm.errors import ProviderError
from rollout_fsm.harness import Exchange, Harness, HarnessSession
from rollout_fsm.messages import AssistantMessage, Message, Request, Response, Sampling, SystemMessage, Usage
from rollout_fsm.model import Model
from rollout_fsm.runtime import ProgramResult, Route, Runtime
from rollout_fsm.runtimes import LocalRuntime
from rollout_fsm.testing import HarnessContract, ModelContract, RuntimeContract, ToolsetContract
from rollout_fsm.toolset import RolloutContext, Toolset, tool
from tests.testing.running import failures, said_in_full


class Box(Runtime):
    """A runtime for asyncio, around one for trio."""

    def __init__(self, name: str) -> None:
        self.inner = LocalRuntime(name, grace=0.1)
        self.name = name

    @property
    def stopped(self) -> bool:
        return self.inner.stopped

    async def start(self) -> None:
        await asyncio.sleep(0)
        await on_trio(self.inner.start)
        await asyncio.sleep(0)

    async def stop(self) -> None:
        await on_trio(self.inner.stop)

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        await asyncio.sleep(0)
        return await on_trio(self.inner.run, argv, env=env, input=input, timeout=timeout)

    async def alive(self) -> bool:
        return await on_trio(self.inner.alive)

    async def kill(self) -> bool:
        return await on_trio(self.inner.kill)

    async def read(self, path: str) -> bytes:
        return await on_trio(self.inner.read, path)

    async def write(self, path: str, data: bytes | str) -> None:
        await on_trio(self.inner.write, path, data)

    async def prepare_execution(self, routes: Sequence[Route]) -> None:
        await on_trio(self.inner.prepare_execution, routes)


class TestRuntime(RuntimeContract):
    runs_on = "asyncio"
    has_leases = False
    isolated = False
    points = 2

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        self.folder = tmp_path

    def make(self, name: str) -> Box:
        return Box(name)

    def leftovers(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]


class Echo(Model):
    """A model for asyncio, which answers one call at a time."""

    name = "echo"

    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        async with self.place():
            await asyncio.sleep(0)
            words = request.messages[-1].text.split()[: sampling.max_tokens]
            usage = Usage(prompt_tokens=9, completion_tokens=len(words))
            return Response(message=AssistantMessage(" ".join(words)), usage=usage)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        async with self.lock:
            yield


class TestModel(ModelContract):
    runs_on = "asyncio"
    kind: ClassVar[type[Echo]] = Echo

    def make(self) -> Echo:
        return self.kind()

    def answers(self, request: Request, response: Response) -> bool:
        return response.message.text == request.messages[-1].text


class KeepsItsPlace(Echo):
    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        await self.lock.acquire()
        yield
        self.lock.release()


class TurnsCancellations(Echo):
    async def respond(self, request: Request, sampling: Sampling) -> Response:
        try:
            return await super().respond(request, sampling)
        except asyncio.CancelledError:
            raise ProviderError("the call was interrupted") from None


@pytest.mark.parametrize("broken", [KeepsItsPlace, TurnsCancellations])
def test_a_cancellation_comes_at_every_step_on_asyncio(broken: type[Echo]) -> None:
    class Broken(TestModel):
        kind = broken
        patience = 0.2

    found = failures(Broken)
    assert sorted(found) == [
        "test_a_call_that_is_cancelled_anywhere_harms_no_other",
        "test_a_stream_that_is_cancelled_anywhere_harms_no_other",
    ]
    assert all(map(said_in_full, found.values()))


class Talker(Harness):
    """A harness for asyncio."""

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        await asyncio.sleep(0)
        return Talk(exchange)


class Talk(HarnessSession):
    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.said: list[Message] = [SystemMessage(exchange.system_prompt or ""), *exchange.prompt]

    async def run(self, messages: Sequence[Message] | None) -> None:
        self.said += messages or ()
        await asyncio.sleep(0)
        response = await self.exchange.respond(Request(messages=self.said))
        self.said.append(response.message)


class TestHarness(HarnessContract):
    runs_on = "asyncio"
    uses_tools = False
    points = 10

    def make(self) -> Talker:
        return Talker()


class Tools(Toolset):
    """A tool server whose tools are for asyncio."""

    def __init__(self) -> None:
        self.stopped = False

    @tool
    async def note(self, text: str, state: dict[str, object]) -> str:
        """Keep a note."""
        await asyncio.sleep(0)
        state["note"] = text
        return "kept"

    @tool
    async def wait(self) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    async def start(self, context: RolloutContext) -> str:
        await asyncio.sleep(0)
        return await context.serve(self)


class TestToolset(ToolsetContract):
    runs_on = "asyncio"
    works = "note", {"text": "plum"}
    result = "kept"
    waits = "wait", {}
    points = 4

    def make(self) -> Tools:
        return Tools()
