"""The command line is killed again and again and resumed until its run is done.

The moments are drawn from a seed: the same one in every run, and another one in each run of `fuzz`, which is printed.
Where it strikes is a number of lines that the program has said and a time after that, so no two runs meet the very same
moments; a failure in `fuzz` is tried again with `KILLED_SEED=<seed>`.
"""

import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
import trio

from rollout_fsm import Trace, check_trace, read_traces
from tests.cli.process import running
from tests.end_to_end.agents import CLIENT
from tests.end_to_end.leftovers import Place
from tests.profiles import profile

pytestmark = [pytest.mark.real_time, pytest.mark.whole_process]

AGENT = (
    CLIENT
    + """
import subprocess
subprocess.Popen(["sleep", "1000"], start_new_session=True)  # a child that nobody waits for
ask([{"role": "user", "content": sys.argv[1]}])
"""
)
TASKS = 12
SEED = "KILLED_SEED"
"""The environment variable that names the seed of a run of `fuzz`."""


def begins(folder: Path) -> list[str]:
    """Puts tasks and their agent into the folder; returns the arguments that begin the run."""
    (folder / "agent.py").write_text(AGENT)
    (folder / "tasks.jsonl").write_text("".join(f'{{"prompt": "{n} + {n}?"}}\n' for n in range(TASKS)))
    harness = "{python} -I -S agent.py {prompt}"
    return ["run", "tasks.jsonl", "--harness", harness, "-m", "scripted", "-o", "out", "-c", "3", "--max-retries", "1"]


def traces_of(folder: Path) -> list[Trace]:
    faults: list[object] = []
    traces = list(read_traces(folder / "traces.jsonl", on_fault=lambda *fault: faults.append(fault)))
    assert faults == []
    return traces


def a_seed() -> int:
    if profile() != "fuzz":
        return 0
    return int(os.environ[SEED]) if SEED in os.environ else random.randrange(1 << 32)


async def test_a_run_that_is_killed_at_drawn_moments_and_resumed_until_it_is_done_misses_no_task_and_leaves_nothing(
    tmp_path: Path, place: Place
) -> None:
    seed, kills = a_seed(), {"dev": 1, "ci": 2, "fuzz": 8}[profile()]
    sys.stdout.write(f"{SEED}={seed}\n")
    chosen = random.Random(seed)
    arguments, ever = begins(tmp_path), set[str]()
    for _ in range(kills):
        async with running(tmp_path, arguments) as run:
            await run.out.says("] completed", times=int(chosen.random() * (TASKS - len(ever)) / 2))
            await trio.sleep(chosen.uniform(0, 0.2))  # in the middle of something
            run.send(signal.SIGKILL)
            await run.ended()
        if (tmp_path / "out" / "config.toml").exists():
            arguments = ["resume", "out"]
            kept = {trace.id for trace in traces_of(tmp_path / "out")}
            assert kept >= ever, "a trace that was on disk is gone"
            ever = kept
    async with running(tmp_path, arguments) as run:
        assert await run.ended() == 0

    traces = traces_of(tmp_path / "out")
    assert ever <= {trace.id for trace in traces}
    assert Counter(trace.task.data["prompt"] for trace in traces) == {f"{n} + {n}?": 1 for n in range(TASKS)}
    assert len({trace.run for trace in traces}) == 1
    assert [check_trace(trace) for trace in traces] == [[]] * TASKS
    assert {trace.ok for trace in traces} == {True}
    assert "Traceback" not in run.err.text
    assert f" tasks   {TASKS} of {TASKS} rollouts, {TASKS} ok, " in run.out.text
    assert place.processes() == []
    assert place.files() == []
