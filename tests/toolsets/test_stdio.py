"""Tool servers that are programs: started with what they need, ended with all that they started."""

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp.shared.exceptions import MCPError

from rollout_fsm import StdioToolset, ToolsetError
from rollout_fsm.errors import leaves
from rollout_fsm.tool_client import http_tool_client
from rollout_fsm.toolsets import program
from tests.toolsets.rollouts import said, served, servers

pytestmark = pytest.mark.real_time

SERVER = Path(__file__).with_name("stdio_server.py")


def stdio(*modes: str, **settings: Any) -> StdioToolset:
    return StdioToolset([sys.executable, "-I", str(SERVER), *modes], name="tools", **settings)


def alive(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_its_tools_are_listed_and_called_and_its_errors_passed_on() -> None:
    async with served(stdio("noisy")) as client:
        assert {"echo", "fail"} <= {listed.name for listed in await client.list_tools()}
        assert await said(client, "echo", text="hällo") == "hällo"
        assert await said(client, "fail") == "failed: it failed"


async def test_what_no_json_can_carry_is_a_question_mark_or_an_error_and_the_connection_goes_on() -> None:
    async with served(stdio()) as client:
        assert await said(client, "echo", text="half \ud800 a character") == "half ? a character"
        with pytest.raises(ValueError, match="Infinity is not a number that JSON has"):
            await said(client, "echo", text=float("inf"))
        assert await said(client, "echo", text="still here") == "still here"


DEEP = '{"a":' * 50_000 + "1" + "}" * 50_000


@pytest.mark.parametrize(
    "line",
    [
        r'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\ud800"}]}}',
        f'{{"jsonrpc": "2.0", "id": %d, "result": {DEEP}}}',
        f'{{"result": {DEEP}, "jsonrpc": "2.0", "id": %d}}',
        f'{{"id": %d, "jsonrpc": "2.0", "error": {DEEP}}}',
        '{"jsonrpc":"2.0","id":%d,"result":"no object"}',
        '{"jsonrpc":"2.0","id":%d,"result":',
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_call_at_once(line: str) -> None:
    async with served(stdio(tool_timeout=None)) as client:
        answer = await said(client, "raw", line=line)
        assert answer.startswith("failed: Error: MCPError: tool server 'tools' gave no valid answer: {")
        assert len(answer) < 300
        assert await said(client, "echo", text="still here") == "still here"


@pytest.mark.parametrize("line", ['{"jsonrpc":"2.0","id":%d,"method":', '{"a":{"id":%d,"result":1}', "id %d: result"])
async def test_a_line_of_which_nobody_knows_what_it_answers_is_logged(
    line: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(stdio(tool_timeout=0.05)) as client:
        assert (await said(client, "raw", line=line)).startswith("failed: Error: raw did not answer within")
    (record,) = [record for record in caplog.records if record.name == "rollout_fsm.toolsets"]
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("tool server 'tools' wrote a line that is no message: b'")
    assert line.partition("%d")[0] in record.getMessage()


async def test_one_that_writes_nothing_else_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with served(stdio(tool_timeout=None)) as client:
        await said(client, "raw", line="chatter\n" * 50 + '{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}')
    warned = [record for record in caplog.records if record.name == "rollout_fsm.toolsets"]
    assert [record.levelname for record in warned if record.levelname == "WARNING"] == ["WARNING"] * program.LOUD


async def test_it_has_the_variables_that_are_allowed_and_those_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    async with served(stdio(env={"LEVEL": "3"})) as client:
        seen = {name: await said(client, "environment", name=name) for name in ("OPENAI_API_KEY", "LANG", "LEVEL")}
    assert seen == {"OPENAI_API_KEY": "none", "LANG": "C.UTF-8", "LEVEL": "3"}


async def test_it_runs_in_the_folder_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER.read_text())
    toolset = StdioToolset(f"{sys.executable} server.py", cwd=tmp_path)
    assert toolset.name == os.path.basename(sys.executable)
    async with served(toolset) as client:
        assert await said(client, "echo", text="here") == "here"


@pytest.mark.parametrize("modes", [("child", "daemon"), ("deaf", "child"), ("deaf", "stubborn", "child", "daemon")])
async def test_nothing_that_it_started_is_left_when_it_is_stopped(
    modes: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "FAREWELL", 0.2)
    monkeypatch.setattr(program, "GRACE", 0.2)
    async with servers() as engine:
        server = await engine.serve(stdio(*modes))
        async with http_tool_client(server.url) as client:
            pids = json.loads(await said(client, "pids"))
        assert {alive(pid) for pid in pids} == {True}
        await server.stop()
        assert {alive(pid) for pid in pids} == {False}


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (
            [sys.executable, "-I", str(SERVER), "dies"],
            "tool server 'tools' ended by itself with exit status 3; its standard error: no index was found",
        ),
        (["sh", "-c", "kill -9 $$"], "tool server 'tools' ended by itself with exit status -9"),
        (["no-such-program"], "tool server 'tools' cannot be started: FileNotFoundError: .* 'no-such-program'"),
        (["/"], "tool server 'tools' cannot be started: PermissionError: "),
    ],
)
async def test_one_that_does_not_start_says_why(argv: Sequence[str], why: str) -> None:
    async with servers() as engine:
        with pytest.raises((ToolsetError, ExceptionGroup)) as raised:
            await engine.serve(StdioToolset(argv, name="tools"))
    (error,) = leaves(raised.value)
    assert isinstance(error, ToolsetError)
    assert re.search(why, str(error))


async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    mute = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    async with servers() as engine:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(engine.serve, StdioToolset([sys.executable, "-I", "-c", mute]))
                pid = int(await trio.to_thread.run_sync((tmp_path / "pid").read_text))
                assert alive(pid)
                scope.cancel()
        assert not alive(pid)


async def test_one_that_ends_by_itself_is_an_error_for_the_model_and_for_who_stops_it() -> None:
    async with servers() as engine:
        server = await engine.serve(stdio())
        async with http_tool_client(server.url) as client:
            for name in ("exit", "echo"):
                with pytest.raises(MCPError):
                    await client.call_tool(name, {"text": "anybody?"})
        with pytest.raises(ExceptionGroup) as raised:
            await server.stop()
    assert [str(error) for error in leaves(raised.value)] == [
        "tool server 'tools' ended by itself with exit status 1; its standard error: asked to exit"
    ]


async def test_one_that_does_not_answer_is_bounded_and_a_cancellation_reaches_it() -> None:
    async with served(stdio(tool_timeout=0.05)) as client:
        assert await said(client, "wait") == "failed: Error: wait did not answer within 0.05 s and was cancelled"
        assert await said(client, "cancelled") == "1"
        assert await said(client, "echo", text="still here") == "still here"


@pytest.mark.parametrize("argv", ["", [], [1], ["x", None]])
def test_a_command_line_that_is_none_is_refused(argv: Any) -> None:
    with pytest.raises(ValueError, match="the command line of a tool server is a text or a list of texts"):
        StdioToolset(argv)


async def test_one_that_is_written_with_the_official_package_is_spoken_to() -> None:
    official = SERVER.with_name("mcp_stdio_server.py")
    async with served(StdioToolset([sys.executable, "-I", str(official)], name="official")) as client:
        (listed,) = await client.list_tools()
        assert (listed.name, listed.description) == ("add", "Add two numbers.")
        assert await said(client, "add", left=2, right=3) == "5"
        assert (await said(client, "add", left="two", right=3)).startswith("failed: ")
