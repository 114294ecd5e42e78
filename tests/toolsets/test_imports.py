"""What serves and calls tools is imported when it is needed: it takes a second, and most programs need none of it."""

import subprocess
import sys

PROGRAM = """
import sys

HEAVY = {"mcp", "mcp_types", "hypercorn", "pydantic", "starlette", "anyio"}

import rollout_fsm
assert not HEAVY & set(sys.modules), HEAVY & set(sys.modules)

from rollout_fsm import ChatHarness, HttpToolset, ScriptedModel, SharedToolset, StdioToolset, Task, open_engine, tool
assert not (HEAVY - {"anyio"}) & set(sys.modules), HEAVY & set(sys.modules)

import trio

async def main():
    async with open_engine() as engine:
        trace = await engine.run(Task(prompt="x"), harness=ChatHarness(), model=ScriptedModel(["ok"]))
        assert trace.ok

trio.run(main)
assert not (HEAVY - {"anyio"}) & set(sys.modules), HEAVY & set(sys.modules)
print("nothing heavy")
"""


def test_a_rollout_without_tool_servers_imports_nothing_that_serves_them() -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "nothing heavy\n", "")


SERVING = '''
import logging, sys, trio
from rollout_fsm import ChatHarness, ScriptedModel, Task, Toolset, open_engine, tool

class One(Toolset):
    @tool
    def one(self) -> int:
        return 1

went_on = []

class Asking:
    """Has the event loop do something in the middle of each import of what is heavy: that takes a thread of its own."""

    def find_spec(self, name, path=None, target=None):
        if name in {"mcp", "mcp_types", "hypercorn", "pydantic", "starlette"}:
            trio.from_thread.run_sync(went_on.append, name)

async def main():
    async with open_engine() as engine:
        trace = await engine.run(Task(prompt="x"), harness=ChatHarness(), model=ScriptedModel(["ok"]), tools=[One])
        assert trace.ok, trace.errors
    assert len(went_on) == 5, went_on

sys.meta_path.insert(0, Asking())
trio.run(main)
assert logging.getLogger().handlers == [] and logging.getLogger().level == logging.WARNING
print("it went on")
'''


def test_importing_them_lets_the_event_loop_go_on_and_touches_no_logging_of_the_program() -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", SERVING], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "it went on\n", "")
