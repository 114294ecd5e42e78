"""The built-in example in the isolated runtime, with its tool server, as a user runs it."""

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from rollout_fsm import BubblewrapRuntime, ToolMessage, check_trace, open_engine, read_traces
from rollout_fsm.example import EXAMPLE_LIMITS, example_harness, example_model, example_tasks
from rollout_fsm.runtime import ProgramResult
from tests.cli.process import running
from tests.runtimes.bubblewrap.conftest import require_bubblewrap

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("bubblewrap")]

PROBE = """
import os, socket, sys
for host, port in ((sys.argv[1], int(sys.argv[2])), ("169.254.169.254", 80), ("192.0.2.1", 443)):
    try:
        socket.create_connection((host, port), 5)
        print("reached", host)
    except OSError as error:
        print("cut off from", host)
print(sorted(name for name in os.environ if "SECRET" in name or "HOST" in name))
"""


@pytest.fixture
def bubblewrap() -> None:
    require_bubblewrap()


async def test_the_command_line_runs_it_in_boxes_and_the_traces_show_tool_calls_and_results(tmp_path: Path) -> None:
    async with running(tmp_path, ["run", "--runtime", "bubblewrap", "-n", "8", "-o", "out"]) as program:
        assert await program.ended() == 0, program.err.text
    traces = list(read_traces(tmp_path / "out" / "traces.jsonl"))
    assert len(traces) == 8
    for trace in traces:
        assert check_trace(trace) == []
        assert trace.ok, trace.errors
        assert trace.agent.config["harness"]["runtime"] == "BubblewrapRuntime"  # type: ignore[index, call-overload]
    results = {trace.task.data["name"]: said for trace in traces if (said := told(trace.nodes))}
    assert results["product"] == ["391"]
    assert results["brackets"] == ["Error: ValueError: not an arithmetic expression: '(12 - 5) * (3 + 6'", "63"]
    assert len(results) == 7


def told(nodes: Any) -> list[str]:
    return [node.message.text for node in nodes if isinstance(node.message, ToolMessage)]


async def test_its_harness_reaches_its_model_and_its_tools_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "nobody's business")
    seen: list[str] = []

    with socket.create_server(("127.0.0.1", 0)) as service:
        host, port = service.getsockname()

        class Probing(BubblewrapRuntime):
            async def run(self, *args: Any, **settings: Any) -> ProgramResult:
                result = await super().run(*args, **settings)
                probe = [sys.executable, "-I", "-c", PROBE, host, str(port)]
                seen.extend((await super().run(probe)).stdout.splitlines())
                return result

        async with open_engine() as engine:
            trace = await engine.run(
                example_tasks()[0],
                harness=example_harness(),
                model=example_model(),
                runtime=Probing,
                limits=EXAMPLE_LIMITS,
            )
    assert (trace.ok, trace.reward, told(trace.nodes)) == (True, 1.1, ["391"])
    assert seen == ["cut off from 127.0.0.1", "cut off from 169.254.169.254", "cut off from 192.0.2.1", "[]"]
