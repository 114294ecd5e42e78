"""How programs, and all that they started, are ended: by a timeout, a cancellation, `kill`, `stop`, Ctrl-C."""

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtimes import LocalRuntime
from rollout_fsm.runtimes.table import Census, Process, Table
from tests.runtimes.boxes import Bell, box, children, lives

real_time = pytest.mark.real_time
PYTHON = sys.executable
NOBODY = 65534
RING = "exec 9>bell; echo up >&9; "
"""Opens the bell, for this process and all that it starts, and rings it."""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = children()  # of tests that ran in this process
    yield
    assert list(tmp_path.iterdir()) == []
    assert children(but=before) == []


async def cancel_when_up(runtime: LocalRuntime, script: str) -> Bell:
    """Run a shell script, cancel the run when it has rung the bell; returns the bell."""
    bell = Bell(runtime.workspace)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run, ["sh", "-c", script])
        assert await bell.line() == "up"
        nursery.cancel_scope.cancel()
    return bell


# --- a run that is left early


@real_time
async def test_a_timeout_kills_the_program_and_what_it_started_and_says_so() -> None:
    async with box() as runtime:
        bell = Bell(runtime.workspace)
        with pytest.raises(TimeoutError, match=r"\['sh', '-c', .*\] did not end within 0.5 s and was killed"):
            await runtime.run(["sh", "-c", RING + "sleep 1000 & sleep 1000"], timeout=0.5)
        await bell.silence()


@real_time
async def test_a_program_that_ends_in_time_is_not_touched_by_its_timeout() -> None:
    async with box() as runtime:
        assert (await runtime.run(["sh", "-c", "exit 7"], timeout=100)).exit_code == 7


@real_time
async def test_a_timeout_of_zero_kills_at_once() -> None:
    async with box() as runtime:
        with pytest.raises(TimeoutError, match="within 0 s"):
            await runtime.run(["sleep", "1000"], timeout=0)


@real_time
async def test_a_program_that_ended_in_time_is_not_charged_for_who_holds_its_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rollout_fsm.runtimes.programs.DRAIN", 3600)
    async with box() as runtime:
        result = await runtime.run(["sh", "-c", "sleep 1000 & echo $!; exit 3"], timeout=1)
        assert result.exit_code == 3
        assert lives(int(result.stdout))


@real_time
async def test_a_cancellation_kills_the_group_and_a_grandchild_that_holds_the_output() -> None:
    async with box() as runtime:
        bell = await cancel_when_up(runtime, "sh -c '" + RING + "sleep 1000 & sleep 1000' & wait")
        await bell.silence()


@real_time
async def test_a_cancellation_asks_first_so_that_a_program_can_tidy_up() -> None:
    async with box(grace=60) as runtime:
        script = "trap 'echo tidied > last; exit 0' TERM; " + RING + "while :; do sleep 0.01; done"
        bell = await cancel_when_up(runtime, script)
        assert await runtime.read("last") == b"tidied\n"
        await bell.silence()


@real_time
async def test_a_cancellation_kills_what_ignores_being_asked() -> None:
    async with box(grace=0.05) as runtime:
        script = "trap '' TERM HUP INT; sleep 1000 & (sleep 1000 & sleep 1000) & " + RING + "wait"
        bell = await cancel_when_up(runtime, script)
        await bell.silence()


@real_time
async def test_a_cancellation_kills_what_was_stopped() -> None:
    async with box(grace=0.05) as runtime:
        bell = await cancel_when_up(runtime, RING + "kill -STOP $$")
        await bell.silence()


@real_time
async def test_a_cancellation_kills_what_left_the_session_and_what_shed_its_environment() -> None:
    async with box() as runtime:
        script = "exec 9>bell; setsid sleep 1000 & env -i sleep 1000 & "
        script += "(setsid sh -c 'sleep 1000 & echo up >&9; wait' &) ; wait"
        bell = await cancel_when_up(runtime, script)
        await bell.silence()


@real_time
async def test_a_cancellation_kills_the_program_alone_and_not_its_siblings() -> None:
    async with box() as runtime:
        await runtime.run(["sh", "-c", "sleep 1000 & echo $! > server"])
        bell = await cancel_when_up(runtime, RING + "sleep 1000")
        await bell.silence()
        assert lives(int(await runtime.read("server")))


@real_time
async def test_a_process_whose_first_thread_ended_is_killed_too() -> None:
    code = (
        "import ctypes, os, threading\n"
        "def live():\n"
        "    while '\\nState:\\tZ' not in open('/proc/self/status').read(): pass\n"
        "    os.write(bell, b'up\\n')\n"
        "    threading.Event().wait()\n"
        "bell = os.open('bell', os.O_WRONLY)\n"
        "threading.Thread(target=live).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"
    )
    async with box(grace=0.05) as runtime:
        bell = Bell(runtime.workspace)
        await runtime.write("half.py", code)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run, [PYTHON, "half.py"])
            assert await bell.line() == "up"
            nursery.cancel_scope.cancel()
        await bell.silence()


