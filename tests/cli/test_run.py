"""`rollout-fsm run`, offline and in this process: what it writes, what it prints, how it ends."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from rollout_fsm import Trace, check_trace, read_traces
from rollout_fsm.exact_json import FormatError
from rollout_fsm.reports.summary import Summary
from rollout_fsm.trace import RunInfo
from tests.cli.conftest import ROWS, SUMS, CommandLine, Said

SCRIPTED = ("-m", "scripted")


def no_fault(number: int, fault: FormatError) -> None:
    pytest.fail(f"line {number}: {fault}")


def traces_of(folder: Path) -> list[Trace]:
    return list(read_traces(folder / "traces.jsonl", on_fault=no_fault))


def ran(cli: CommandLine, *arguments: str, module: str = SUMS, rows: str = ROWS) -> Said:
    tasks = cli.file("sums.jsonl", rows)
    return cli("run", tasks, "--task", f"{cli.module(module)}:Sum", *SCRIPTED, *arguments)


def row_of(out: str, name: str) -> list[str]:
    """The cells of the line of a table whose first one is this; a single blank does not part two cells."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    (row,) = [cells for cells in rows if cells[0] == name]
    return row


def test_a_run_writes_a_trace_for_each_rollout_its_settings_and_its_log(cli: CommandLine) -> None:
    said = ran(cli, "-r", "3", "-o", "out")

    assert (said.code, said.err) == (0, "")
    folder = cli.folder / "out"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "config.toml",
        "journal.db",
        "logs/run.log",
        "traces.jsonl",
    ]
    traces = traces_of(folder)
    assert [check_trace(trace) for trace in traces] == [[]] * 6
    assert sorted(str(trace.task.data["idx"]) for trace in traces) == ["0", "0", "0", "1", "1", "1"]
    assert len((folder / "logs" / "run.log").read_text().splitlines()) == 6


def test_the_numbers_on_the_screen_are_those_of_the_traces(cli: CommandLine) -> None:
    failing = (
        SUMS
        + '\n    async def finalize(self, trace, runtime):\n        if self.answer == "x": raise ValueError("no")\n'
    )
    said = ran(cli, "-r", "2", "-o", "out", module=failing, rows=ROWS + '{"prompt": "3?", "answer": "x"}\n')

    summary = Summary.of(traces_of(cli.folder / "out"))
    assert said.code == 0
    assert "sums   6 of 6 rollouts, 4 ok, in " in said.out
    assert row_of(said.out, "completed") == ["completed", "agent_completed", "4"]
    assert row_of(said.out, "failed") == ["failed", "agent_completed", "TaskError", "2"]
    assert row_of(said.out, "all") == ["all", "6"]
    assert row_of(said.out, "reward") == ["reward", "0.500", "4 of 6", "2"]
    assert row_of(said.out, "reward correct") == ["reward correct", "1", "0.500", "4 of 6", "2"]
    assert row_of(said.out, "metric length") == ["metric length", "10", "4 of 6", "2"]
    assert row_of(said.out, "turns") == ["turns", "6", "1.0", "1", "6 of 6"]
    tokens = summary.totals["output_tokens"]
    assert row_of(said.out, "output tokens") == ["output tokens", f"{tokens.total}", "4.0", "4", "6 of 6"]
    for span in ("boot", "setup", "agent", "finalize"):
        assert row_of(said.out, span)[-1] == "6 of 6"
    assert row_of(said.out, "scoring")[-1] == "4 of 6"


def test_piped_output_has_a_line_for_each_rollout_and_no_control_codes(cli: CommandLine) -> None:
    said = ran(cli, "-r", "2", "-o", "out")

    progress = [line for line in said.out.splitlines() if line.startswith("[")]
    traces = traces_of(cli.folder / "out")
    assert [line.split()[0] for line in progress] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert {line.rpartition("id=")[2] for line in progress} == {trace.id for trace in traces}
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", said.out)
    assert not any(line.endswith(" ") for line in said.out.splitlines())


