"""Our own implementations keep their contracts."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import trio

from rollout_fsm import (
    ChatHarness,
    OpenAIModel,
    ProgramHarness,
    Request,
    Response,
    ScriptedModel,
    SharedToolset,
    StdioToolset,
    Toolset,
    UserMessage,
)
from rollout_fsm.runtimes import LocalRuntime
from rollout_fsm.testing import HarnessContract, ModelContract, RuntimeContract, ToolsetContract
from rollout_fsm.toolset import tool
from tests.runtimes.boxes import children
from tests.testing.echo_server import CONTEXT, echoing

STDIO_SERVER = str(Path(__file__).parents[1] / "toolsets" / "stdio_server.py")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture(scope="module", autouse=True)
def endpoint() -> Iterator[None]:
    with echoing() as url:
        TestOpenAIModel.url = url
        yield


class TestLocalRuntime(RuntimeContract):
    isolated = False
    points = 4

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self, name: str) -> LocalRuntime:
        return LocalRuntime(name, grace=0.1)

    def make_failing(self, name: str) -> LocalRuntime:
        runtime = LocalRuntime(name)
        (self.folder / Path(str(runtime.lease["workspace"])).name).write_text("in the way")
        return runtime

    def leftovers(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]


class TestScriptedModel(ModelContract):
    limits_tokens = False

    def make(self) -> ScriptedModel:
        return ScriptedModel(lambda request: request.messages[-1].text)

    def answers(self, request: Request, response: Response) -> bool:
        return response.message.text == request.messages[-1].text


class TestOpenAIModel(ModelContract):
    url: ClassVar[str]
    points = 6

    def make(self) -> OpenAIModel:
        return OpenAIModel("echo", base_url=f"{self.url}/v1", api_key_var=None)

    def make_failing(self, status: int | None) -> OpenAIModel:
        base_url = "http://127.0.0.1:9/v1" if status is None else f"{self.url}/status/{status}/v1"
        return OpenAIModel("echo", base_url=base_url, api_key_var=None)

    def overlong(self) -> Request:
        return Request(messages=[UserMessage("x" * (CONTEXT + 1))])

    def answers(self, request: Request, response: Response) -> bool:
        return response.message.text == request.messages[-1].text


class TestChatHarness(HarnessContract):
    def make(self) -> ChatHarness:
        return ChatHarness()


AGENT = """
import json, os, sys, urllib.request
with open(sys.argv[1]) as file:
    messages = json.load(file)
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps({"model": "m", "messages": messages}).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
)
urllib.request.urlopen(request).read()
"""


class TestProgramHarness(HarnessContract):
    uses_tools = False
    points = 4

    def make(self) -> ProgramHarness:
        argv = [sys.executable, "-ISc", AGENT, "{conversation}"]
        return ProgramHarness(argv, name="agent", multi_turn=True)


class Notes(Toolset):
    @tool
    def note(self, text: str, state: dict[str, object]) -> str:
        """Keep a note."""
        state["note"] = text
        return "kept"

    @tool
    def recall(self, state: dict[str, object]) -> str:
        """The note."""
        return str(state.get("note", "nothing"))

    @tool
    def fail(self) -> str:
        """Fail."""
        raise ValueError("no")

    @tool
    async def wait(self) -> None:
        """Wait for ever."""
        await trio.sleep_forever()


class TestToolset(ToolsetContract):
    works = "note", {"text": "hello"}
    result = "kept"
    fails = "fail", {}
    waits = "wait", {}
    writes = "note", {"text": "plum"}
    reads = "recall", {}
    points = 8

    def make(self) -> Toolset:
        return Notes()


class TestSharedToolset(TestToolset):
    @pytest.fixture(autouse=True)
    def _shared(self) -> None:
        self.shared = SharedToolset(Notes())

    def make(self) -> Toolset:
        return self.shared


class TestStdioToolset(ToolsetContract):
    works = "echo", {"text": "plum"}
    result = "plum"
    fails = "fail", {}
    waits = "wait", {}
    points = 3

    def make(self) -> StdioToolset:
        return StdioToolset([sys.executable, "-IS", STDIO_SERVER])

    def make_failing(self) -> StdioToolset:
        return StdioToolset([sys.executable, "-IS", STDIO_SERVER, "dies"])

    def leftovers(self) -> list[str]:
        return [str(pid) for pid in children()]
