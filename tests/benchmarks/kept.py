"""What it costs that nothing is lost: rollouts with a folder and without, and the traces that the journal keeps of long
ones.

`python -m tests.benchmarks.kept [ROLLOUTS]` (600 unless said otherwise). Everything is in this process: a scripted
model, a harness in process, a box in which no program runs. Each way is run three times, in turn.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import trio
from attrs import frozen

from rollout_fsm import (
    ChatHarness,
    Harness,
    LocalRuntime,
    Request,
    Response,
    ScriptedModel,
    Task,
    Trace,
    Usage,
    open_engine,
    reward,
    trace_to_json,
)
from rollout_fsm.traces_file import TracesFile
from tests.benchmarks.scripted import Talker
from tests.benchmarks.waiting import say

RUNS = 3
AT_ONCE = 64
TURNS = 200
LONG = 20
"""How many long rollouts are run."""


def spent(request: Request, response: Response) -> Usage:
    """Counting tokens would be most of what a long rollout costs."""
    return Usage(prompt_tokens=len(request.messages), completion_tokens=1)


@frozen(kw_only=True)
class Short(Task):
    @reward
    def answered(self, trace: Trace) -> float:
        return float(trace.last_reply == "yes")


@frozen(kw_only=True)
class Cost:
    """Of one way: seconds of the clock and of the processor, for each rollout."""

    clock: float
    processor: float
    traces: Sequence[Trace]

    def __str__(self) -> str:
        return (
            f"{self.clock * 1000:.2f} ms ({1 / self.clock:,.0f} a second), {self.processor * 1000:.2f} ms of processor"
        )


async def run(folder: Path | None, number: int, harness: Harness) -> Cost:
    tasks = [Short(prompt=f"number {place}") for place in range(number)]
    model = ScriptedModel(lambda _: "yes", usage=spent)
    given: dict[str, Any] = {"harness": harness, "model": model, "runtime": LocalRuntime, "max_concurrent": AT_ONCE}
    async with open_engine(output_dir=folder, gateway=False) as engine:
        clock, processor = time.perf_counter(), time.process_time()
        async with engine.run_all(tasks, **given) as traces:
            found = [trace async for trace in traces]
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
    assert all(trace.reward == 1.0 for trace in found)
    return Cost(clock=clock / number, processor=processor / number, traces=found)


def compare(what: str, number: int, harness: Harness, where: Path) -> list[Trace]:
    """Run both ways in turn and say what each cost; returns traces."""
    costs: dict[str, list[Cost]] = {"without a folder": [], "with a folder": []}
    for number_of_run in range(RUNS):
        for way, found in costs.items():
            folder = where / f"{what} {number_of_run}" if way == "with a folder" else None
            found.append(trio.run(run, folder, number, harness))
            say(f"{what}, {way}: {found[-1]}")
    without, having = (median(cost.clock for cost in found) for found in costs.values())
    say(f"{what}: a folder costs {(having - without) * 1000:.2f} ms a rollout (medians of {RUNS})")
    return list(costs["with a folder"][-1].traces)


def parts(what: str, traces: Sequence[Trace], where: Path) -> None:
    """Say what writing a trace costs, and what keeping it in the journal, by themselves."""
    start = time.perf_counter()
    lines = [trace_to_json(trace) for trace in traces]
    made = (time.perf_counter() - start) / len(traces)
    start = time.perf_counter()
    with TracesFile(where / f"{what}.jsonl") as file:
        for line in lines:
            file.append(line)
    written = (time.perf_counter() - start) / len(traces)
    size = sum(map(len, lines)) / len(lines) / 1000
    say(f"{what}: JSON of a trace {made * 1000:.2f} ms and {size:.1f} kB; its line on disk {written * 1000:.2f} ms")


def main(arguments: Sequence[str]) -> None:
    """The command."""
    number = int(arguments[0]) if arguments else 600
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        for what, many, harness in (("one turn", number, ChatHarness()), (f"{TURNS} turns", LONG, Talker(TURNS))):
            parts(what, compare(what, many, harness, where), where)


if __name__ == "__main__":
    main(sys.argv[1:])