def test_without_a_folder_named_the_run_gets_one_of_its_own(cli: CommandLine) -> None:
    first, second = ran(cli), ran(cli, "--name", "two words/..")

    assert (first.code, second.code) == (0, 0)
    folders = sorted(str(path.parent.parent.relative_to(cli.folder)) for path in cli.folder.rglob("traces.jsonl"))
    assert folders == ["outputs/sums", "outputs/two-words"]
    (named,) = (cli.folder / "outputs" / "two-words").iterdir()
    assert {trace.run for trace in traces_of(named)} == {RunInfo(id=named.name, name="two words/..")}
    assert str((named / "traces.jsonl").relative_to(cli.folder)) in second.out


def test_the_settings_of_a_run_run_it_again(cli: CommandLine) -> None:
    ran(
        cli, "-n", "1", "-r", "2", "-c", "1", "-T", "0.5", "--max-turns", "3", "--timeout.agent", "inf", "--name", 'a"b'
    )
    (config,) = cli.folder.rglob("config.toml")

    again = cli("run", "--config", str(config), "-o", "again")

    assert again.code == 0
    assert len(traces_of(cli.folder / "again")) == 2
    settled = tomllib.loads(config.read_text())
    origin = {**settled["origin"], "run": traces_of(cli.folder / "again")[0].run.id}
    written = tomllib.loads((cli.folder / "again" / "config.toml").read_text())
    assert written == {**settled, "output_dir": "again", "origin": origin}
    assert settled["timeouts"] == {"agent": float("inf")}
    assert settled["name"] == 'a"b'


def test_flags_win_over_the_file_setting_by_setting(cli: CommandLine) -> None:
    file = "num_tasks = 1\nrollouts_per_task = 5\n[timeout]\nagent = 7\nsetup = 8\n[policy]\nno_progress = 'fail'\n"
    cli.file("run.toml", file + "[sampling.extra]\ntop_k = 4\n")

    said = cli(
        "run", "--config", "run.toml", "-r", "2", "--timeouts.agent", "9", "--policy.agent-expiry", "stop", "--dry-run"
    )

    settled = tomllib.loads(said.out)
    assert (settled["num_tasks"], settled["rollouts_per_task"]) == (1, 2)
    assert settled["timeouts"] == {"agent": 9.0, "setup": 8}
    assert settled["policy"] == {"agent_expiry": "stop", "no_progress": "fail"}
    assert settled["sampling"] == {"extra": {"top_k": 4}}


@pytest.mark.parametrize("flags", [("-n", "1"), ("--num-examples", "1"), ("--num-tasks", "1")])
@pytest.mark.parametrize("times", [("-r", "2"), ("--num-rollouts", "2"), ("--rollouts-per-example", "2")])
def test_a_dry_run_says_how_many_rollouts_there_would_be_and_writes_nothing(
    flags: tuple[str, ...], times: tuple[str, ...], cli: CommandLine
) -> None:
    said = cli("run", *flags, *times, "--dry-run")

    assert said.code == 0
    assert said.out.startswith("# 1 task × 2 = 2 rollouts\n")
    assert list(cli.folder.iterdir()) == []


def test_what_a_task_says_of_its_bounds_is_not_hidden_by_defaults(cli: CommandLine) -> None:
    rows = '{"prompt": "?", "answer": "4", "timeouts": {"scoring": 17}}\n'

    ran(cli, "-o", "out", rows=rows)

    assert "timeouts" not in tomllib.loads((cli.folder / "out" / "config.toml").read_text())
    assert "17" in json.dumps(traces_of(cli.folder / "out")[0].agent.config)


def test_the_same_shuffle_takes_the_same_tasks(cli: CommandLine) -> None:
    rows = "".join(f'{{"prompt": "?", "answer": "{place}"}}\n' for place in range(40))

    def taken(*flags: str) -> list[object]:
        folder = f"out{len(list(cli.folder.glob('out*')))}"
        ran(cli, "-n", "5", "-c", "1", "-o", folder, *flags, rows=rows)
        return [trace.task.data["idx"] for trace in traces_of(cli.folder / folder)]

    assert taken() == [0, 1, 2, 3, 4]
    assert taken("-s") == taken("--shuffle", "--shuffle-seed", "0") != [0, 1, 2, 3, 4]
    assert taken("-s", "--shuffle-seed", "7") != taken("-s")


