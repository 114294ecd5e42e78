"""Streams between an agent and its model in a whole rollout: what flows, what is held, who waits for whom (L12)."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rollout_fsm import (
    AssistantMessage,
    Model,
    Request,
    Response,
    RolloutTimeouts,
    Sampling,
    Task,
    Usage,
    intercept,
    open_engine,
)
from rollout_fsm.messages import Deliver, Delta
from tests.end_to_end.agents import QUICK, Telling, agent
from tests.end_to_end.clock import with_a_clock
from tests.end_to_end.endings import COMPLETED, ending, failed

STREAMS = """
import time
body = json.dumps({"messages": [{"role": "user", "content": "go"}], "stream": True})
head = f"POST /v1/chat/completions HTTP/1.1\\r\\nHost: {HOST}\\r\\nContent-Length: {len(body)}\\r\\n"
head += f"Authorization: Bearer {os.environ['OPENAI_API_KEY']}\\r\\nConnection: close\\r\\n\\r\\n"
connection = socket.create_connection((HOST, int(PORT)))
connection.sendall((head + body).encode())
"""
"""Asks for a stream."""

READS_NOTHING = STREAMS + "time.sleep(1000)\n"
TELLS = (
    STREAMS
    + """
answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
said = [json.loads(line[6:]) for line in answer.split("\\n") if line.startswith("data: {")]
pieces = [choice["delta"].get("content") for chunk in said for choice in chunk["choices"]]
json.dump([piece for piece in pieces if piece], open("told.json", "w"))
"""
)


class Piecewise(Model):
    """Tells these pieces, each once the test lets it."""

    def __init__(self, *pieces: str) -> None:
        self.name = "m"
        self.pieces = pieces
        self.told = 0
        self.begun = trio.Event()

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        message = AssistantMessage("".join(self.pieces))
        return Response(message=message, usage=Usage(prompt_tokens=1, completion_tokens=len(self.pieces)))

    async def stream_response(self, request: Request, sampling: Sampling, deliver: Deliver) -> Response:
        self.begun.set()
        for piece in self.pieces:
            await deliver(Delta(content=piece))
            self.told += 1
        return await self.respond(request, sampling)


def test_an_agent_that_does_not_read_its_stream_holds_up_its_model_until_its_own_time_is_over() -> None:
    model = Piecewise(*["x" * 1_000_000] * 100)

    async def test(clock: MockClock) -> None:
        async def put_on() -> None:
            await model.begun.wait()
            await wait_all_tasks_blocked(0.1)
            assert 0 < model.told < 100
            clock.jump(301)

        async with open_engine() as engine, trio.open_nursery() as nursery:
            nursery.start_soon(put_on)
            trace = await engine.run(
                Task(prompt="go"),
                harness=agent(READS_NOTHING),
                model=model,
                runtime=QUICK,
                timeouts=RolloutTimeouts(agent=300),
            )
        assert ending(trace) == failed("HarnessError")
        assert trace.errors[0].message.startswith("agent timeout: ")
        assert trace.num_turns == 0

    with_a_clock(test)


class Hiding(Telling):
    @intercept
    def hide(self, response: Response) -> Response:
        return Response(message=AssistantMessage("hidden"), usage=response.usage)


@pytest.mark.real_time
@pytest.mark.parametrize(("task", "told"), [(Telling, ["one ", "two"]), (Hiding, ["hidden"])])
async def test_a_stream_flows_piece_by_piece_but_for_one_that_a_hook_has_yet_to_see(
    task: type[Telling], told: list[str]
) -> None:
    model = Piecewise("one ", "two")
    async with open_engine() as engine:
        trace = await engine.run(task(prompt="go"), harness=agent(TELLS), model=model, runtime=QUICK)
    assert ending(trace) == COMPLETED
    assert trace.last_reply == "".join(told)
    assert "".join(trace.info["told"]) == "".join(told)  # type: ignore[arg-type]
    assert model.told == (2 if task is Telling else 0)
