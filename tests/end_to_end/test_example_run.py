"""The main job as it is: twenty tasks, four rollouts each, sixteen at once, through processes, gateway and file (L73,
L80-L84)."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import define, field

from rollout_fsm import Harness, Trace, check_trace, open_engine, read_traces, trace_from_json, trace_to_json
from rollout_fsm.exact_json import FormatError
from rollout_fsm.example import EXAMPLE_LIMITS, example_model, example_tasks
from rollout_fsm.trace import TransitionRecord
from tests.end_to_end.agents import HARNESSES

pytestmark = pytest.mark.real_time

TASKS, EACH, AT_ONCE = 20, 4, 16


@define(eq=False)
class Census:
    """Counts the rollouts that hold something."""

    alive: set[str] = field(factory=set)
    most: int = 0
    finished: Counter[str] = field(factory=Counter)

    def on_transition(self, trace: Trace, transition: TransitionRecord) -> None:
        self.alive.add(trace.id)
        self.most = max(self.most, len(self.alive))

    def on_finished(self, trace: Trace) -> None:
        self.alive.remove(trace.id)
        self.finished[trace.id] += 1


def no_fault(number: int, fault: FormatError) -> None:
    pytest.fail(f"line {number}: {fault}")


def why(trace: Trace) -> str | None:
    return trace.errors[0].type if trace.errors else trace.stop_condition


@pytest.mark.parametrize("harness", HARNESSES.values(), ids=HARNESSES)
async def test_a_run_of_eighty_rollouts_ends_with_eighty_whole_traces(
    harness: Callable[[], Harness], tmp_path: Path
) -> None:
    census, folder = Census(), tmp_path / "run"
    tasks = example_tasks()
    async with (
        open_engine(output_dir=folder, observers=[census]) as engine,
        engine.run_all(
            tasks,
            harness=harness(),
            model=example_model(),
            limits=EXAMPLE_LIMITS,
            rollouts_per_task=EACH,
            max_concurrent=AT_ONCE,
        ) as traces,
    ):
        finished = [trace async for trace in traces]

    assert len({trace.id for trace in finished}) == len(finished) == TASKS * EACH
    assert engine.lost == ()
    assert (census.most, census.alive) == (AT_ONCE, set())
    assert census.finished == Counter({trace.id: 1 for trace in finished})

    assert [fault for trace in finished for fault in check_trace(trace)] == []
    assert all(trace.is_completed and trace.stop_condition for trace in finished)
    assert Counter(why(trace) for trace in finished) == {
        "agent_completed": 64,
        "gave_up": EACH,
        "max_turns": EACH,
        "context_length": EACH,
        "ProviderError": EACH,
    }
    groups = {(trace.group and trace.group.id, trace.group and trace.group.index) for trace in finished}
    assert groups == {(task.key, index) for task in tasks for index in range(EACH)}

    content = (folder / "traces.jsonl").read_bytes()
    assert content.endswith(b"\n")
    assert b"\r" not in content
    lines = content.splitlines()
    assert len(lines) == TASKS * EACH
    assert all(isinstance(json.loads(line), dict) for line in lines)
    written = {trace.id: trace for trace in read_traces(folder / "traces.jsonl", on_fault=no_fault)}
    assert written == {trace.id: trace for trace in finished}
    assert all(trace_from_json(trace_to_json(trace)) == trace for trace in finished)


EVERY_KIND = ("product", "remainder", "brackets", "zero", "two-sums", "capital", "search", "outage", "archive")
"""Tasks that end in every way there is."""


async def test_a_program_and_a_harness_in_process_leave_the_same_record() -> None:
    def record(trace: Trace) -> object:
        signals = {name: reward and reward.value for name, reward in trace.rewards.items()}
        said = [(node.parent, node.message.role, node.message.text, node.sampled) for node in trace.nodes]
        ending = (trace.ok, trace.stop_condition, trace.num_turns, trace.num_total_tokens)
        return ending, signals, trace.metrics, said, [(taken.trigger, taken.target) for taken in trace.transitions]

    tasks = [task for task in example_tasks() if task.name in EVERY_KIND]
    records: list[dict[str, object]] = []
    for harness in HARNESSES.values():
        async with (
            open_engine() as engine,
            engine.run_all(tasks, harness=harness(), model=example_model(), limits=EXAMPLE_LIMITS) as traces,
        ):
            records.append({str(trace.task.data["name"]): record(trace) async for trace in traces})
    program, in_process = records
    assert len(program) == len(EVERY_KIND)
    assert program == in_process
