"""Ctrl-C in an asyncio program: the host's own way of dealing with it, and an orderly abort of what runs on trio."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, signal, sys
from attrs import frozen
from rollout_fsm import ChatHarness, LocalRuntime, ScriptedModel, Task, aio, reward

class Box(LocalRuntime):
    async def stop(self):
        await aio.on_trio(super().stop)
        print("box stopped", flush=True)

@frozen(kw_only=True)
class Interrupted(Task):
    @reward
    async def pressed(self) -> float:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            print("hook left", flush=True)
        return 0.0

async def main():
    async with aio.open_engine(gateway=False) as engine:
        try:
            await engine.run(Interrupted(prompt="x"), harness=ChatHarness(), model=ScriptedModel(["4"]), runtime=Box)
        finally:
            print("call left", flush=True)

if sys.argv[1] == "uvloop":
    import uvloop
    factory = uvloop.new_event_loop
else:
    factory = asyncio.new_event_loop
with asyncio.Runner(loop_factory=factory) as runner:
    try:
        runner.run(main())
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_ctrl_c_aborts_in_order_and_comes_out_of_the_runner(loop: str) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, loop], capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["hook left", "box stopped", "call left", "interrupted"]
    assert (ran.returncode, ran.stderr) == (0, "")