@real_time
async def test_a_cancelled_run_ends_also_when_its_feeder_and_readers_are_blocked() -> None:
    async with box() as runtime:
        bell = Bell(runtime.workspace)
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await runtime.run(["sh", "-c", RING + "sleep 1000"], input=b"x" * 1_000_000)

            nursery.start_soon(run)
            assert await bell.line() == "up"
            nursery.cancel_scope.cancel()
        await bell.silence()


# --- a run that the program's own exit ends


@real_time
async def test_what_a_program_leaves_behind_lives_until_the_stop_although_it_holds_the_output() -> None:
    runtime = LocalRuntime("box")
    await runtime.start()
    bell = Bell(runtime.workspace)
    result = await runtime.run(["sh", "-c", RING + "sleep 1000 & echo $!; (setsid sleep 1000 &)"])
    server = int(result.stdout)
    assert lives(server)
    await runtime.stop()
    assert not lives(server)
    await bell.silence()


@real_time
async def test_last_words_are_read_also_when_another_process_never_stops_talking() -> None:
    async with box(cap=1 << 26) as runtime:
        for _ in range(5):
            result = await runtime.run(["sh", "-c", "yes noise & yes noise >&2 & echo words; echo words >&2; exit 0"])
            assert "words\n" in result.stdout
            assert "words\n" in result.stderr


@real_time
async def test_words_of_a_child_that_outlives_the_program_briefly_are_read() -> None:
    async with box() as runtime:
        assert (await runtime.run(["sh", "-c", "(echo late) & exit 0"])).stdout == "late\n"


# --- kill


@real_time
async def test_kill_ends_what_the_execution_started_and_leaves_what_came_before() -> None:
    async with box() as runtime:
        await runtime.run(["sh", "-c", "sleep 1000 & echo $! > tasks"])
        await runtime.prepare_setup()
        await runtime.prepare_execution([])
        await runtime.run(["sh", "-c", "sleep 1000 & echo $! > agents; (setsid sleep 1000 & echo $! > escaped)"])
        tasks, agents, escaped = [int(await runtime.read(name)) for name in ("tasks", "agents", "escaped")]
        assert [lives(pid) for pid in (tasks, agents, escaped)] == [True, True, True]
        assert await runtime.kill()
        assert [lives(pid) for pid in (tasks, agents, escaped)] == [True, False, False]
        assert (await runtime.run(["echo", "on"])).stdout == "on\n"
        assert await runtime.kill()
    assert not lives(tasks)


@real_time
async def test_kill_before_the_execution_ends_nothing() -> None:
    async with box() as runtime:
        server = int((await runtime.run(["sh", "-c", "sleep 1000 & echo $!"])).stdout)
        assert await runtime.kill()
        assert lives(server)


