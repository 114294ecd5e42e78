"""The isolated runtime: how programs, and all that they started, are ended."""

import signal
import sys

import pytest
import trio

from rollout_fsm.runtimes.bubblewrap import BoxLimits, BubblewrapRuntime
from tests.runtimes.boxes import Bell
from tests.runtimes.bubblewrap.boxes import RING, bell, box

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("bubblewrap", "temporary")]
PYTHON = sys.executable
DAEMON = "import os, time\nos.fork() and os._exit(0)\nos.setsid()\nos.fork() and os._exit(0)\n"
DAEMON += "os.write(os.open('bell', os.O_WRONLY), b'up\\n')\nos.environ.clear()\ntime.sleep(1000)"
"""Leaves its parent, its session and its parent again."""
BOMB = "import os, time\nprint('up', flush=True)\nos.write(os.open('bell', os.O_WRONLY), b'up\\n')\n"
BOMB += "while True:\n try: os.fork()\n except OSError: pass"


async def cancel_when_up(runtime: BubblewrapRuntime, argv: list[str]) -> Bell:
    """Run a program, cancel the run when it has rung the bell; returns the bell."""
    ringing = bell(runtime)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run, argv)
        assert await ringing.line() == "up"
        nursery.cancel_scope.cancel()
    return ringing


# --- a run that is left early


async def test_a_timeout_kills_the_program_and_what_it_started_and_says_so() -> None:
    async with box() as runtime:
        ringing = bell(runtime)
        with pytest.raises(TimeoutError, match=r"\['sh', '-c', .*\] did not end within 0.5 s and was killed"):
            await runtime.run(["sh", "-c", RING + "sleep 1000 & sleep 1000"], timeout=0.5)
        await ringing.silence()


async def test_a_timeout_of_zero_kills_at_once_and_one_that_is_kept_nothing() -> None:
    async with box() as runtime:
        with pytest.raises(TimeoutError, match="within 0 s"):
            await runtime.run(["sleep", "1000"], timeout=0)
        assert (await runtime.run(["sh", "-c", "exit 7"], timeout=100)).exit_code == 7


async def test_a_cancellation_asks_first_so_that_a_program_can_tidy_up() -> None:
    async with box(grace=60) as runtime:
        script = "trap 'echo tidied > last; exit 0' TERM; " + RING + "while :; do sleep 0.01; done"
        ringing = await cancel_when_up(runtime, ["sh", "-c", script])
        assert await runtime.read("last") == b"tidied\n"
        await ringing.silence()


@pytest.mark.parametrize(
    "script",
    [
        "trap '' TERM HUP INT; sleep 1000 & (sleep 1000 & sleep 1000) & " + RING + "wait",
        RING + "kill -STOP $$",
        "exec 9>bell; setsid sleep 1000 & env -i sleep 1000 & (setsid sh -c 'sleep 1000 & echo up >&9; wait' &) ; wait",
    ],
)
async def test_a_cancellation_kills_what_ignores_it_was_stopped_or_left_the_session(script: str) -> None:
    async with box() as runtime:
        ringing = await cancel_when_up(runtime, ["sh", "-c", script])
        await ringing.silence()


async def test_a_cancellation_kills_a_fork_bomb_and_the_box_goes_on() -> None:
    async with box(limits=BoxLimits(processes=40)) as runtime:
        ringing = await cancel_when_up(runtime, [PYTHON, "-c", BOMB])
        await ringing.silence()
        assert (await runtime.run(["echo", "on"])).stdout == "on\n"


async def test_a_cancellation_kills_the_program_alone_and_not_its_siblings() -> None:
    async with box() as runtime:
        await runtime.run(["sh", "-c", "sleep 1000 & echo $! > server"])
        ringing = await cancel_when_up(runtime, ["sh", "-c", RING + "sleep 1000"])
        await ringing.silence()
        assert (await runtime.run(["sh", "-c", "kill -0 $(cat server)"])).exit_code == 0


