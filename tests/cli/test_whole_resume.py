"""Interrupted runs, full disks and read-only folders, as users meet them; and the same runs, brought to their end."""

import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from rollout_fsm import Trace, check_trace, read_traces
from tests.cli.conftest import CommandLine
from tests.cli.process import processes_of, running

pytestmark = pytest.mark.whole_process

WAITING = """
import sys
from pathlib import Path
from rollout_fsm import Harness, HarnessSession

HERE = Path(__file__).parent

class Waiting(Harness):
    '''Runs a program that never ends, until there is a file `go`. A task named `quick` is done at once.'''

    async def open_session(self, exchange):
        return Session(exchange)

class Session(HarnessSession):
    def __init__(self, exchange):
        self.exchange = exchange

    async def run(self, messages):
        if self.exchange.trace.task.data.get("name") == "quick" or (HERE / "go").exists():
            return None
        print("a segment runs", flush=True)
        wait = "import time; time.sleep(100_000)"
        return await self.exchange.runtime.run([sys.executable, "-c", wait, str(HERE)])
"""
ROWS = '{"prompt": "a", "name": "quick"}\n{"prompt": "b"}\n{"prompt": "c"}\n{"prompt": "d"}\n'
ONCE = {"a": 1, "b": 1, "c": 1, "d": 1}


def traces_of(folder: Path) -> list[Trace]:
    faults: list[object] = []
    traces = list(read_traces(folder / "traces.jsonl", on_fault=lambda *fault: faults.append(fault)))
    assert faults == []
    return traces


@pytest.mark.parametrize(("which", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_is_resumed_to_its_end_with_every_task_once(
    which: signal.Signals, code: int, cli: CommandLine, tmp_path: Path
) -> None:
    cli.file("waiting.py", WAITING)
    cli.file("tasks.jsonl", ROWS)

    async def interrupted() -> str:
        arguments = ["run", "tasks.jsonl", "--harness", "waiting:Waiting", "-m", "scripted", "-o", "out", "-c", "2"]
        async with running(tmp_path, arguments) as run:
            await run.out.says("[1/4] completed")
            await run.out.says("a segment runs", times=2)
            run.send(which)
            assert await run.ended() == code
            return run.out.text

    assert " go on by  rollout-fsm resume out\n" in trio.run(interrupted)
    ended = Counter(trace.transitions[-1].target for trace in traces_of(tmp_path / "out"))
    assert ended == {"completed": 1, "aborted": 2}
    cli.file("go", "")

    said = cli("resume", "out")

    traces = traces_of(tmp_path / "out")
    aside = (tmp_path / "out" / "superseded.jsonl").read_text()
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("1 of 4 rollouts done before, 3 owed\n")
    assert "4 of 4 rollouts, 4 ok, 1 done before, " in said.out
    assert Counter(trace.task.data["prompt"] for trace in traces) == ONCE
    assert [check_trace(trace) for trace in traces] == [[]] * 4
    assert aside.count("\n") == aside.count('"reason":"the rollout was aborted"') == 2
    assert processes_of(str(tmp_path)) == []
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 192 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if mount("-t", "tmpfs", "-o", "size=192k", "none", str(disk)):
        pytest.skip("this user may mount nothing")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def mount(*arguments: str) -> int:
    try:
        return subprocess.run(["mount", *arguments], stderr=subprocess.DEVNULL, check=False).returncode
    except OSError:
        return 1


def test_on_a_full_disk_every_loss_is_named_and_with_room_the_run_comes_to_its_end(
    small: Path, cli: CommandLine, tmp_path: Path
) -> None:
    cli.file("tasks.jsonl", "".join(f'{{"prompt": "task {n}"}}\n' for n in range(30)))

    async def ran() -> tuple[str, str]:
        async with running(tmp_path, ["run", "tasks.jsonl", "-m", "scripted", "-o", "disk/out", "-c", "2"]) as run:
            assert await run.ended() == 3
            return run.out.text, run.err.text

    out, err = trio.run(ran)
    written = {trace.id for trace in traces_of(small / "out")}
    lost = re.findall(
        "^rollout-fsm: the trace of rollout (.{32}) is lost: .*No space left on device$", err, re.MULTILINE
    )
    assert 0 < len(written) < 30
    assert len(set(lost)) == len(lost) == 30 - len(written)
    assert not written & set(lost)
    assert "\nrollout-fsm: not all was kept for a crash: the journal disk/out/journal.db cannot be written: " in err
    assert "\nrollout-fsm: the log could not be written: [Errno 28] No space left on device\n" in err
    assert "Traceback" not in err
    assert "30 of 30 rollouts, 30 ok, in " in out
    assert " go on by  rollout-fsm resume disk/out\n" in out

    assert mount("-o", "remount,size=8m", str(small)) == 0
    said = cli("resume", "disk/out")

    traces = traces_of(small / "out")
    assert (said.code, said.err) == (0, "")
    assert {trace.id for trace in traces} > written
    assert Counter(trace.task.data["prompt"] for trace in traces) == {f"task {n}": 1 for n in range(30)}
    assert f"{len(written)} of 30 rollouts done before, {30 - len(written)} owed\n" in said.out


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_run(small: Path, cli: CommandLine) -> None:
    tasks = cli.file("tasks.jsonl", '{"prompt": "?"}\n')
    assert cli("run", tasks, "-m", "scripted", "-o", "disk/out").code == 0
    assert mount("-o", "remount,ro", str(small)) == 0

    for arguments in (("resume", "disk/out"), ("run", tasks, "-m", "scripted", "-o", "disk/new")):
        said = cli(*arguments)
        folder = re.escape(str(small / "out") if arguments[0] == "resume" else "disk/new")
        line = rf"rollout-fsm: the folder {folder} cannot be written: Read-only file system; name another one\n"
        assert (said.code, said.out) == (3, "")
        assert re.fullmatch(line, said.err), said.err
