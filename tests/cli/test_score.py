"""`rollout-fsm score`: finished traces scored again, offline."""

import json
import os
import signal
from pathlib import Path

import pytest

from rollout_fsm import Trace, read_traces, trace_to_json
from rollout_fsm.reports.summary import Summary
from rollout_fsm.trace import Reward, TaskInfo
from rollout_fsm.traces_file import TracesFile
from tests.cli.conftest import ROWS, SUMS, CommandLine
from tests.cli.process import running
from tests.reports.made import FAILED, made

SIGNALS = """
from attrs import frozen
from rollout_fsm import Harness, Task, metric, reward

@frozen(kw_only=True)
class Probed(Task):
    answer: int

    @reward
    def right(self, trace):
        if self.answer < 0:
            raise ValueError("negative")
        return self.answer

    @reward
    def builds(self, runtime):
        return 1.0

class Counting(Harness):
    @metric
    def steps(self, trace):
        return 7

    async def open_session(self, exchange):
        raise AssertionError("no exchange is opened")

three = 3
"""


def trace(answer: object = 1, *, id: str = "t", kind: str = "Probed", **options: object) -> Trace:
    found = made(id=id, **options)  # type: ignore[arg-type]
    object.__setattr__(found, "task", TaskInfo(type=kind, data={"answer": answer}))  # type: ignore[dict-item]
    return found


def written(cli: CommandLine, *traces: Trace, name: str = "traces.jsonl") -> str:
    with TracesFile(cli.folder / name) as file:
        for each in traces:
            file.append(each)
    return name


