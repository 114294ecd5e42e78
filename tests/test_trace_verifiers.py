"""The field's reader loads what is written here (L84). Skips, saying so, without an interpreter that has verifiers."""

import json
import os
import subprocess
from typing import Any

import pytest

from rollout_fsm.messages import UserMessage
from rollout_fsm.trace import AgentInfo, RunInfo, TaskInfo, Trace
from rollout_fsm.trace_json import trace_from_json, trace_to_json
from tests.test_trace import called
from tests.test_trace_json import full_trace

VARIABLE = "ROLLOUT_FSM_VERIFIERS_PYTHON"

READER = """
import json, sys
from verifiers.v1.trace import WireTrace

trace = WireTrace.model_validate_json(sys.stdin.buffer.read())
sampled = [node for node in trace.nodes if node.sampled]
json.dump(
    {
        "num_turns": trace.num_turns,
        "num_input_tokens": trace.num_input_tokens,
        "num_output_tokens": trace.num_output_tokens,
        "num_total_tokens": trace.num_total_tokens,
        "usage": trace.usage and trace.usage.model_dump(),
        "reward": trace.reward,
        "branches": [[message.role for message in branch.messages] for branch in trace.branches],
        "model_time": trace.timing.agent.model.duration,
        "row": trace.task.data.model_extra,
        "tool_calls": [[call.name for call in node.message.tool_calls or []] for node in sampled],
        "written": trace.model_dump(mode="json", exclude_none=True),
    },
    sys.stdout,
)
"""


@pytest.fixture(scope="module")
def python() -> str:
    found = os.environ.get(VARIABLE)
    if not found:
        pytest.skip(f"{VARIABLE} names no interpreter with verifiers 0.3.1")
    return found


def read_there(python: str, trace: Trace) -> dict[str, Any]:
    done = subprocess.run([python, "-c", READER], input=trace_to_json(trace).encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def readable() -> Trace:
    """The full trace, less what the other reader does not have: parts of other kinds, and an image's detail."""
    trace = full_trace()
    content = trace.nodes[1].message.content
    assert isinstance(content, tuple)
    data = json.loads(trace_to_json(trace))
    del data["nodes"][1]["message"]["content"][-2:]
    return trace_from_json(json.dumps(data))


def test_a_full_trace_is_loaded_with_the_same_sums(python: str) -> None:
    trace = readable()
    there = read_there(python, trace)
    assert there["num_turns"] == trace.num_turns == 1
    assert there["num_input_tokens"] == trace.num_input_tokens
    assert there["num_output_tokens"] == trace.num_output_tokens
    assert there["num_total_tokens"] == trace.num_total_tokens
    assert there["reward"] == trace.reward
    assert there["branches"] == [["system", "user", "tool", "assistant"]]
    assert there["row"] == {"answer": "4"}
    assert there["tool_calls"] == [["add"]]


def test_branches_and_parallel_calls_add_up_alike(python: str) -> None:
    trace = Trace(id="t", task=TaskInfo(type="Sum"), agent=AgentInfo(), run=RunInfo(id="r"))
    ask, more = UserMessage("go"), UserMessage("more")
    first = called(trace, [ask], "a", (100, 50))
    called(trace, [ask, first, more], "b", (160, 10))
    called(trace, [ask, first, more], "c", (160, 7))
    called(trace, [UserMessage("else")], "d", (30, 3))
    there = read_there(python, trace)  # its output tokens count a shared reply once for each branch, so not here
    assert there["num_turns"] == trace.num_turns
    assert there["num_input_tokens"] == trace.num_input_tokens
    assert there["num_total_tokens"] == trace.num_total_tokens
    assert len(there["branches"]) == len(trace.branches)


def test_what_the_other_program_writes_is_read_back_with_everything_that_it_added(python: str) -> None:
    trace = readable()
    written = read_there(python, trace)["written"]
    again = trace_from_json(json.dumps(written))
    assert [node.message for node in again.nodes] == [node.message for node in trace.nodes]
    assert (again.id, again.rewards, again.metrics) == (trace.id, trace.rewards, trace.metrics)
    assert ("verifiers",) in again.unknown
    assert json.loads(trace_to_json(again))["verifiers"] == written["verifiers"]
