"""The isolated runtimes are imported by whoever runs them, and by nobody else: it takes half as long again."""

import subprocess
import sys

PROGRAM = """
import sys
import trio
from rollout_fsm import ChatHarness, ScriptedModel, Task, open_engine

async def main():
    async with open_engine() as engine:
        trace = await engine.run(Task(prompt="x"), harness=ChatHarness(), model=ScriptedModel(["ok"]))
        assert trace.ok

trio.run(main)
known = {name.removeprefix("rollout_fsm.runtimes.") for name in sys.modules}
print("local" in known, known & {"bubblewrap", "docker", "proxy"})
"""


def test_a_rollout_in_a_local_runtime_imports_no_other() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True set()\n", "")
