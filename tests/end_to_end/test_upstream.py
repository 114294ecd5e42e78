"""A model behind HTTP that misbehaves in every way: an error of its own boundary with its status, no hang, nothing left
behind (L20, L21, L40)."""

import json
from collections.abc import Callable, Mapping

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from rollout_fsm import Harness, OpenAIModel, RolloutTimeouts, open_engine
from rollout_fsm.example import EXAMPLE_LIMITS, Question, example_tasks
from tests.end_to_end.agents import HARNESSES, QUICK
from tests.end_to_end.clock import with_a_clock
from tests.end_to_end.endings import ABORTED, COMPLETED, Ending, ending, failed
from tests.end_to_end.upstream import TOO_LONG, all_gone, by_question, clever, complaint
from tests.models.misbehaving import (
    Behaviour,
    Heard,
    Server,
    answers,
    chunk,
    closes,
    completion,
    half,
    hangs,
    resets,
    sends,
    serving,
    streams,
)

real_time = pytest.mark.real_time
harnesses = pytest.mark.parametrize("harness", HARNESSES.values(), ids=HARNESSES)

QUESTION = Question(prompt="2 + 2?", answer="four")
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def piece(data: object) -> bytes:
    """A chunk of the transfer that holds one event."""
    event = f"data: {json.dumps(data)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


@frozen(kw_only=True)
class Case:
    """A way to misbehave, and what it is called on the trace."""

    behaviour: Behaviour
    words: str
    """What the error says."""
    status: int | None = None
    stream: bool = False
    tells: int = 502
    """The status with which the gateway answers the harness."""


FAULTS: Mapping[str, Case] = {
    "429": Case(behaviour=answers(complaint("slow down"), status=429), words="slow down", status=429, tells=429),
    "500": Case(behaviour=answers(complaint("oops"), status=500), words="oops", status=500, tells=500),
    "401": Case(behaviour=answers(complaint("who?"), status=401), words="check the key", status=401, tells=401),
    "a page of a proxy": Case(
        behaviour=answers(b"<html>Bad Gateway</html>", status=502, content_type="text/html"),
        words="Bad Gateway",
        status=502,
    ),
    "an error that breaks off": Case(
        behaviour=closes(half(complaint("overloaded"), status=503)), words="overloaded", status=503, tells=503
    ),
    "garbage": Case(behaviour=closes(b"\x00\xff\x17 garbage \r\n\r\n"), words="the connection broke"),
    "no JSON": Case(behaviour=answers(b"hello", content_type="text/plain"), words="the answer is not JSON"),
    "other JSON": Case(behaviour=answers({"four": 4}), words="the answer is no chat completion"),
    "nothing": Case(behaviour=answers(b""), words="it is empty"),
    "an error with a good status": Case(behaviour=answers(complaint("sorry")), words="sorry", status=500, tells=500),
    "closes at once": Case(behaviour=closes(), words="the connection broke"),
    "closes mid-body": Case(behaviour=closes(half(completion())), words="the connection broke"),
    "resets": Case(behaviour=resets(), words="the connection broke"),
    "streams garbage": Case(behaviour=streams("{no json"), words="no JSON object", stream=True),
    "streams an error": Case(
        behaviour=streams(chunk("fo"), complaint("overloaded")), words="overloaded", status=500, stream=True, tells=500
    ),
    "closes mid-stream": Case(
        behaviour=closes(STREAM_HEAD + piece(chunk("fo"))), words="the connection broke", stream=True
    ),
    "ends mid-stream": Case(
        behaviour=streams(chunk("fo"), done=False, chunked=False), words="the answer is cut off", stream=True
    ),
}

OVERLONG: Mapping[str, tuple[Behaviour, bool]] = {
    "by its code": (answers(TOO_LONG, status=400), False),
    "by its words alone": (answers({"detail": "prompt is too long: 9000 tokens > 4096 maximum"}, status=400), False),
    "with 413": (answers(b"Input is too long for requested model.", status=413, content_type="text/plain"), False),
    "in a stream": (streams(TOO_LONG), True),
}


def model_of(server: Server, *, stream: bool = False) -> OpenAIModel:
    return OpenAIModel("m", base_url=server.base_url, stream=stream)


