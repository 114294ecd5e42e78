"""Whatever is asked for wrongly is one clear line on standard error and exit code 2, never a traceback, and leaves
nothing."""

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import ROWS, SUMS, CommandLine, Said


def refused(said: Said, line: str) -> None:
    """One line that matches, whole; nothing else."""
    assert said.code == 2
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert re.fullmatch(f"rollout-fsm: {line}", lines[0]), lines[0]


FLAGS = {
    "run nosuch.jsonl": r"nosuch\.jsonl: cannot be read: No such file or directory",
    "run .": r"\.: cannot be read: Is a directory",
    "run --nm-tasks 3": r"Unknown option: --nm-tasks\. Did you mean --num-tasks\?",
    "run -n three": r'Invalid value for -n: unable to convert "three" into int\.',
    "run -n": r'Command "run" parameter -n requires an argument\.',
    "run -n -3": r"--num-tasks: must be a whole number of at least 1, not -3",
    "run -r 0": r"--rollouts-per-task: must be a whole number of at least 1, not 0",
    "run -c -1": r"--max-concurrent: must be a whole number of at least 1, not -1",
    "run --max-turns -1": r"--max-turns: must be a whole number of at least 0, not -1",
    "run --timeout.agent -1": r"--timeout\.agent: must be a number of seconds of at least 0, or inf .*, not -1",
    "run --timeout.boot inf": r"--timeout\.boot: must be a finite number of seconds of at least 0, not inf",
    "run --timeouts.setup nan": r"--timeout\.setup: must be a finite number of seconds of at least 0, not nan",
    "run -T -2": r"--temperature: must be between 0 and 100, not -2",
    "run -t 0": r"--max-tokens: must be a whole number of at least 1, not 0",
    "run --port 70000": r"--port: must be between 0 and 65535, not 70000",
    "run --policy.agent-expiry sto": r'Invalid value "sto" for --policy\.agent-expiry\. Choose from: .*',
    "run --task m:T": r"--task m:T needs a file of tasks: .*",
    "run --harness chta": r"--harness: there is no harness and no program 'chta'; did you mean 'chat'\?",
    "run --harness 'a": r"--harness: \"'a\" is no command line: No closing quotation",
    "run --harness nosuch_module:Thing": r"--harness: there is no module nosuch_module, neither installed nor in .*",
    "run --harness json:JSONDecoder": r"--harness: json:JSONDecoder is a class, but no harness; derive it .*",
    "run --harness rollout_fsm:ChatHarnes": r"--harness: the module rollout_fsm has no 'ChatHarnes'; did you mean .*",
    "run --runtime locla": r"--runtime: there is no runtime 'locla'; did you mean 'local'\? \(or .*\)",
    "run --runtime json:JSONDecoder": r"--runtime: json:JSONDecoder is a class, not a runtime; derive it .*",
    "run --runtime json:nothing": r"--runtime: the module json has no 'nothing'",
    "run -m gpt-x": r"--model gpt-x: no key for https://api\.openai\.com/v1: set .* OPENAI_API_KEY.*",
    "run -m loacl": r"--model loacl: no key .* \(offline there are the models .*; did you mean 'local'\?\)",
    "run -m x -b example.com": r"--model x: base_url of the model 'x' must begin with http:// or https://.*",
    "run -m x -k NO_SUCH_KEY": r"--api-key-var: the environment variable NO_SUCH_KEY is not set.*",
    "run -m scripted -b http://x": r"--model scripted runs in this process and takes no --base-url; .*",
    "run -b http://x": r"which model\? name one with --model: .*",
    "run --config nosuch.toml": r"nosuch\.toml: cannot be read: No such file or directory",
    "run a b c": r"too many arguments: 'b', 'c'; see --help, and quote what has blanks in it",
    "runn": r"there is no command 'runn'; did you mean 'run'\?",
    "--frobnicate": r"there is no command '--frobnicate'; there are run, resume, score, show, check, simulate, diagram",
    "show": r'Command "show" parameter TRACES requires an argument\.',
    "score": r'Command "score" parameter TRACES requires an argument\.',
    "score nosuch.jsonl --task rollout_fsm:Task": r"there is no file nosuch\.jsonl; .*",
    "show nosuch.jsonl": r"there is no file nosuch\.jsonl; name a file of traces or the folder of a run",
    "show .": r"the folder \. holds no traces\.jsonl; .*",
    "check nosuch.jsonl": r"there is no file nosuch\.jsonl; .*",
    "simulate": r"simulate needs a scenario: rollout-fsm simulate SCENARIO\.json",
    "diagram --trace here": r"--trace: 'here' names no trace; write TRACES#ID, as in traces\.jsonl#3f2a",
    "diagram --check --trace a#b": r"--check compares the files in diagrams/ and --trace draws one rollout; choose one",
    "diagram --trace a#b -o x.png": r"--output: x\.png is no kind of picture; there are \.mmd, \.dot, \.svg",
}


