"""Retries and the bound on agents by flags and by file: what is taken, what is refused, what the summary says."""

import json
import re
import tomllib

import pytest

from rollout_fsm import RetryPolicy, Trace, read_traces
from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.parts import make_retry
from rollout_fsm.cli.settings import RetrySettings, Settings, faults, flag
from tests.cli.conftest import CommandLine

FLAKY = """
from attrs import frozen
from rollout_fsm import SandboxError, Task, Trace, reward

class Mine(SandboxError): ...

tried = []

@frozen(kw_only=True)
class Flaky(Task):
    async def setup(self, trace, runtime):
        tried.append(self.name)
        if self.name == "bad" or (self.name == "flaky" and tried.count("flaky") < 3):
            raise Mine("the box is odd")

    @reward
    def right(self, trace: Trace) -> float:
        return 1.0
"""
ROWS = '{"prompt": "?", "name": "good"}\n{"prompt": "?", "name": "flaky"}\n{"prompt": "?", "name": "bad"}\n'


def ran(cli: CommandLine, *arguments: str) -> tuple[str, dict[str, Trace]]:
    """What a run of the flaky tasks says, and its traces by the names of their tasks."""
    module = cli.module(FLAKY)
    said = cli(
        "run",
        cli.file("t.jsonl", ROWS),
        "--task",
        f"{module}:Flaky",
        "-m",
        "scripted",
        "-o",
        "out",
        *(argument.format(module=module) for argument in arguments),
    )
    assert (said.code, said.err) == (0, "")
    traces = read_traces(cli.folder / "out" / "traces.jsonl", on_fault=lambda *fault: pytest.fail(str(fault)))
    return said.out, {str(trace.task.data["name"]): trace for trace in traces}


def attempts(trace: Trace) -> int:
    earlier = trace.info.get("attempts", [])
    assert isinstance(earlier, list)
    return len(earlier) + 1


def cells(out: str, name: str) -> list[str]:
    (line,) = [line for line in out.splitlines() if line.strip().startswith(f"{name}  ")]
    return re.split(r"\s{2,}", line.strip())


def test_what_failed_is_tried_again_and_the_summary_says_so(cli: CommandLine) -> None:
    out, traces = ran(cli, "--max-retries", "3", "--retry.backoff", "0", "--max-active-segments", "1")

    assert {name: attempts(trace) for name, trace in traces.items()} == {"good": 1, "flaky": 3, "bad": 4}
    assert " t   3 of 3 rollouts, 2 ok, 2 tried again, in " in out
    assert re.search(r"^ tried again after +attempts +rollouts\n.*\n Mine +5$", out, re.MULTILINE)
    assert cells(out, "together") == ["together", "5", "2"]
    assert cells(out, "sandbox_error") == ["sandbox_error", "sandbox", "no", "1"]
    settled = tomllib.loads((cli.folder / "out" / "config.toml").read_text())
    assert settled["retry"] == {"max_retries": 3, "backoff": 0.0}
    assert settled["max_active_segments"] == 1


@pytest.mark.parametrize(
    ("arguments", "tries"),
    [
        (("--max-retries", "1"), 2),
        ((), 1),
        (("--max-retries", "1", "--retry.include", "ProviderError"), 1),
        (("--max-retries", "1", "--retry.include", "ProviderError", "--retry.include", "{module}:Mine"), 2),
        (("--max-retries", "1", "--retry.exclude", "{module}:Mine"), 1),
        (("--max-retries", "1", "--retry.exclude", "sandbox_error"), 1),
    ],
)
def test_what_is_included_and_excluded_decides(arguments: tuple[str, ...], tries: int, cli: CommandLine) -> None:
    backoff = ("--retry.max-backoff", "0") if arguments else ()
    _, traces = ran(cli, *arguments, *backoff)

    assert attempts(traces["bad"]) == tries


def test_a_file_says_the_same_and_flags_win(cli: CommandLine) -> None:
    cli.file("run.toml", "[retries]\nmax_retries = 2\ninclude = ['provider_error']\nbackoff = 3\n")

    said = cli("run", "--config", "run.toml", "--retry.max-retries", "5", "--retries.max-backoff", "9", "--dry-run")

    assert tomllib.loads(said.out)["retry"] == {
        "max_retries": 5,
        "include": ["provider_error"],
        "backoff": 3,
        "max_backoff": 9.0,
    }


def test_all_faults_are_said_at_once_each_with_its_flag_or_path(cli: CommandLine) -> None:
    cli.file("run.toml", "max_active_segments = 0\n[retry]\nmax_retries = -1\ninclude = ['cancelled', 3]\n")

    flags = cli(
        "run", *("--max-retries", "-1", "--retry.include", "ProviderEror", "--retry.exclude", "agent_timeuot"),
        *("--retry.backoff", "nan", "--retry.max-backoff", "-1", "--max-active-segments", "0"),
    )  # fmt: skip
    file = cli("run", "--config", "run.toml")

    assert (flags.code, file.code) == (2, 2)
    assert sorted(flags.err.splitlines()) == [
        "rollout-fsm: --max-active-segments: must be a whole number of at least 1, not 0",
        "rollout-fsm: --max-retries: must be a whole number of at least 0, not -1",
        "rollout-fsm: --retry.backoff: must be a finite number of seconds of at least 0, not nan",
        "rollout-fsm: --retry.exclude: no ending 'agent_timeuot'; did you mean 'agent_timeout'?",
        "rollout-fsm: --retry.include: no type of errors 'ProviderEror'; did you mean 'ProviderError'? (or write "
        "module:Class)",
        "rollout-fsm: --retry.max-backoff: must be a finite number of seconds of at least 0, not -1",
    ]
    assert sorted(line.partition("run.toml: ")[2] for line in file.err.splitlines()) == [
        "max_active_segments: must be a whole number of at least 1, not 0",
        "retry.include[1]: expected a string, not 3 (a whole number)",
        "retry.max_retries: must be a whole number of at least 0, not -1",
    ]


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (RetrySettings(include=("TaskError",)), "--retry.include: nothing is tried again without --max-retries"),
        (RetrySettings(max_retries=0, backoff=2.0), "--retry.backoff: nothing is tried again without --max-retries"),
        (RetrySettings(max_retries=1, exclude=("json:dumps",)), "--retry.exclude: json:dumps is a function, not a .*"),
        (RetrySettings(max_retries=1, include=("nosuch_module:E",)), "--retry.include: there is no module nosuch.*"),
    ],
)
def test_what_makes_no_policy_is_refused(settings: RetrySettings, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        make_retry(settings)


def test_an_ending_of_aborted_rollouts_is_never_included() -> None:
    said = list(faults(Settings(retry=RetrySettings(include=("cancelled",)))))

    assert said == [("retry.include", "'cancelled' is an ending of aborted rollouts, which are never tried again")]


def test_settings_make_the_policy_that_they_say() -> None:
    made = make_retry(RetrySettings(max_retries=2, include=("TimeoutError", "json:JSONDecodeError"), backoff=0.5))

    assert made == RetryPolicy(max_retries=2, include=("TimeoutError", json.JSONDecodeError), backoff=0.5)
    assert make_retry(None) == make_retry(RetrySettings()) == RetryPolicy()
    assert flag("retry.max_retries") == "--max-retries"
    assert flag("retry.include") == "--retry.include"
