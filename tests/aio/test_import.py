"""Importing `rollout_fsm.aio` does nothing to the process."""

import subprocess
import sys

PROGRAM = """
import asyncio, signal, sys, threading

before = {number: signal.getsignal(number) for number in signal.valid_signals()}
policy, hooks, threads = asyncio.get_event_loop_policy(), sys.get_asyncgen_hooks(), threading.active_count()
names = {name: vars(asyncio)[name] for name in dir(asyncio)}
create_task, step = asyncio.tasks.create_task, asyncio.tasks.Task

import rollout_fsm
assert "rollout_fsm.aio" not in sys.modules and "trio" not in sys.modules
import rollout_fsm.aio

assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
assert asyncio.get_event_loop_policy() is policy
assert sys.get_asyncgen_hooks() == hooks
assert threading.active_count() == threads
assert all(vars(asyncio)[name] is value for name, value in names.items())
assert asyncio.tasks.create_task is create_task and asyncio.tasks.Task is step
assert not {"aiohttp", "uvloop"} & set(sys.modules)
engine = rollout_fsm.aio.open_engine()
assert threading.active_count() == threads
print("nothing happened")
"""


def test_importing_it_has_no_side_effects() -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "nothing happened\n", "")