@pytest.mark.parametrize(("arguments", "line"), FLAGS.items(), ids=FLAGS)
def test_a_wrong_flag_is_refused_in_one_line(arguments: str, line: str, cli: CommandLine) -> None:
    refused(cli(*arguments.split()), line)
    assert list(cli.folder.iterdir()) == []


ROWS_WRONG = {
    '{"answer": "4"}\n\n\n\n\n\n{"prompt" "?"}': r"t\.jsonl: line 7 is not JSON: Expecting ':' .*, at column 11",
    '["prompt"]': r"t\.jsonl: line 1 is an array, not a JSON object with the task's columns",
    '{"answer": "4"}\nnull': r"t\.jsonl: line 2 is null, not a JSON object with the task's columns",
    '{"answer": "4"}\n7': r"t\.jsonl: line 2 is a number, not .*",
    '{"anser": "4"}': r"t\.jsonl: line 1: column 'anser': Sum has no .*; did you mean 'answer'\?; answer: missing",
    '{"prompt": "?"}': r"t\.jsonl: line 1: answer: missing",
    '{"answer": 4}': r"t\.jsonl: line 1: answer: expected a string, not 4 \(a whole number\)",
    '{"answer": NaN}': r"t\.jsonl: line 1 is not JSON: it has no NaN",
    '{"answer": "4", "prompt": [{"role": "usr", "content": "?"}]}': r"t\.jsonl: line 1: prompt.*'usr'.*",
    "": r"t\.jsonl: there are no tasks in it; write one JSON object on each line",
    "\n \n": r"t\.jsonl: there are no tasks in it; .*",
    '{"answer": 4}\n{"answer": "4"}\n{}\n{}': r"t\.jsonl: line 1: answer: .* \(and 2 more lines are wrong\)",
    "[" * 100_000: r"t\.jsonl: line 1 is nested too deeply",
}


@pytest.mark.parametrize(("text", "line"), ROWS_WRONG.items(), ids=range(len(ROWS_WRONG)))
def test_a_wrong_row_is_refused_with_its_line(text: str, line: str, cli: CommandLine) -> None:
    module, tasks = cli.module(SUMS), cli.file("t.jsonl", text)

    refused(cli("run", tasks, "--task", f"{module}:Sum", "-m", "scripted"), line)
    assert not (cli.folder / "outputs").exists()


def test_a_row_that_is_not_utf_8_is_refused_with_its_line(cli: CommandLine) -> None:
    (cli.folder / "t.jsonl").write_bytes(b'{"prompt": "?"}\n{"prompt": "\xff"}\n')

    refused(cli("run", "t.jsonl", "-m", "scripted"), r"t\.jsonl: line 2 is not UTF-8: its byte 13 is 0xff")


MODULES = {
    "x = = 1": r"the module \S+ cannot be imported: SyntaxError: invalid syntax \(\S+\.py, line 1\)",
    "import nothing_of_the_sort": r"the module \S+ cannot be imported: ModuleNotFoundError: No module named "
    r"'nothing_of_the_sort' \(\S+\.py, line 1\)",
    "\n\nSum = 1 / 0": r"the module \S+ cannot be imported: ZeroDivisionError: division by zero \(\S+\.py, line 3\)",
    "raise SystemExit": r"the module \S+ ends the program when it is imported",
    "Sun = 1": r"the module \S+ has no 'Sum'; did you mean 'Sun'\?",
    "class Sum: ...": r"\S+:Sum is a class, not a class of tasks; derive it from rollout_fsm\.Task",
    "Sum = 3": r"\S+:Sum is an int, not a class of tasks; derive it from rollout_fsm\.Task",
}


@pytest.mark.parametrize(("text", "line"), MODULES.items(), ids=range(len(MODULES)))
def test_a_wrong_module_is_refused_with_what_is_wrong_in_it(text: str, line: str, cli: CommandLine) -> None:
    module, tasks = cli.module(text), cli.file("t.jsonl", ROWS)

    refused(cli("run", tasks, "--task", f"{module}:Sum", "-m", "scripted"), f"--task: {line}")