@real_time
@harnesses
@pytest.mark.parametrize("case", FAULTS.values(), ids=FAULTS)
async def test_a_fault_of_the_upstream_is_the_models_and_has_its_status(
    case: Case, harness: Callable[[], Harness]
) -> None:
    async with serving(case.behaviour) as server:
        async with open_engine() as engine:
            trace = await engine.run(QUESTION, harness=harness(), model=model_of(server, stream=case.stream))
        await all_gone(server)
    assert ending(trace) == failed("ProviderError", case.status)
    (error,) = trace.errors
    assert case.words in error.message
    (call,) = trace.calls
    assert call.node is None
    assert call.error is not None
    assert error.message.startswith(call.error.message)
    assert trace.num_turns == 0
    if trace.agent.config["harness"]["id"] == "example":  # type: ignore[call-overload,index]
        assert f"the model did not answer: HTTP {case.tells}: ProviderError: " in error.message
    assert len(server.heard) == 1  # retries are the harness's business


@real_time
@harnesses
@pytest.mark.parametrize(("behaviour", "stream"), OVERLONG.values(), ids=OVERLONG)
async def test_a_prompt_that_is_too_long_ends_the_exchange_as_a_budget_does(
    behaviour: Behaviour, stream: bool, harness: Callable[[], Harness]
) -> None:
    async with serving(behaviour) as server:
        async with open_engine() as engine:
            trace = await engine.run(QUESTION, harness=harness(), model=model_of(server, stream=stream))
        await all_gone(server)
    assert ending(trace) == Ending(True, "context_length")
    assert trace.reward == 0.0
    (call,) = trace.calls
    assert call.error is not None
    assert call.error.type == "OverlongPromptError"


@real_time
@harnesses
async def test_an_answer_that_was_streamed_is_whole(harness: Callable[[], Harness]) -> None:
    async with serving(clever(streamed=True)) as server:
        async with open_engine() as engine:
            (task,) = (task for task in example_tasks() if task.name == "two-sums")
            trace = await engine.run(task, harness=harness(), model=model_of(server, stream=True))
        await all_gone(server)
    assert ending(trace) == COMPLETED
    assert (trace.reward, trace.num_turns, trace.metrics) == (1.1, 2, {"tool_calls": 2})
    assert all(heard.json["stream"] is True for heard in server.heard)


@real_time
@harnesses
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streaming"])
async def test_a_slow_upstream_is_waited_for(stream: bool, harness: Callable[[], Harness]) -> None:
    go, begun = trio.Event(), trio.Event()
    first = STREAM_HEAD + piece(chunk("Answer: ")) if stream else b"HTTP/1.1 200 OK\r\nContent-Type: application/json"
    payload = json.dumps(completion("Answer: four")).encode()
    rest = (
        piece(chunk("four", finish="stop")) + b"0\r\n\r\n"
        if stream
        else b"\r\nContent-Length: %d\r\n\r\n" % len(payload) + payload
    )

    async def slow(connection: trio.SocketStream, request: Heard) -> None:
        await connection.send_all(first)
        begun.set()
        await go.wait()
        await sends(rest)(connection, request)

    async with serving(slow) as server:
        async with open_engine() as engine, trio.open_nursery() as nursery:
            rollout = engine.rollout(QUESTION, harness=harness(), model=model_of(server, stream=stream), runtime=QUICK)

            async def drive() -> None:
                async with rollout:
                    await rollout.open()
                    await rollout.step()

            nursery.start_soon(drive)
            await begun.wait()
            await wait_all_tasks_blocked()
            assert (rollout.state, rollout.trace.num_turns) == ("stepping", 0)
            go.set()
        await all_gone(server)
    assert ending(rollout.trace) == COMPLETED
    assert (rollout.trace.reward, rollout.trace.last_reply) == (1.1, "Answer: four")


HANGS: Mapping[str, tuple[Behaviour, bool]] = {
    "says nothing": (hangs(), False),
    "stops mid-body": (hangs(half(completion())), False),
    "stops mid-stream": (hangs(STREAM_HEAD + piece(chunk("fo"))), True),
}


