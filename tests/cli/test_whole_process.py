"""The program as people run it: from a shell, into a pipe, on a terminal, and ended by signals."""

import os
import pty
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
import trio

from rollout_fsm import Trace, check_trace, read_traces
from rollout_fsm.reports.summary import Outcome
from tests.cli.process import HOME, processes_of, running

pytestmark = [pytest.mark.real_time, pytest.mark.whole_process]

STUCK = """
import sys
from pathlib import Path
import trio
from attrs import frozen
from rollout_fsm import Harness, HarnessSession, Task

HERE = Path(__file__).parent

class Stuck(Harness):
    '''Says that a segment runs, and runs a program that never ends. A task named `quick` is done at once.'''

    async def open_session(self, exchange):
        return Session(exchange)

    async def cleanup(self, trace, runtime):
        if (HERE / "gate").exists():
            print("cleaning", flush=True)
            await trio.to_thread.run_sync((HERE / "gate").read_text)
            print("cleaned", flush=True)

class Session(HarnessSession):
    def __init__(self, exchange):
        self.exchange = exchange

    async def run(self, messages):
        if self.exchange.trace.task.data.get("name") == "quick":
            return None
        print("a segment runs", flush=True)
        wait = "import time; time.sleep(100_000)"
        return await self.exchange.runtime.run([sys.executable, "-c", wait, str(HERE)])
"""

ROW = '{"prompt": "?"}\n'
QUICK = '{"prompt": "?", "name": "quick"}\n'


def stuck(folder: Path, rows: str) -> list[str]:
    """Puts what never ends into the folder; returns the arguments that run it."""
    (folder / "stuck.py").write_text(STUCK)
    (folder / "tasks.jsonl").write_text(rows)
    return ["run", "tasks.jsonl", "--harness", "stuck:Stuck", "-m", "scripted", "-o", "out"]


def traces_of(folder: Path) -> list[Trace]:
    faults: list[object] = []
    traces = list(read_traces(folder / "traces.jsonl", on_fault=lambda *fault: faults.append(fault)))
    assert faults == []
    return traces


def nothing_is_left(folder: Path) -> None:
    assert processes_of(str(folder)) == []
    assert list((folder / "temporary").iterdir()) == []


async def test_without_arguments_the_example_runs_offline(tmp_path: Path) -> None:
    async with running(tmp_path, ["run"]) as run:
        assert await run.ended() == 0

    (folder,) = (tmp_path / "outputs" / "example").iterdir()
    traces = traces_of(folder)
    assert run.err.text == ""
    assert [check_trace(trace) for trace in traces] == [[]] * 20
    outcomes = Counter(outcome.error or str(outcome.stop_condition) for outcome in map(Outcome.of, traces))
    assert outcomes == {"agent_completed": 16, "gave_up": 1, "max_turns": 1, "context_length": 1, "ProviderError": 1}
    assert "example   20 of 20 rollouts, 19 ok, in " in run.out.text
    assert f"outputs/example/{folder.name}/traces.jsonl" in run.out.text
    assert "\x1b" not in run.out.text
    nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    ("which", "code", "words"),
    [
        (signal.SIGINT, 130, "interrupted: releasing 3 rollouts; what has finished is on disk\n"),
        (signal.SIGTERM, 143, "told to end: releasing 3 rollouts; what has finished is on disk\n"),
        (signal.SIGHUP, 129, "the terminal is gone: releasing 3 rollouts; what has finished is on disk\n"),
    ],
)
async def test_a_signal_releases_everything_and_what_has_finished_is_on_disk(
    which: signal.Signals, code: int, words: str, tmp_path: Path
) -> None:
    async with running(tmp_path, [*stuck(tmp_path, QUICK + ROW * 5), "-c", "3"]) as run:
        await run.out.says("[1/6] completed")
        await run.out.says("a segment runs", times=3)
        run.send(which)
        assert await run.ended() == code

    traces = traces_of(tmp_path / "out")
    assert run.err.text == words
    assert Counter(trace.transitions[-1].target for trace in traces) == {"completed": 1, "aborted": 3}
    assert [check_trace(trace) for trace in traces] == [[]] * 4
    assert "4 of 6 rollouts, 1 ok, in " in run.out.text
    assert "interrupted" in run.out.text
    nothing_is_left(tmp_path)


