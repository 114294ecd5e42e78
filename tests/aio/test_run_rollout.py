"""`run_rollout` is for programs without an event loop, and says what to write in those that have one."""

import asyncio
from pathlib import Path

import pytest
import trio

import rollout_fsm
from rollout_fsm import ChatHarness, ScriptedModel, Task, aio, run_rollout
from tests.aio.conftest import LoopFactory


def rolled(**settings: Path) -> rollout_fsm.Trace:
    return run_rollout(Task(prompt="x"), harness=ChatHarness(), model=ScriptedModel(["4"]), **settings)


def test_a_synchronous_program_gets_its_trace_and_the_file(tmp_path: Path) -> None:
    trace = rolled(output_dir=tmp_path / "run")
    assert trace.ok
    assert trace.id in (tmp_path / "run" / "traces.jsonl").read_text()
    assert aio.run_rollout is run_rollout


def test_inside_asyncio_it_says_what_to_write(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        with pytest.raises(
            RuntimeError, match=r"async with rollout_fsm\.aio\.open_engine\(\) as engine: trace = await"
        ):
            rolled()
        async with aio.open_engine(gateway=False):
            with pytest.raises(RuntimeError, match=r"rollout_fsm\.aio\.open_engine"):
                rolled()
            assert (await asyncio.to_thread(rolled)).ok

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def test_inside_trio_it_says_what_to_write() -> None:
    with pytest.raises(RuntimeError, match=r"async with rollout_fsm\.open_engine\(\) as engine: trace = await"):
        rolled()
    await trio.lowlevel.checkpoint()
