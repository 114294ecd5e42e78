"""A thousand rollouts at once, with a model behind aiohttp and a reward on asyncio."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvloop
from aiohttp import web
from attrs import frozen

from rollout_fsm import ChatHarness, Model, Request, Response, Runtime, Sampling, Task, Trace, aio, reward
from tests.aio.conftest import Host, LoopFactory
from tests.aio.parties import AsyncRuntime, Stage, reply, until
from tests.profiles import profile


class HTTPModel(Model):
    """The embedder's model, behind an HTTP client of asyncio's that one task has to open and close."""

    name = "http"

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: aiohttp.ClientSession

    async def __aenter__(self) -> "HTTPModel":
        self.client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        async with self.client.post(self.url, json={"said": request.messages[-1].content}) as answer:
            answer.raise_for_status()
            said = await answer.json()
        return reply(said["answer"])


@frozen(kw_only=True)
class Echo(Task):
    """Is graded on asyncio."""

    @reward
    async def same(self, trace: Trace, runtime: Runtime) -> float:
        await asyncio.sleep(0.001)
        return float(trace.last_reply == f"heard {self.prompt}")


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """A server of asyncio's, on the same loop as everything else."""

    async def answer(request: web.Request) -> web.Response:
        said = await request.json()
        return web.json_response({"answer": f"heard {said['said']}"})

    application = web.Application()
    application.router.add_post("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


def test_a_thousand_rollouts_at_once_and_what_is_cancelled_of_them(host: Host, loop_factory: LoopFactory) -> None:
    async def main() -> None:
        number = {"dev": 100, "ci": 1_000 if loop_factory is uvloop.new_event_loop else 200, "fuzz": 1_000}[profile()]
        stage = Stage()
        tasks = [Echo(prompt=str(one)) for one in range(number)]

        def box(name: str) -> AsyncRuntime:
            return AsyncRuntime(stage, name)

        async with server() as url, aio.open_engine(gateway=False) as engine:
            model = HTTPModel(url)
            async with engine.run_all(tasks, harness=ChatHarness(), model=model, runtime=box) as traces:
                rewards = [trace.reward async for trace in traces]
            assert rewards == [1.0] * number
            running = [
                asyncio.create_task(engine.run(task, harness=ChatHarness(), model=model, runtime=box))
                for task in tasks[:50]
            ]
            await until(lambda: stage.called.count("runtime.start") == number + len(running))
            for one in running[::2]:
                one.cancel()
            await asyncio.wait(running)
            assert all(one.cancelled() for one in running[::2])
            assert all(one.result().reward == 1.0 for one in running[1::2])
            assert stage.called.count("runtime.start") == stage.called.count("runtime.stop") >= number

    host(main)
