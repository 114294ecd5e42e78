"""One rollout in a program that has no event loop."""

import sys
from pathlib import Path
from typing import Unpack

import trio

from rollout_fsm.engine import open_engine
from rollout_fsm.settings import OneRollout
from rollout_fsm.task import Task
from rollout_fsm.trace import Trace


def run_rollout(task: Task, *, output_dir: str | Path | None = None, **settings: Unpack[OneRollout]) -> Trace:
    """Run one rollout, whole, and return its trace; for synchronous programs.

    Takes what `engine.run` takes. With `output_dir` the trace goes to its `traces.jsonl`. Raises `RuntimeError` where
    an event loop runs in this thread, which this call would block.
    """
    _refuse_a_running_loop()

    async def main() -> Trace:
        async with open_engine(output_dir=output_dir) as engine:
            return await engine.run(task, **settings)

    return trio.run(main)


def _refuse_a_running_loop() -> None:
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        raise RuntimeError(
            "run_rollout() would block the asyncio loop that runs in this thread; write: async with "
            "rollout_fsm.aio.open_engine() as engine: trace = await engine.run(task, ...)"
        )
    if trio.lowlevel.in_trio_run():
        raise RuntimeError(
            "run_rollout() would block the trio run of this thread; write: async with rollout_fsm.open_engine() as "
            "engine: trace = await engine.run(task, ...)"
        )