@harnesses
@pytest.mark.parametrize(("behaviour", "stream"), HANGS.values(), ids=HANGS)
def test_an_upstream_that_hangs_is_ended_by_the_agents_time(
    behaviour: Behaviour, stream: bool, harness: Callable[[], Harness]
) -> None:
    async def test(clock: MockClock) -> None:
        async with serving(behaviour) as server:

            async def put_on() -> None:
                await server.until(lambda server: len(server.heard) == 1)
                clock.jump(301)

            async with open_engine() as engine, trio.open_nursery() as nursery:
                nursery.start_soon(put_on)
                trace = await engine.run(
                    QUESTION,
                    harness=harness(),
                    model=model_of(server, stream=stream),
                    runtime=QUICK,
                    timeouts=RolloutTimeouts(agent=300),
                )
                await all_gone(server)  # while the engine is still there
        assert ending(trace) == failed("HarnessError")
        assert trace.errors[0].message.startswith("agent timeout: ")

    with_a_clock(test)


@real_time
@harnesses
@pytest.mark.parametrize(("behaviour", "stream"), HANGS.values(), ids=HANGS)
async def test_an_upstream_that_hangs_is_let_go_of_by_a_cancellation(
    behaviour: Behaviour, stream: bool, harness: Callable[[], Harness]
) -> None:
    async with serving(behaviour) as server:
        async with open_engine() as engine:
            model = model_of(server, stream=stream)
            async with engine.rollout(QUESTION, harness=harness(), model=model, runtime=QUICK) as rollout:
                await rollout.open()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(rollout.step)
                    await server.until(lambda server: len(server.heard) == 1)
                    await rollout.cancel()
                await all_gone(server)
        assert server.gone == 1
    assert ending(rollout.trace) == ABORTED


SPECIAL: Mapping[str, tuple[str, Behaviour, Ending]] = {
    "product": ("17 * 23", answers(complaint("slow down"), status=429), failed("ProviderError", 429)),
    "sum": ("1234 + 8766", answers(complaint("oops"), status=500), failed("ProviderError", 500)),
    "power": ("2 ** 32", closes(b"\x00 garbage"), failed("ProviderError")),
    "remainder": ("1000 % 37", answers(b"hello", content_type="text/plain"), failed("ProviderError")),
    "division": ("144 / 12", closes(half(completion())), failed("ProviderError")),
    "zero": ("10 / 0", resets(), failed("ProviderError")),
    "backwards": ("`rollout`", closes(STREAM_HEAD + piece(chunk("tuo"))), failed("ProviderError")),
    "palindrome": ("`level`", answers(TOO_LONG, status=400), Ending(True, "context_length")),
    "capital": ("capital", clever(), Ending(True, "gave_up")),
    "search": ("prime", clever(), Ending(True, "max_turns")),
    "outage": ("the server", clever(), failed("ProviderError", 503)),
    "archive": ("the whole archive", clever(), Ending(True, "context_length")),
}
"""Of the example's tasks, by name: its words, how the upstream behaves, how the rollout ends."""


@real_time
@pytest.mark.parametrize(
    ("harness", "stream"),
    [(HARNESSES["program"], True), (HARNESSES["in process"], False)],
    ids=["program, streaming", "in process, plain"],
)
async def test_a_run_goes_through_whatever_its_upstream_does(stream: bool, harness: Callable[[], Harness]) -> None:
    """Every fault at once; each costs its own rollout, and the others end as they would alone."""
    upstream = by_question({words: behaviour for words, behaviour, _ in SPECIAL.values()}, clever(streamed=stream))
    async with serving(upstream) as server:
        async with (
            open_engine() as engine,
            engine.run_all(
                example_tasks(),
                harness=harness(),
                model=model_of(server, stream=stream),
                limits=EXAMPLE_LIMITS,
                max_concurrent=16,
            ) as traces,
        ):
            ended = {str(trace.task.data["name"]): ending(trace) async for trace in traces}
        await all_gone(server)
    expected = {task.name: COMPLETED for task in example_tasks()} | {name: how for name, (_, _, how) in SPECIAL.items()}
    assert ended == expected