def test_a_task_that_is_no_attrs_class_is_told_so(cli: CommandLine) -> None:
    module = cli.module("from rollout_fsm import Task\nclass Sum(Task):\n    answer: str\n")
    tasks = cli.file("t.jsonl", ROWS)

    refused(
        cli("run", tasks, "--task", f"{module}:Sum", "-m", "scripted"),
        r"t\.jsonl: line 1: column 'answer': Sum declares it but is no attrs class; decorate .*",
    )


def test_a_hook_that_fits_nowhere_is_refused_and_the_folder_can_be_named_again(cli: CommandLine) -> None:
    wrong = SUMS.replace("metric, reward", "metric, reward, stop") + "\n    @stop\n    def enough(self): return True\n"
    module, tasks = cli.module(wrong), cli.file("t.jsonl", ROWS)

    said = cli("run", tasks, "--task", f"{module}:Sum", "-m", "scripted", "-o", "out")

    refused(said, r".*enough.*it is annotated for no boundary.*")
    assert not (cli.folder / "out").exists()


def test_a_task_that_cannot_say_its_key_is_refused_in_one_line_before_anything_is_made(cli: CommandLine) -> None:
    keyless = SUMS + "\n    @property\n    def key(self): raise KeyError('which?')\n"
    module, tasks = cli.module(keyless), cli.file("t.jsonl", ROWS)

    said = cli("run", tasks, "--task", f"{module}:Sum", "-m", "scripted", "-o", "out")

    refused(said, r"--task: key or hash of Sum number 0 failed: KeyError: 'which\?'")
    assert not (cli.folder / "out").exists()


def test_a_missing_extra_is_said_with_the_command_that_installs_it(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollout_fsm.models.local.find_spec", lambda package: None)

    refused(
        cli("run", "-m", "local"),
        r"--model local: the local model needs the package xllamacpp, which is not installed: "
        r'pip install "rollout-fsm\[local\]"',
    )


def test_a_port_in_use_is_refused_and_the_folder_can_be_named_again(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = cli("run", "-o", "out", "--port", str(port))

    refused(said, rf"the gateway cannot listen on 127\.0\.0\.1:{port}: Address already in use.*")
    assert not (cli.folder / "out").exists()


def holds_a_run(folder: Path) -> None:
    folder.mkdir()
    (folder / "traces.jsonl").touch()


def holds_settings(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.toml").write_text("mine = true\n")


FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "it holds a run": (
        holds_a_run,
        r"--output-dir: out already holds a run \(traces\.jsonl\); go on with it by `rollout-fsm resume out`, or .*",
    ),
    "it holds settings": (
        holds_settings,
        r"--output-dir: out already holds a run \(config\.toml\); name another folder",
    ),
    "it is a file": (Path.touch, r"--output-dir: out is a file; name a folder for the run"),
}


@pytest.mark.parametrize(("make", "line"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_that_is_taken_is_refused_and_left_as_it_is(
    make: Callable[[Path], object], line: str, cli: CommandLine
) -> None:
    make(cli.folder / "out")
    before = {path: path.read_bytes() for path in cli.folder.rglob("*") if path.is_file()}

    refused(cli("run", "-o", "out"), line)
    refused(cli("run", "-o", "out", "--dry-run"), line)
    assert {path: path.read_bytes() for path in cli.folder.rglob("*") if path.is_file()} == before


def test_a_folder_that_cannot_be_written_is_refused(cli: CommandLine) -> None:
    cli.file("file", "")

    refused(cli("run", "-o", "file/out"), r"the folder file/out cannot be written: Not a directory; name another one")


def test_all_faults_of_a_file_of_settings_are_said_at_once_each_with_its_path(cli: CommandLine) -> None:
    cli.file("run.toml", 'num_tsks = 3\nport = 99999\n[timeouts]\nboot = "x"\n[policy]\nno_progress = "go"\n')

    said = cli("run", "--config", "run.toml")

    assert said.code == 2
    assert sorted(said.err.splitlines()) == [
        "rollout-fsm: run.toml: num_tsks: unknown key; did you mean 'num_tasks'?",
        "rollout-fsm: run.toml: policy.no_progress: expected 'fail' or 'stop', not 'go' (a string)",
        "rollout-fsm: run.toml: port: must be between 0 and 65535, not 99999",
        "rollout-fsm: run.toml: timeouts.boot: expected a number, not 'x' (a string)",
    ]


def test_what_is_said_of_foreign_text_cannot_act_on_the_terminal(cli: CommandLine) -> None:
    said = cli("run", "\x1b]0;owned\x07\x1b[2Jx.jsonl")

    assert said.code == 2
    assert "\x1b" not in said.err
    assert "\x07" not in said.err
    assert "\\x1b[2Jx.jsonl" in said.err
