"""A program pays for what it uses: what a scripted rollout in this process loads, and what it leaves alone."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

import rollout_fsm

UNUSED = (
    # HTTP, tool servers, the terminal
    "h11", "httpx2", "hypercorn", "mcp", "mcp_types", "pydantic", "starlette", "jsonschema", "cyclopts", "rich",
    # databases, and other event loops
    "sqlite3", "asyncio", "anyio", "uvloop",
    # of this package
    "rollout_fsm.aio", "rollout_fsm.cli", "rollout_fsm.conformance", "rollout_fsm.gateway",
    "rollout_fsm.grading.material", "rollout_fsm.harnesses", "rollout_fsm.journal.journal", "rollout_fsm.judges",
    "rollout_fsm.machine.check", "rollout_fsm.machine.proofs", "rollout_fsm.machine.search", "rollout_fsm.models",
    "rollout_fsm.output", "rollout_fsm.resuming", "rollout_fsm.runtimes", "rollout_fsm.simulation",
    "rollout_fsm.testing", "rollout_fsm.toolsets.mcp_server", "rollout_fsm.toolsets.program",
    "rollout_fsm.trace_json",
)  # fmt: skip

SCRIPTED = """
import sys
from functools import partial
from attrs import frozen
import trio
from rollout_fsm import AssistantMessage, Exchange, Harness, HarnessSession, Model, ProgramResult, Request, Response
from rollout_fsm import RolloutLimits, Runtime, Task, Trace, Usage, metric, open_engine, reward, stop


class Nowhere(Runtime):
    def __init__(self, name):
        self.name, self.stopped_it = name, False

    @property
    def stopped(self):
        return self.stopped_it

    async def start(self): ...
    async def read(self, path): ...
    async def write(self, path, data): ...

    async def stop(self):
        self.stopped_it = True

    async def run(self, argv, *, env=None, input=None, timeout=None):
        return ProgramResult(exit_code=0)


class Yes(Model):
    name = "yes"

    async def respond(self, request, sampling):
        return Response(message=AssistantMessage("yes"), usage=Usage(prompt_tokens=1, completion_tokens=1))


class Asking(Harness):
    async def open_session(self, exchange):
        return Session(exchange)


class Session(HarnessSession):
    def __init__(self, exchange):
        self.exchange = exchange

    async def run(self, messages):
        await self.exchange.respond(Request(messages=self.exchange.prompt))


@frozen(kw_only=True)
class Answered(Task):
    @stop
    def never(self, response: Response):
        return False

    @reward
    def answered(self, trace):
        return float(trace.last_reply == "yes")

    @metric
    def length(self, trace):
        return float(len(trace.last_reply))


async def main(**engine):
    settings = dict(harness=Asking(), model=Yes(), runtime=Nowhere, limits=RolloutLimits(max_turns=2))
    async with open_engine(**engine) as opened:
        trace = await opened.run(Answered(prompt="?"), **settings)
        async with opened.run_all([Answered(prompt="!")], **settings) as traces:
            async for other in traces:
                assert other.reward == trace.reward == 1.0, trace.errors