@real_time
async def test_kill_ends_a_program_that_runs_and_its_run_returns_how() -> None:
    async with box() as runtime:
        await runtime.prepare_execution([])
        bell = Bell(runtime.workspace)
        codes: list[int] = []

        async def run() -> None:
            codes.append((await runtime.run(["sh", "-c", RING + "exec sleep 1000"])).exit_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await bell.line()
            assert await runtime.kill()
        assert codes == [-signal.SIGTERM]
        await bell.silence()


@real_time
async def test_kill_finds_servers_that_shed_their_environment_while_a_session_or_a_parent_tells_them() -> None:
    async with box() as runtime:
        await runtime.prepare_execution([])
        script = "env -i sleep 1000 & echo $!; setsid sh -c 'env -i setsid sleep 1000 & echo $! > inner; wait' & "
        servers = [int((await runtime.run(["sh", "-c", script + "until [ -s inner ]; do :; done"])).stdout)]
        servers.append(int(await runtime.read("inner")))
        assert all(map(lives, servers))
        assert await runtime.kill()
        assert not any(map(lives, servers))


@real_time
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a process that it may not kill afterwards")
async def test_what_may_not_be_killed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_fsm.runtimes.programs.PATIENCE", 0.05)
    async with box(grace=0.01) as runtime:
        await runtime.prepare_execution([])
        server = int((await runtime.run(["sh", "-c", "sleep 1000 & echo $!"])).stdout)
        os.setresuid(NOBODY, NOBODY, 0)
        try:
            assert not await runtime.kill()
            with pytest.raises(SandboxError, match=f"box was not stopped wholly: process {server} would not die"):
                await runtime.stop()
        finally:
            os.setresuid(0, 0, 0)
        assert lives(server)
        await runtime.stop()
        assert not lives(server)


# --- stop


@real_time
async def test_stop_ends_programs_that_run_and_their_runs_say_why() -> None:
    runtime = LocalRuntime("box")
    await runtime.start()
    bell = Bell(runtime.workspace)
    said: list[str] = []

    async def run() -> None:
        with pytest.raises(SandboxError, match="runtime box was stopped while 'sh'") as raised:
            await runtime.run(["sh", "-c", RING + "sleep 1000"])
        said.append(str(raised.value))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(run)
        await bell.line()
        await runtime.stop()
        assert runtime.stopped
    assert len(said) == 20
    await bell.silence()


@real_time
async def test_a_program_that_is_being_started_when_stop_comes_does_not_live() -> None:
    for _ in range(20):
        runtime = LocalRuntime("box")
        await runtime.start()

        async def run(runtime: LocalRuntime) -> None:
            with pytest.raises(SandboxError):
                await runtime.run(["sleep", "1000"])

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(run, runtime)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(runtime.stop)


@real_time
async def test_stop_ends_a_family_that_goes_on_forking() -> None:
    script = "trap '' TERM; echo \"sh fork &\" > fork; " + RING + "while :; do sleep 0.002 & setsid sleep 0.002 & done"
    runtime = LocalRuntime("box", grace=0.05)
    await runtime.start()
    bell = Bell(runtime.workspace)
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            with pytest.raises(SandboxError):
                await runtime.run(["sh", "-c", script])

        nursery.start_soon(run)
        await bell.line()
        await runtime.stop()
    await bell.silence()


CHAIN = """
import os, sys, time
pause, leaves, chains = float(sys.argv[1]), sys.argv[2] == "leaves", int(sys.argv[3])
bell = os.open("bell", os.O_WRONLY)
until = time.monotonic() + 60
for _ in range(chains):
    if not os.fork():
        break
else:
    os._exit(0)
links = 0
while time.monotonic() < until:
    if os.fork():
        os._exit(0)
    if leaves:
        os.setsid()
    links += 1
    if links == 3:
        os.write(bell, b"up\\n")
    time.sleep(pause)
"""
"""Processes of which each starts the next and is gone; in the end they give up by themselves."""


@real_time
@pytest.mark.parametrize("verb", ["stop", "kill"])
@pytest.mark.parametrize(
    "how",
    [
        ("0", "stays", "1"),
        ("0.05", "stays", "1"),
        ("0.02", "stays", "10"),
        ("0", "leaves", "1"),
        ("0.05", "leaves", "5"),
    ],
)
async def test_a_chain_of_processes_that_fork_and_are_gone_is_ended(verb: str, how: tuple[str, str, str]) -> None:
    runtime = LocalRuntime("box", grace=0.05)
    await runtime.start()
    try:
        bell = Bell(runtime.workspace)
        await runtime.prepare_execution([])
        await runtime.run([PYTHON, "-c", CHAIN, *how])
        assert await bell.line() == "up"
        if verb == "kill":
            assert await runtime.kill()
        else:
            await runtime.stop()
        assert bell.silent()
    finally:
        await runtime.stop()


@real_time
async def test_one_look_that_shows_nobody_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = {1, 3, 4}
    looks: list[int] = []
    look = Census.look

    def sometimes_blind(census: Census, meet: Callable[[Process], None] | None = None) -> Table:
        looks.append(len(looks) + 1)
        return Table([]) if looks[-1] in blind else look(census, meet)

    monkeypatch.setattr(Census, "look", sometimes_blind)
    runtime = LocalRuntime("box")
    await runtime.start()
    bell = Bell(runtime.workspace)
    await runtime.run(["sh", "-c", RING + 'setsid sleep 1000 & until [ "$(ps -o sid= -p $!)" -eq $! ]; do :; done'])
    await runtime.stop()
    assert bell.silent()


# --- Ctrl-C


def test_a_ctrl_c_ends_the_program_and_what_it_started() -> None:
    bells: list[Bell] = []
    runtime = LocalRuntime("box")

    async def interrupt(bell: Bell) -> None:
        await bell.line()
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        await runtime.start()
        bells.append(Bell(runtime.workspace))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupt, bells[0])
            try:
                await runtime.run(["sh", "-c", RING + "sleep 1000 & setsid sleep 1000"])
            finally:
                await runtime.stop()
                with trio.CancelScope(shield=True):
                    await bells[0].silence()

    with pytest.raises(BaseExceptionGroup) as raised:
        trio.run(main, strict_exception_groups=True)
    assert raised.group_contains(KeyboardInterrupt)