def test_failed_rollouts_are_data_unless_it_is_asked_to_fail_for_them(cli: CommandLine) -> None:
    failing = SUMS.replace("return len(trace.last_reply)", "raise ValueError('no')")

    assert ran(cli, module=failing).code == 0
    assert ran(cli, "--fail-on-error", module=failing).code == 1
    assert ran(cli, "--fail-on-error").code == 0


def test_a_tasks_file_without_a_class_is_prompts_that_nobody_scores(cli: CommandLine) -> None:
    tasks = cli.file(
        "prompts.jsonl", '\ufeff{"prompt": "Hello?"}\n\n{"prompt": [{"role": "user", "content": "Well?"}]}\n'
    )

    said = cli("run", tasks, *SCRIPTED, "-o", "out")

    assert said.code == 0
    assert [trace.reward for trace in traces_of(cli.folder / "out")] == [None, None]
    assert "measured" not in said.out


def test_a_harness_can_be_a_class_a_function_or_an_object(cli: CommandLine) -> None:
    module = cli.module(
        "from rollout_fsm import ChatHarness\nclass Mine(ChatHarness): ...\ndef make(): return Mine()\nmade = Mine()\n"
    )
    tasks = cli.file("prompts.jsonl", '{"prompt": "Hello?"}\n')

    for place, name in enumerate(("Mine", "make", "made")):
        assert cli("run", tasks, *SCRIPTED, "--harness", f"{module}:{name}", "-o", f"out{place}").code == 0
        (trace,) = traces_of(cli.folder / f"out{place}")
        assert "Mine" in json.dumps(trace.agent.config)


def test_a_harness_can_be_a_command_line_with_a_program_of_the_current_folder(cli: CommandLine) -> None:
    cli.file("agent.py", "import sys\nprint(sys.argv[1:])\n")
    tasks = cli.file("prompts.jsonl", '{"prompt": "Hello, you?"}\n')

    said = cli("run", tasks, *SCRIPTED, "--harness", "{python} agent.py --say {prompt}", "-o", "out")

    (trace,) = traces_of(cli.folder / "out")
    assert said.code == 0
    assert (trace.ok, trace.stop_condition) == (True, "no_progress")


def test_more_is_logged_when_asked_and_all_of_it_stays_harmless(cli: CommandLine) -> None:
    noisy = SUMS.replace(
        "return len(trace.last_reply)",
        "import logging; log = logging.getLogger('mine'); log.warning('\\x1b[2Jboo'); log.info('quiet'); return 1.0",
    )

    usual, more = ran(cli, "-n", "1", module=noisy), ran(cli, "-n", "1", "-v", module=noisy)

    assert usual.err == "WARNING mine: \\x1b[2Jboo\n"
    assert "INFO mine: quiet" in more.err
    assert "INFO rollout_fsm: rollout done: id=" in more.err
    assert "DEBUG" not in more.err
    assert all("quiet" in log.read_text() for log in cli.folder.rglob("run.log"))


def test_a_name_that_would_act_on_the_terminal_does_not(cli: CommandLine) -> None:
    said = ran(cli, "-n", "1", "--name", "\x1b[2Jboo", "-o", "out")

    assert said.code == 0
    assert "\x1b" not in said.out
    assert "\\x1b[2Jboo   1 of 1 rollouts" in said.out


def test_help_names_every_command_and_every_setting(cli: CommandLine) -> None:
    top, run = cli("--help"), cli("run", "--help")

    assert (top.code, run.code) == (0, 0)
    for command in ("run", "resume", "score", "show", "check", "simulate", "diagram"):
        assert f" {command} " in top.out
    for flag in ("--max-turns", "--timeout.agent", "--policy.no-progress", "--api-base-url", "-k", "--dry-run"):
        assert flag in run.out
    assert cli("--version").out.strip()