async def test_a_second_interruption_says_that_the_release_goes_on_and_does_not_cut_it_short(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with running(tmp_path, stuck(tmp_path, ROW)) as run:
        await run.out.says("a segment runs")
        run.send(signal.SIGINT)
        await run.err.says("interrupted: releasing 1 rollout; what has finished is on disk")
        await run.out.says("cleaning")
        for times in (1, 2):
            run.send(signal.SIGINT)
            await run.err.says(
                "still releasing 1 rollout; each step of it has a bound, and it is not cut short\n", times
            )
        assert run.process.returncode is None
        await trio.to_thread.run_sync(gate.write_text, "go on")
        await run.out.says("cleaned")
        assert await run.ended() == 130

    (trace,) = traces_of(tmp_path / "out")
    assert trace.transitions[-1].target == "aborted"
    assert "Traceback" not in run.err.text
    nothing_is_left(tmp_path)


async def test_an_interruption_before_the_run_has_begun_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "slow.py").write_text("print('importing', flush=True)\nopen('gate').read()\n")
    (tmp_path / "tasks.jsonl").write_text(ROW)

    async with running(tmp_path, ["run", "tasks.jsonl", "--task", "slow:Task", "-m", "scripted"]) as run:
        await run.out.says("importing")
        run.send(signal.SIGINT)
        assert await run.ended() == 130

    assert run.err.text == "rollout-fsm: interrupted\n"


async def test_a_signal_that_the_shell_has_silenced_stays_silenced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    silence = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"  # as nohup does

    async with running(tmp_path, stuck(tmp_path, ROW), first=silence) as run:
        await run.out.says("a segment runs")
        run.send(signal.SIGHUP)
        run.send(signal.SIGTERM)
        await run.out.says("cleaning")
        await trio.to_thread.run_sync((tmp_path / "gate").write_text, "go on")
        assert await run.ended() == 143

    assert run.err.text == "told to end: releasing 1 rollout; what has finished is on disk\n"


async def test_what_could_not_be_written_is_named_and_the_exit_code_says_so(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(ROW * 60)
    arguments = ["run", "tasks.jsonl", "-m", "scripted", "-o", "out", "-c", "1", "--fail-on-error"]
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"  # as if the disk were full

    async with running(tmp_path, arguments, first=full) as run:
        assert await run.ended() == 3

    written, lost = traces_of(tmp_path / "out"), re.findall("the trace of rollout ([0-9a-f]{32}) is lost", run.err.text)
    assert 0 < len(written) < 60
    assert len(set(lost)) == 60 - len(written)
    assert not set(lost) & {trace.id for trace in written}
    assert "File too large" in run.err.text
    assert "rollout-fsm: not all was kept for a crash: the journal out/journal.db " in run.err.text
    assert "Traceback" not in run.err.text
    assert "60 of 60 rollouts" in run.out.text


async def test_a_reader_that_goes_away_does_not_disturb_the_run(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(ROW * 20)

    async with running(tmp_path, ["run", "tasks.jsonl", "-m", "scripted", "-c", "1", "-o", "out"]) as run:
        await run.out.says("[1/20]")
        await run.out.close()
        said = await run.err.all()
        assert await run.process.wait() == 0

    assert said == ""
    assert len(traces_of(tmp_path / "out")) == 20


async def test_a_list_can_be_cut_by_its_reader(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(ROW * 3)
    async with running(tmp_path, ["run", "tasks.jsonl", "-m", "scripted", "-o", "out"]) as run:
        assert await run.ended() == 0
    whole = (tmp_path / "out" / "traces.jsonl").read_text()
    (tmp_path / "out" / "traces.jsonl").write_text(whole * 500)

    async with running(tmp_path, ["show", "out"]) as show:
        await show.out.says("id")
        await show.out.close()
        assert await show.err.all() == ""
        assert await show.process.wait() == 0


COLOUR = re.compile(r"\x1b\[(?:\d+;)*[349][0-7](?:;|m)")


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_on_a_terminal_the_run_is_a_picture_that_makes_way_for_the_summary(
    variables: dict[str, str], coloured: bool, tmp_path: Path
) -> None:
    mine, its = pty.openpty()
    (tmp_path / "tasks.jsonl").write_text(ROW * 4)
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "rollout_fsm", "run", "tasks.jsonl", "-m", "scripted", "-o", "out"],
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(HOME), "TERM": "xterm-256color", "COLUMNS": "100"} | variables,
    )
    os.close(its)

    def read() -> bytes:
        said = b""
        while True:
            try:
                piece = os.read(mine, 65536)
            except OSError:  # how Linux says that nobody has the other end any more
                return said
            if not piece:
                return said
            said += piece

    said = (await trio.to_thread.run_sync(read)).decode()
    os.close(mine)

    assert await process.wait() == 0
    picture, _, summary = said.rpartition("\x1b[?25h")
    assert "of 4" in picture
    assert "aborting" in picture
    assert "4 of 4 rollouts" in summary
    assert "[1/4]" not in said
    assert bool(COLOUR.search(said)) is coloured


async def test_help_is_shown_without_importing_what_runs(tmp_path: Path) -> None:
    async with running(tmp_path, ["--help"], {"PYTHONPROFILEIMPORTTIME": "1"}) as run:
        assert await run.ended() == 0

    imported = {line.rpartition("|")[2].strip() for line in run.err.text.splitlines()}
    assert "rollout_fsm.cli.app" in imported
    ours = {"rollout_fsm.engine", "rollout_fsm.machine.lifecycle"}
    assert imported.isdisjoint({"trio", "httpx2", "transitions", "importlib.metadata", *ours})