def read(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def in_file(path: Path) -> list[Trace]:
    faults: list[object] = []
    found = list(read_traces(path, on_fault=lambda *fault: faults.append(fault)))
    assert faults == []
    return found


def test_a_run_is_scored_again_by_a_reward_that_was_corrected(cli: CommandLine) -> None:
    cli.file("tasks.jsonl", ROWS)
    cli.file("sums.py", SUMS)
    assert cli("run", "tasks.jsonl", "--task", "sums:Sum", "-m", "scripted", "-o", "out").code == 0
    before = in_file(cli.folder / "out" / "traces.jsonl")
    corrected = SUMS.replace("float(self.answer in trace.last_reply)", "0.25").replace("length", "size")
    module = cli.module(corrected)

    said = cli("score", "out", "--task", f"{module}:Sum", "-o", "again.jsonl")

    after = in_file(cli.folder / "again.jsonl")
    assert (said.code, said.err) == (0, "")
    assert [(each.id, each.ok, each.transitions) for each in after] == [
        (each.id, each.ok, each.transitions) for each in before
    ]
    assert [each.reward for each in after] == [0.25, 0.25]
    assert "2 of 2 traces scored again as Sum\n" in said.out
    assert "skipped       metric 'length': nothing of the task gave it" in said.out
    assert "reward correct 1 0.250 2 of 2" in " ".join(said.out.split())


def test_without_a_file_the_traces_are_json_lines_on_standard_output_in_the_order_of_the_file(cli: CommandLine) -> None:
    module = cli.module(SIGNALS)
    path = written(cli, *(trace(number, id=f"t{number}") for number in range(20)))

    said = cli("score", path, "--task", f"{module}:Probed", "-c", "7")

    lines = read(said.out)
    assert said.code == 0
    assert [line["id"] for line in lines] == [f"t{number}" for number in range(20)]
    assert [line["rewards"] for line in lines] == [
        {"right": {"score": number, "weight": 1.0}, "builds": None} for number in range(20)
    ]
    assert said.err.splitlines() == [
        "20 of 20 traces scored again as Probed",
        "  skipped       reward 'builds': it takes the runtime, which is gone (20 traces)",
    ]


def test_everything_that_is_not_as_usual_is_said_and_costs_itself_only(cli: CommandLine) -> None:
    module = cli.module(SIGNALS)
    fits = trace(1, id="fits", rewards={"old": Reward(score=1.0)})
    path = written(
        cli,
        fits,
        trace(-1, id="fails"),
        trace("x", id="misfit"),
        trace(1, id="early", path=FAILED),
        trace(1, id="other", kind="Sum"),
    )
    with open(cli.folder / path, "ab") as file:
        file.write(b"not a trace\n" + trace_to_json(trace(2, id="last")).encode() + b'\n{"id": "torn')

    said = cli("score", path, "--task", f"{module}:Probed")

    assert said.code == 1
    lines = {str(line["id"]): line for line in read(said.out)}
    assert list(lines) == ["fits", "fails", "misfit", "early", "other", "last"]
    for untouched in ("misfit", "early"):
        assert "info" not in lines[untouched] or lines[untouched]["info"] == {}
    assert lines["fails"]["rewards"] == {"right": None, "builds": None}
    assert said.err.splitlines() == [
        f"rollout-fsm: {path}: line 6: the trace cannot be read: it is not JSON: Expecting value: line 1 column 1 "
        "(char 0); passed over",
        "rollout-fsm: trace misfit was left as it was: the row does not fit Probed: answer: expected a whole number, "
        "not 'x' (a string)",
        "4 of 6 traces scored again as Probed, 1 never scored, 1 left as they were: the row does not fit, "
        "1 more lines are no traces",
        "  skipped       reward 'builds': it takes the runtime, which is gone (4 traces)",
        "  failed        TaskError: reward 'right' failed: ValueError: negative (1 trace)",
        "  dropped       rewards.old: nothing gives it any more (1 trace)",
        "  never scored  its rollout failed before scoring (1 trace)",
        "  other class   Sum, scored as Probed (1 trace)",
    ]


def test_failures_of_signals_are_data_unless_asked_for(cli: CommandLine) -> None:
    module = cli.module(SIGNALS)
    path = written(cli, trace(-1))
    assert cli("score", path, "--task", f"{module}:Probed").code == 0
    assert cli("score", path, "--task", f"{module}:Probed", "--fail-on-error").code == 1


def test_the_metrics_of_a_harness_are_measured_when_it_is_named(cli: CommandLine) -> None:
    module = cli.module(SIGNALS)
    path = written(cli, trace(1, metrics={"steps": 1.0}))
    said = cli("score", path, "--task", f"{module}:Probed", "--harness", f"{module}:Counting")
    assert read(said.out)[0]["metrics"] == {"steps": 7}


def test_the_tables_are_those_of_the_traces_as_they_are_now(cli: CommandLine) -> None:
    module = cli.module(SIGNALS)
    path = written(cli, trace(1, id="a"), trace(3, id="b"), trace(1, id="c", path=FAILED))
    said = cli("score", path, "--task", f"{module}:Probed", "-o", "new.jsonl")
    assert (said.code, said.err) == (0, "")
    summary = Summary.of(in_file(cli.folder / "new.jsonl"))
    assert (summary.rollouts, summary.reward.mean, summary.reward.measured) == (3, 2.0, 2)
    words = " ".join(said.out.split())
    assert "reward right 1 2 2 of 3 1" in words
    assert "reward builds – 0 of 3 3" in words


WRONG = [
    (("nothing.jsonl", "--task", "MODULE:Probed"), "there is no file nothing.jsonl"),
    (("traces.jsonl", "--task", "MODULE:Nope"), "has no 'Nope'"),
    (("traces.jsonl", "--task", "MODULE:three"), "is an int, not a class of tasks"),
    (("traces.jsonl", "--task", "MODULE:Probed", "-o", "taken"), "--output: taken exists already"),
    (("traces.jsonl", "--task", "MODULE:Probed", "-o", "no/where"), "--output: no/where cannot be written"),
    (("traces.jsonl", "--task", "MODULE:Probed", "-c", "0", "-o", "new"), "--max-concurrent: must be"),
    (("traces.jsonl", "--task", "MODULE:Probed", "--timeout.scoring", "inf"), "--timeout.scoring: must be"),
    (("traces.jsonl", "--task", "MODULE:Probed", "--harness", "MODULE:three"), "MODULE:three is an int"),
    (("traces.jsonl",), "--task"),
    (("empty", "--task", "MODULE:Probed", "-o", "new"), "empty: there are no traces in it"),
    (("traces.jsonl", "--task", "MODULE:Bad", "-o", "new"), "@stop Bad.never"),
]
BAD = """
from rollout_fsm import stop

class Bad(Probed):
    @stop
    def never(self):
        return True
"""


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_what_cannot_be_is_refused_and_leaves_no_file(cli: CommandLine, arguments: tuple[str, ...], words: str) -> None:
    module = cli.module(SIGNALS + BAD)
    written(cli, trace(1))
    cli.file("empty", "\n")
    cli.file("taken", "mine")
    said = cli("score", *(argument.replace("MODULE", module) for argument in arguments))
    assert said.code == 2
    assert words.replace("MODULE", module) in said.err
    assert said.out == ""
    assert (cli.folder / "taken").read_text() == "mine"
    assert not (cli.folder / "new").exists()


def test_help_says_what_it_does(cli: CommandLine) -> None:
    said = cli("score", "--help")
    assert said.code == 0
    for words in ("--task", "--output", "-o", "--harness", "--max-concurrent", "--timeout.scoring", "TRACES"):
        assert words in said.out


# ---- as a process

JUDGED = """
from pathlib import Path
import trio
from attrs import frozen
from rollout_fsm import Judge, Task

class Slow(Judge):
    name = "slow"

    async def score(self, task, trace):
        if task.answer >= 3:
            while Path("new.jsonl").read_bytes().count(b"\\n") < 3:
                await trio.sleep(0)
            print("asked", flush=True)
            await trio.sleep_forever()
        return 1.0

@frozen(kw_only=True)
class Judged(Task):
    answer: int

    def judges(self):
        return [Slow()]
"""


def judged(folder: Path, amount: int = 10) -> None:
    (folder / "judged.py").write_text(JUDGED)
    with TracesFile(folder / "traces.jsonl") as file:
        for number in range(amount):
            file.append(trace(number, id=f"t{number}", kind="Judged"))


@pytest.mark.real_time
@pytest.mark.whole_process
async def test_ctrl_c_ends_it_and_what_was_written_is_a_whole_prefix_of_the_file(tmp_path: Path) -> None:
    judged(tmp_path)
    arguments = ["score", "traces.jsonl", "--task", "judged:Judged", "-c", "2", "-o", "new.jsonl"]
    async with running(tmp_path, arguments) as run:
        await run.out.says("asked", times=2)
        run.send(signal.SIGINT)
        assert await run.ended() == 130
    assert run.err.text == "rollout-fsm: interrupted; what has been written is whole\n"
    found = in_file(tmp_path / "new.jsonl")
    assert [each.id for each in found] == ["t0", "t1", "t2"]
    assert [each.reward for each in found] == [1.0, 1.0, 1.0]
    assert (tmp_path / "new.jsonl").read_bytes().endswith(b"\n")
    assert "3 of 3 traces scored again as Judged" in run.out.text


@pytest.mark.real_time
@pytest.mark.whole_process
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
async def test_a_full_disk_ends_it_with_3_and_names_the_trace(tmp_path: Path) -> None:
    judged(tmp_path, 3)
    first = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    )
    arguments = ["score", "traces.jsonl", "--task", "judged:Judged", "-c", "1", "-o", "new.jsonl"]
    async with running(tmp_path, arguments, {"PYTHONDONTWRITEBYTECODE": "1"}, first=first) as run:
        assert await run.ended() == 3
    found = in_file(tmp_path / "new.jsonl")
    assert [each.id for each in found] == ["t0"]
    assert "rollout-fsm: the trace of rollout t1 could not be written: File too large\n" in run.err.text
    assert "ended there; what is in the file is whole (1 trace)" in run.err.text