"""


def loaded(program: str, asked: Collection[str]) -> set[str]:
    """Which of these modules a program of its own has in the end. A package counts if anything of it is there."""
    tell = f"print(*{{name for name in {sorted(asked)!r} if name in sys.modules}})"
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{SCRIPTED}\n{program}\n{tell}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return set(ran.stdout.split())


def test_a_scripted_rollout_loads_no_server_no_database_no_box_and_no_proof() -> None:
    assert loaded("trio.run(partial(main, gateway=False))", UNUSED) == set()


def test_a_gateway_loads_what_serves_it_and_a_folder_what_keeps_a_journal(tmp_path: Path) -> None:
    kept = f"trio.run(partial(main, gateway=False, output_dir={str(tmp_path / 'run')!r}))"

    assert loaded("trio.run(main)", UNUSED) - {"h11"} == {"rollout_fsm.gateway"}
    assert loaded(kept, UNUSED) == {
        "sqlite3",
        "rollout_fsm.journal.journal",
        "rollout_fsm.output",
        "rollout_fsm.trace_json",
    }


def test_importing_the_package_loads_none_of_its_modules_but_the_one_that_finds_them() -> None:
    tell = "import sys; print(*sorted(name for name in sys.modules if name.startswith('rollout_fsm')))"
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import rollout_fsm; {tell}; assert 'trio' not in sys.modules"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["rollout_fsm", "rollout_fsm.lazy_names"]


LAZY = ("", ".grading", ".harnesses", ".journal", ".machine", ".models")


@pytest.mark.parametrize("package", LAZY)
def test_each_name_that_a_package_tells_of_is_where_the_type_checker_is_told_that_it_is(package: str) -> None:
    module = importlib.import_module(f"rollout_fsm{package}")
    assert module.__file__ is not None
    checked = {
        name.name: node.module
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for name in node.names
    }

    for name in module.__all__:
        assert getattr(module, name) is getattr(importlib.import_module(checked[name]), name)
        assert name in dir(module)
    with pytest.raises(AttributeError, match=rf"module 'rollout_fsm{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_a_name_is_looked_up_once() -> None:
    assert rollout_fsm.Task is vars(rollout_fsm)["Task"]


PACKAGE = Path(rollout_fsm.__file__).parent


def misspelt(package: str) -> str:
    """A name that is nearly one of the package's."""
    return f"{importlib.import_module(f'rollout_fsm{package}').__all__[0]}e"


def test_a_type_checker_knows_every_name_of_a_package_and_no_other(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    right = [f"from rollout_fsm{package} import *" for package in LAZY]
    wrong = [f"from rollout_fsm{package} import {misspelt(package)}" for package in LAZY]
    program.write_text("\n".join([*right, *wrong, ""]), encoding="utf-8")
    packages = [PACKAGE.joinpath(*package.split("."), "__init__.py") for package in LAZY]
    checker = (sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=skip", f"--cache-dir={tmp_path}")
    checked = subprocess.run([*checker, *packages, program], capture_output=True, text=True, check=False)

    assert [line.partition("error: ")[2].partition("; maybe")[0] for line in checked.stdout.splitlines()[:-1]] == [
        f'Module "rollout_fsm{package}" has no attribute "{misspelt(package)}"' for package in LAZY
    ], checked.stdout + checked.stderr


THREADS = """
import random, sys, threading
import rollout_fsm

sys.setswitchinterval(1e-6)
began, failures = threading.Barrier(8), []

def ask(seed):
    names = list(rollout_fsm.__all__)
    random.Random(seed).shuffle(names)
    began.wait()
    for name in names:
        try:
            getattr(rollout_fsm, name)
        except BaseException as error:
            failures.append(f"{name}: {error!r}")

threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*failures, sep="\\n")
"""


def test_threads_that_ask_for_names_at_once_are_all_given_them() -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", THREADS], capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("", "")


def homes(module: ast.Module) -> dict[str, str]:
    """The names that a package finds when they are asked for, and their modules."""
    return {
        name.name: imported.module
        for block in module.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for imported in block.body
        if isinstance(imported, ast.ImportFrom) and imported.module is not None
        for name in imported.names
    }


def test_no_module_asks_for_such_a_name_while_it_is_imported_itself() -> None:
    lazy = {
        f"rollout_fsm{package}": homes(ast.parse(PACKAGE.joinpath(*package.split("."), "__init__.py").read_text()))
        for package in LAZY
    }
    assert all(lazy.values())
    asked = [
        f"{path.relative_to(PACKAGE)}: {name.name} of {imported.module}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for imported in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(imported, ast.ImportFrom)
        for name in imported.names
        if name.name in lazy.get(imported.module or "", ())
    ]
    assert asked == []


def test_every_package_that_finds_its_names_late_is_known_here() -> None:
    late = {path.parent for path in PACKAGE.rglob("__init__.py") if "lazy_names(" in path.read_text(encoding="utf-8")}
    assert late == {PACKAGE.joinpath(*package.split(".")) for package in LAZY}
