"""The supervisor of a tool server's program: it is as if the program ran by itself, and it leaves nothing."""

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollout_fsm.toolsets import supervisor

pytestmark = pytest.mark.whole_process

HANG = 60.0
"""Seconds after which a process is taken for one that never ends."""


@contextmanager
def supervised(
    argv: Sequence[str], env: Mapping[str, str] | None = None
) -> Iterator[tuple["subprocess.Popen[bytes]", socket.socket]]:
    """A program under a supervisor, and the lifeline of the two."""
    lifeline, theirs = socket.socketpair()
    lifeline.settimeout(HANG)
    command = [sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno()), "", *argv]
    with (
        lifeline,
        subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process,
    ):
        theirs.close()
        try:
            yield process, lifeline
        finally:
            lifeline.close()
            process.wait(HANG)


@pytest.mark.parametrize(("ending", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -11 $$", -11)])
def test_it_exits_as_the_program_does(ending: str, status: int) -> None:
    with supervised(["sh", "-c", ending]) as (process, lifeline):
        assert process.wait(HANG) == status
        assert lifeline.recv(16) == b"0"


@pytest.mark.parametrize(("program", "number"), [("no-such-program", errno.ENOENT), ("/", errno.EACCES)])
def test_why_a_program_cannot_be_started_is_said(program: str, number: int) -> None:
    with supervised([program]) as (process, lifeline):
        assert lifeline.recv(16) == b"%d" % number
        assert process.wait(HANG) == supervisor.CANNOT_BE_RUN


def test_the_program_has_the_variables_that_it_was_given_and_no_others() -> None:
    given = {"LANG": "C", "PATH": os.environ["PATH"]}
    with supervised(["env"], given) as (process, _):
        assert process.stdout is not None
        assert dict(line.decode().rstrip("\n").split("=", 1) for line in process.stdout) == given


def test_the_program_reacts_to_signals_as_if_it_had_been_started_alone() -> None:
    ignored = "import signal; print([s.name for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN])"
    alone = subprocess.run([sys.executable, "-c", ignored], check=True, stdout=subprocess.PIPE).stdout
    with supervised([sys.executable, "-c", ignored]) as (process, _):
        assert process.stdout is not None
        assert process.stdout.read() == alone


def test_the_ends_of_the_programs_streams_are_its_own_to_bring_about() -> None:
    with supervised(["sh", "-c", "exec >&-; read word; exec sleep 600"]) as (process, lifeline):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.read() == b""  # it lives, and so does the supervisor
        assert process.poll() is None
        process.stdin.write(b"word\n")
        process.stdin.flush()
        lifeline.shutdown(socket.SHUT_WR)
        assert process.wait(HANG) == 0


DAEMON = "(setsid env -i sh -c 'trap \"\" TERM HUP INT; echo $$; exec sleep 600' &)"
"""Says its process id; has neither the program's session nor its environment, and a parent that is dead."""


@pytest.mark.parametrize("after", ["exit 3", "trap '' TERM; exec sleep 600"])
def test_whoever_descends_from_the_program_is_dead_when_the_supervisor_is(after: str) -> None:
    with supervised(["sh", "-c", f"{DAEMON}; read word; {after}"]) as (process, lifeline):
        assert process.stdin is not None
        assert process.stdout is not None
        said = process.stdout.readline()
        process.stdin.write(b"word\n")
        process.stdin.flush()
        if not after.startswith("exit"):
            lifeline.shutdown(socket.SHUT_WR)
        assert process.wait(HANG) == (3 if after.startswith("exit") else 0)
        with pytest.raises(ProcessLookupError):
            os.kill(int(said), 0)


ENGINE = """
import sys, trio
from rollout_fsm import ChatHarness, ScriptedModel, SharedToolset, StdioToolset, Task, open_engine
from tests.harnesses.runs import calling

async def reply(request):
    if request.messages[-1].role != "tool":
        return calling(("pids", "{}"))
    print(request.messages[-1].text, flush=True)
    await trio.sleep_forever()

async def main():
    tools = StdioToolset([sys.executable, "-I", sys.argv[1], "deaf", "stubborn", "child", "daemon"])
    shared = SharedToolset(tools) if sys.argv[2] == "shared" else tools
    async with open_engine() as engine:
        await engine.run(Task(prompt="x"), harness=ChatHarness(), model=ScriptedModel(reply), tools=[lambda: shared])

trio.run(main)
"""


@pytest.mark.parametrize("shared", ["shared", "of one rollout"])
def test_nothing_of_a_tool_server_outlives_an_engine_that_is_killed(shared: str) -> None:
    server = Path(__file__).with_name("stdio_server.py")
    argv = [sys.executable, "-c", ENGINE, str(server), shared]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        pids = json.loads(engine.stdout.readline())
        alive = {os.pidfd_open(pid): pid for pid in [*pids, parent_of(pids[0])]}
        try:
            engine.send_signal(signal.SIGKILL)
            for process, pid in alive.items():
                assert select.select([process], [], [], HANG)[0], f"process {pid} did not end"
        finally:
            for process in alive:
                os.close(process)
    assert engine.returncode == -signal.SIGKILL
    assert len(alive) == 4


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
