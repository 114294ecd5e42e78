"""Whole rollouts in isolated runtimes: the program reaches its own model, and nobody else."""

import asyncio
from functools import partial

import pytest
import trio
from attrs import frozen

from rollout_fsm import (
    BubblewrapRuntime,
    NetworkPolicy,
    ProgramHarness,
    Runtime,
    ScriptedModel,
    Task,
    Trace,
    aio,
    metric,
    open_engine,
    reward,
    stop,
)

pytestmark = [pytest.mark.usefixtures("bubblewrap", "temporary")]
real_time = pytest.mark.real_time

PROGRAM = """
import json, os, sys, urllib.request
body = {"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": sys.argv[1]}]}
headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
    open("answer", "w").write(json.load(answer)["choices"][0]["message"]["content"])
"""


@frozen(kw_only=True)
class Question(Task):
    """A question whose answer is left in a file, by a program whose setup left a server and a file."""

    async def setup(self, trace: Trace, runtime: Runtime) -> None:
        """Start a server that a metric asks in the end."""
        await runtime.write("given", "by setup")
        script = "mkfifo ask said; while read word < ask; do echo $word > said; done"
        await runtime.run(["sh", "-c", f"({script}) & until [ -p said ]; do :; done"])

    @metric
    async def served(self, runtime: Runtime) -> float:
        """Whether the server still answers."""
        return float((await runtime.run(["sh", "-c", "echo hello > ask; cat said"])).stdout == "hello\n")

    @reward
    async def answered(self, runtime: Runtime, trace: Trace) -> float:
        """Whether the answer is what the model said."""
        assert await runtime.read("given") == b"by setup"
        return float((await runtime.read("answer")).decode() == trace.last_reply == f"echo: {self.prompt}")


def settings(model: ScriptedModel) -> dict[str, object]:
    return {"harness": ProgramHarness(["{python}", "-c", PROGRAM, "{prompt}"]), "model": model}


def echoing() -> ScriptedModel:
    return ScriptedModel(lambda request: f"echo: {request.messages[-1].text}")


def assert_well(trace: Trace) -> None:
    assert (trace.ok, trace.errors, trace.warnings) == (True, [], [])
    assert (trace.reward, trace.metrics, trace.num_turns) == (1.0, {"served": 1.0}, 1)


@real_time
async def test_a_program_in_a_box_solves_its_task_over_the_gateway() -> None:
    async with open_engine() as engine:
        task = Question(prompt="2 + 2?", network=NetworkPolicy(allow=()))
        assert_well(await engine.run(task, **settings(echoing()), runtime=BubblewrapRuntime))


@real_time
async def test_boxes_that_run_at_once_have_nothing_in_common() -> None:
    up = [trio.Event() for _ in range(2)]

    async def answer(request: object) -> str:
        number = int(request.messages[-1].text)  # type: ignore[attr-defined]
        up[number].set()
        await up[1 - number].wait()
        return f"echo: {number}"

    look = "import os, pathlib, socket\nlistener = socket.create_server(('127.0.0.1', 5000))\n"
    look += "pathlib.Path('/tmp/mine').touch(exist_ok=False)\npathlib.Path('/dev/shm/mine').touch(exist_ok=False)\n"
    harness = ProgramHarness(["{python}", "-c", look + PROGRAM, "{prompt}"])
    async with open_engine() as engine:
        tasks = [Question(prompt=str(number)) for number in range(2)]
        model = ScriptedModel(answer)
        async with engine.run_all(tasks, harness=harness, model=model, runtime=BubblewrapRuntime) as traces:
            async for trace in traces:
                assert_well(trace)


@real_time
async def test_a_borrowed_box_serves_one_rollout_after_the_other() -> None:
    runtime = BubblewrapRuntime("borrowed", grace=0.1)
    await runtime.start()
    try:
        async with open_engine() as engine:
            for number in range(2):
                task = Question(prompt=str(number))
                assert_well(await engine.run(task, **settings(echoing()), runtime=runtime))
                assert (await runtime.run(["sh", "-c", "rm ask said answer given"])).exit_code == 0
    finally:
        await runtime.stop()


@frozen(kw_only=True)
class OnAsyncio(Question):
    """Has a hook that lives on asyncio, and is asked while a connection of the box is served."""

    @stop
    async def never(self, trace: Trace) -> bool:
        await asyncio.sleep(0)
        return False


@pytest.mark.parametrize("at_once", [3])
def test_an_asyncio_program_runs_rollouts_in_boxes_and_its_hooks_where_they_live(at_once: int) -> None:
    async def main() -> list[Trace]:
        async with aio.open_engine() as engine:
            run = partial(engine.run, **settings(echoing()), runtime=BubblewrapRuntime)
            return await asyncio.gather(*(run(OnAsyncio(prompt=str(number))) for number in range(at_once)))

    for trace in asyncio.run(main()):
        assert_well(trace)
