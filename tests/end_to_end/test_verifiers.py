"""The field's reader loads what a real run wrote (L84). Skips, saying so, without an interpreter that has verifiers."""

import json
import os
from pathlib import Path

import pytest
import trio

from rollout_fsm import Trace, open_engine
from rollout_fsm.example import EXAMPLE_LIMITS, example_harness, example_model, example_tasks

VARIABLE = "ROLLOUT_FSM_VERIFIERS_PYTHON"

READER = """
import json, sys
from verifiers.v1.trace import WireTrace

for line in sys.stdin.buffer:
    trace = WireTrace.model_validate_json(line)
    there = {
        "id": trace.id,
        "turns": trace.num_turns,
        "tokens": [trace.num_input_tokens, trace.num_output_tokens, trace.num_total_tokens],
        "reward": trace.reward,
        "stop": trace.stop_condition,
        "errors": [error.type for error in trace.errors],
        "branches": [[message.role for message in branch.messages] for branch in trace.branches],
        "name": trace.task.data.model_extra["answer"],
        "calls": [[call.name for call in node.message.tool_calls or []] for node in trace.nodes if node.sampled],
    }
    sys.stdout.write(json.dumps(there) + "\\n")
"""


def here(trace: Trace) -> dict[str, object]:
    """The same of a trace, as it is read here."""
    return {
        "id": trace.id,
        "turns": trace.num_turns,
        "tokens": [trace.num_input_tokens, trace.num_output_tokens, trace.num_total_tokens],
        "reward": trace.reward or 0.0,  # the other reader has no word for "not measured"
        "stop": trace.stop_condition,
        "errors": [error.type for error in trace.errors],
        "branches": [[node.message.role for node in branch] for branch in trace.branches],
        "name": trace.task.data["answer"],
        "calls": [
            [call.name for call in getattr(node.message, "tool_calls", ())] for node in trace.nodes if node.sampled
        ],
    }


@pytest.mark.real_time
async def test_the_traces_of_a_real_run_are_loaded_with_the_same_sums(tmp_path: Path) -> None:
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"{VARIABLE} names no interpreter with verifiers 0.3.1")
    async with (
        open_engine(output_dir=tmp_path / "run") as engine,
        engine.run_all(
            example_tasks(),
            harness=example_harness(),
            model=example_model(),
            limits=EXAMPLE_LIMITS,
            max_concurrent=16,
        ) as traces,
    ):
        finished = {trace.id: trace async for trace in traces}
    content = (tmp_path / "run" / "traces.jsonl").read_bytes()
    done = await trio.run_process([python, "-c", READER], stdin=content, capture_stdout=True)
    there = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(there) == len(finished) == 20
    for read in there:
        assert read == here(finished[read["id"]])
