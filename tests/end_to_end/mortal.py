"""A program that runs rollouts and may be killed at any moment; started again, it goes on with its run.

`python -m tests.end_to_end.mortal FOLDER TASKS EDITION LAST RUNTIME` says on its standard output, a line of JSON each,
whatever happens: what, to which trace, and the hash of its task or, where it is yielded, a digest of it. If LAST is not
0 it kills itself in the middle of its operation number LAST on a file or a folder: before it, after it, or with half of
it done. Some of its tasks have a new content in each EDITION.
"""

import json
import logging
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen

from rollout_fsm import (
    BubblewrapRuntime,
    LocalRuntime,
    ProviderError,
    Request,
    RetryPolicy,
    Runtime,
    ScriptedModel,
    StdioToolset,
    Task,
    Toolset,
    Trace,
    open_engine,
    reward,
    trace_to_json,
)
from rollout_fsm.runtime import RuntimeFactory
from rollout_fsm.toolsets import program
from rollout_fsm.trace import TransitionRecord
from tests.end_to_end.agents import QUIET, agent
from tests.profiles import ROOT

SERVER = ROOT / "tests" / "toolsets" / "stdio_server.py"
ROLLOUTS_PER_TASK = 2
MAX_CONCURRENT = 6

WAITS = "mkfifo never; (sh -c 'read word < never') & (setsid sh -c 'exec sh -c \"read word < never\"' &) ; "
"""Leaves a child that waits on a pipe, and one in a session of its own."""
WRITES = """
messages = [{"role": "user", "content": sys.argv[1]}]
with open("out", "w") as file:
    file.write(ask(messages))
if "hopeless" in sys.argv[1]:
    sys.exit(3)
"""


@frozen(kw_only=True)
class Errand(Task):
    """Its reward is in the files that the agent leaves, and so is what `finalize` collects."""

    async def setup(self, trace: Trace, runtime: Runtime) -> None:
        await runtime.run(["sh", "-c", f"mkfifo nobody; (exec sh -c 'read word < nobody'){QUIET} &"])

    async def finalize(self, trace: Trace, runtime: Runtime) -> None:
        trace.info["collected"] = (await runtime.read("out")).decode()

    @reward
    async def left_behind(self, trace: Trace, runtime: Runtime) -> float:
        return float(trace.info["collected"] == (await runtime.read("out")).decode() == answer(self.prompt))


@frozen(kw_only=True)
class Revised(Errand):
    """The same task whatever its content is."""

    number: int

    @property
    def key(self) -> str:
        return f"revised {self.number}"


@frozen(kw_only=True)
class Served(Errand):
    """It brings a tool server that does not end when it is asked to, with a child and a daemon of its own."""

    def toolsets(self) -> Sequence[Toolset]:
        return [StdioToolset([sys.executable, "-I", str(SERVER), "deaf", "stubborn", "child", "daemon"], name="tools")]


def answer(prompt: object) -> str:
    """What the model answers."""
    return f"done: {prompt}"


def tasks(number: int, edition: int) -> list[Task]:
    """So many tasks: the first two are equal, one in four fails now and then, one in ten for good; one in ten has
    another content in each edition, and one in ten a tool server."""
    return [_task(max(1, place), edition) for place in range(number)]


def _task(place: int, edition: int) -> Task:
    if place % 10 == 3:
        return Revised(prompt=f"errand {place}, edition {edition}", number=place)
    if place % 10 == 4:
        return Errand(prompt=f"hopeless errand {place}")
    prompt = f"{'unlucky ' if place % 4 == 2 else ''}errand {place}"
    return Served(prompt=prompt) if place % 10 == 2 else Errand(prompt=prompt)


@define
class Moody:
    """Fails the first time that it is given an unlucky errand."""

    asked: Counter[str] = field(factory=Counter)

    def reply(self, request: Request) -> str:
        prompt = request.messages[-1].text
        self.asked[prompt] += 1
        if prompt.startswith("unlucky") and self.asked[prompt] == 1:
            raise ProviderError("overloaded", status_code=529)
        return answer(prompt)


class Teller:
    """An observer that tells of everything."""

    def on_trace(self, trace: Trace) -> None:
        tell("minted", trace.id, trace.task.hash or "")

    def on_transition(self, trace: Trace, transition: TransitionRecord) -> None:
        tell(transition.target, trace.id)


def tell(what: str, about: str, of: str = "") -> None:
    write(1, json.dumps([what, about, of]).encode() + b"\n")


def digest(line: bytes) -> str:
    """Of a trace's line, without its end."""
    return blake2b(line).hexdigest()


write = os.write


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def mortal(last: int) -> None:
    """Die in the middle of that operation."""
    operations = count(1)

    def watched(operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        number = next(operations)
        if number != last:
            return operation(*args, **kwargs)
        if operation is write:
            write(args[0], bytes(args[1])[: len(args[1]) // 2])
        elif number % 2:
            operation(*args, **kwargs)
        return die()

    for name in ("write", "fsync", "ftruncate", "replace", "mkdir", "rmdir", "unlink", "killpg"):
        setattr(os, name, partial(watched, getattr(os, name)))


RUNTIMES: Mapping[str, RuntimeFactory] = {
    "local": partial(LocalRuntime, grace=0.05),
    "bubblewrap": partial(BubblewrapRuntime, grace=0.05),
}


async def main(folder: Path, number: int, edition: int, runtime: str) -> None:
    resume = (folder / "traces.jsonl").exists()
    async with open_engine(output_dir=folder, resume=resume, observers=[Teller()]) as engine:
        tell("opened", "")
        begin = engine.resume if resume else engine.run_all
        async with begin(
            tasks(number, edition),
            harness=agent(WRITES, before=f"{{ {WAITS} }}{QUIET}; "),
            model=ScriptedModel(Moody().reply),
            runtime=RUNTIMES[runtime],
            retry=RetryPolicy(max_retries=1000, include=[ProviderError], backoff=lambda _: 0),
            rollouts_per_task=ROLLOUTS_PER_TASK,
            max_concurrent=MAX_CONCURRENT,
        ) as traces:
            async for trace in traces:
                tell("yielded", trace.id, digest(trace_to_json(trace).encode()))
    tell("ended", "")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    tempfile.gettempdir()  # it tries the folder with a file, which a process that is killed then leaves there
    program.FAREWELL = program.GRACE = 0.05
    if last := int(sys.argv[4]):
        mortal(last)
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[5])