async def test_a_process_whose_first_thread_ended_is_killed_too() -> None:
    code = (
        "import ctypes, os, threading\n"
        "def live():\n"
        "    while '\\nState:\\tZ' not in open('/proc/self/status').read(): pass\n"
        "    os.write(bell, b'up\\n')\n"
        "    threading.Event().wait()\n"
        "bell = os.open('bell', os.O_WRONLY)\n"
        "threading.Thread(target=live).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    async with box() as runtime:
        ringing = await cancel_when_up(runtime, [PYTHON, "-c", code])
        await ringing.silence()


# --- kill


async def test_kill_ends_what_the_execution_started_and_leaves_what_came_before() -> None:
    async with box() as runtime:
        script = "setsid sh -c 'echo $$ > worker; exec sleep 1000' & sleep 1000 & echo $! > server; "
        await runtime.run(["sh", "-c", script + "until [ -s worker ]; do :; done"])
        await runtime.prepare_setup()
        await runtime.prepare_execution([])
        ringing = bell(runtime)
        await runtime.run([PYTHON, "-c", DAEMON])
        assert await ringing.line() == "up"
        await runtime.run(["sh", "-c", "exec 9> bell; trap '' TERM; sleep 1000 & setsid sleep 1000 &"])
        assert await runtime.kill()
        await ringing.silence()
        assert (await runtime.run(["sh", "-c", "kill -0 $(cat server) $(cat worker)"])).exit_code == 0


async def test_kill_leaves_what_a_server_of_setup_starts_later() -> None:
    async with box() as runtime:
        await runtime.run(["sh", "-c", "mkfifo ask; (read _ < ask; sleep 1000 & echo $! > pid; wait) & :"])
        await runtime.prepare_execution([])
        await runtime.run(["sh", "-c", "echo > ask; until [ -s pid ]; do :; done"])
        assert await runtime.kill()
        assert (await runtime.run(["sh", "-c", "kill -0 $(cat pid)"])).exit_code == 0


async def test_kill_before_the_execution_ends_nothing() -> None:
    async with box() as runtime:
        await runtime.run(["sh", "-c", "sleep 1000 & echo $! > server"])
        assert await runtime.kill()
        assert (await runtime.run(["sh", "-c", "kill -0 $(cat server)"])).exit_code == 0


async def test_kill_ends_a_program_that_runs_and_its_run_returns_how() -> None:
    async with box() as runtime:
        await runtime.prepare_execution([])
        ringing = bell(runtime)
        codes: list[int] = []

        async def run() -> None:
            codes.append((await runtime.run(["sh", "-c", RING + "exec sleep 1000"])).exit_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await ringing.line()
            assert await runtime.kill()
        assert codes == [-signal.SIGTERM]
        await ringing.silence()


FAMILIES = """
import os, sys
bell, (begin, wait) = os.open("bell", os.O_WRONLY), os.pipe()
if bomb := os.fork():
    chain = os.fork()
if bomb and chain:
    os._exit(0)
os.close(wait)
os.read(begin, 1)
os.write(bell, b"up\\n")
while True:
    try:
        if os.fork() and bomb:
            os._exit(0)
        if sys.argv[1] == "leaves":
            os.setsid()
    except OSError:
        pass
"""
"""Leaves two families behind: in one everybody forks and forks, in the other each starts the next and is gone."""


@pytest.mark.parametrize("setup", [True, False])
@pytest.mark.parametrize("how", ["stays", "leaves"])
async def test_kill_ends_families_that_fork_on_and_on(setup: bool, how: str) -> None:
    async with box(limits=BoxLimits(processes=30)) as runtime:
        if setup:
            await runtime.run(["sh", "-c", "sleep 1000 & echo $! > server"])
        await runtime.prepare_execution([])
        ringing = bell(runtime)
        assert (await runtime.run([PYTHON, "-c", FAMILIES, how])).exit_code == 0
        assert [await ringing.line() for _ in range(2)] == ["up", "up"]
        assert await runtime.kill()
        await ringing.silence()
        if setup:
            assert (await runtime.run(["sh", "-c", "kill -0 $(cat server)"])).exit_code == 0


async def test_who_kills_everybody_kills_what_is_in_the_box_and_not_the_box() -> None:
    async with box() as runtime, box("other") as other:
        await other.run(["sh", "-c", "sleep 1000 & echo $! > server"])
        await runtime.run(["sh", "-c", "sleep 1000 &"])
        assert (await runtime.run(["sh", "-c", "kill -9 1; kill -TERM 1; kill -9 -1; exit 3"])).exit_code == 3
        assert (await runtime.run(["sh", "-c", "ls -d /proc/[0-9]*"])).stdout.split()[0] == "/proc/1"
        assert await runtime.alive()
        assert (await other.run(["sh", "-c", "kill -0 $(cat server)"])).exit_code == 0


async def test_what_is_spared_goes_on_and_what_was_stopped_stays_so() -> None:
    async with box() as runtime:
        script = "mkfifo beat; sleep 1000 & kill -STOP $!; echo $! > stopped; "
        script += "(while :; do echo > beat; sleep 0.01; done) & echo $! > on"
        await runtime.run(["sh", "-c", script])
        await runtime.prepare_execution([])
        await runtime.run(["sh", "-c", "setsid sleep 1000 &"])
        assert await runtime.kill()
        states = await runtime.run(["sh", "-c", "cat beat beat; ps -o stat= -p $(cat stopped) -p $(cat on)"])
        assert [state[0] for state in states.stdout.split()] == ["T", "S"]
