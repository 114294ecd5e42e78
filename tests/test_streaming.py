"""The pieces of an answer while it is made, and what a prompt's tokens are counted as, across the model boundary."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from attrs import frozen

from rollout_fsm import (
    AssistantMessage,
    ProviderError,
    Request,
    Response,
    Sampling,
    Tool,
    Trace,
    TurnRefused,
    Usage,
    UserMessage,
    intercept,
    stop,
    trace_from_json,
    trace_to_json,
)
from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.messages import JSON, Deliver, Delta, Native
from rollout_fsm.trace import PolicyEvent
from tests.world import EchoModel, NoHooks, World, play, world_task

ASK = Request(messages=[UserMessage("hello")])
WHOLE = Response(message=AssistantMessage("one two"), usage=Usage(prompt_tokens=1, completion_tokens=2))


class Piecewise(EchoModel):
    """Tells its answer in two pieces; what it does between them and how it ends is the test's."""

    between: Callable[[], Awaitable[object]] | None = None
    tokens: object = None

    async def stream_response(self, request: Request, sampling: Sampling, deliver: Deliver) -> Response:
        self.world.seen.append(request)
        await deliver(Delta(content="one "))
        if self.between is not None:
            await self.between()
        await deliver(Delta(content="two"))
        return WHOLE

    async def count_tokens(self, request: Request) -> Any:
        if isinstance(self.tokens, Exception):
            raise self.tokens
        return self.tokens


async def streamed(
    hooks: type = NoHooks, *, between: Callable[[World, list[str]], Awaitable[object]] | None = None
) -> tuple[Trace, list[str]]:
    """A rollout whose harness takes one streamed turn: its trace, and what was told, in order."""
    world, told = World(), list[str]()
    model = Piecewise(world)
    if between is not None:
        model.between = lambda: between(world, told)

    async def deliver(delta: Delta) -> None:
        await trio.lowlevel.checkpoint()
        told.append(delta.content)

    async def segment() -> None:
        answer = await world.exchange.respond(ASK, deliver=deliver)
        told.append(f"answer {answer.message.text}, {world.rollout.trace.num_turns} committed")

    world.script["segment"] = segment
    return await play(world, task=world_task(world, hooks=hooks), model=model), told


async def test_pieces_come_while_the_model_answers_and_the_turn_is_committed_before_the_answer() -> None:
    async def look(world: World, told: list[str]) -> None:
        told.append(f"{world.rollout.trace.num_turns} committed")

    trace, told = await streamed(between=look)
    assert told == ["one ", "0 committed", "two", "answer one two, 1 committed"]
    assert trace.ok
    assert trace.last_reply == "one two"


class Judging(NoHooks):
    @stop
    def never(self, response: Response) -> bool:
        return False


class Rewriting(NoHooks):
    @intercept
    def hide(self, response: Response) -> Response:
        return Response(message=AssistantMessage("hidden"), usage=response.usage)


@pytest.mark.parametrize("hooks", [Judging, Rewriting])
async def test_an_answer_that_a_hook_has_yet_to_see_is_told_in_no_pieces(hooks: type) -> None:
    _, told = await streamed(hooks)
    assert [piece for piece in told if not piece.startswith("answer")] == []


async def test_a_stream_that_breaks_off_is_a_failed_call_and_commits_nothing() -> None:
    async def breaks(world: World, told: list[str]) -> None:
        raise ProviderError("the line went dead", status_code=502)

    trace, told = await streamed(between=breaks)
    assert told == ["one "]
    assert trace.num_turns == 0
    assert [error.type for error in trace.errors] == ["ProviderError"]


async def counted(tokens: object) -> int | BaseException:
    """What a prompt is counted as by a model that says this, asked within a segment."""
    world, came = World(), list[int | BaseException]()
    model = Piecewise(world)
    model.tokens = tokens

    async def segment() -> None:
        session = world.rollout._world.session
        assert session is not None
        try:
            came.append(
                await session.count_tokens(Request(messages=[UserMessage("12345678")], tools=[Tool(name="add")]))
            )
        except ProviderError as error:
            came.append(error)

    world.script["segment"] = segment
    trace = await play(world, model=model)
    assert trace.calls == []
    return came[0]


async def test_a_prompt_is_counted_by_the_model_or_by_its_length_and_is_no_turn() -> None:
    assert await counted(41) == 41
    assert await counted(None) == 4  # a quarter of "12345678", "add" and "{}"


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (ProviderError("too many requests", status_code=429), "too many requests"),
        (ValueError("bug"), "counting tokens with model 'echo' failed: ValueError: bug"),
        (-1, "came to int"),
        (True, "came to bool"),
    ],
)
async def test_a_count_that_fails_is_the_models_failure(tokens: object, said: str) -> None:
    came = await counted(tokens)
    assert isinstance(came, ProviderError)
    assert said in str(came)


async def test_no_tokens_are_counted_outside_of_a_segment() -> None:
    world, said = World(), list[str]()

    async def ask() -> None:
        session = world.rollout._world.session
        assert session is not None
        try:
            await session.count_tokens(ASK)
        except TurnRefused as refused:
            said.append(str(refused))

    async def twice() -> None:
        await ask()

    world.script |= {"session.open": twice, "finalize": twice}
    await play(world)
    assert said == ["no segment is running", "rollout concluded"]


async def test_a_count_that_goes_on_when_the_segment_ends_is_cancelled_with_it() -> None:
    world, came, ended = World(), list[str](), list[str]()

    class Counting(EchoModel):
        async def count_tokens(self, request: Request) -> int:
            try:
                await trio.sleep_forever()
            finally:
                ended.append(world.rollout.state)

    async with trio.open_nursery() as outside:

        async def ask() -> None:
            session = world.rollout._world.session
            assert session is not None
            try:
                await session.count_tokens(ASK)
            except TurnRefused as refused:
                came.append(str(refused))

        async def segment() -> None:
            outside.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()

        world.script["segment"] = segment
        await play(world, model=Counting(world))
    assert came == ["the segment ended while tokens were counted"]
    assert ended == ["stepping"]


@frozen
class Seen:
    """What each party was shown of the bodies on the wire."""

    requests: list[Native | None]
    responses: list[Native | None]


async def test_bodies_of_the_wire_reach_the_model_and_the_harness_but_no_hook() -> None:
    seen = Seen([], [])

    class Looking(NoHooks):
        @intercept
        def before(self, request: Request) -> None:
            seen.requests.append(request.native)

        @stop
        def asked(self, request: Request) -> bool:
            seen.requests.append(request.native)
            return False

        @intercept
        def after(self, response: Response) -> None:
            seen.responses.append(response.native)

        @stop
        def answered(self, response: Response) -> bool:
            seen.responses.append(response.native)
            return False

    asked = Native(dialect="chat", body={"model": "m"}, messages=ASK.messages)
    answered = Native(dialect="chat", body={"id": "1"})
    world, got = World(), list[Response]()

    async def answer() -> Response:
        return Response(message=AssistantMessage("reply"), native=answered)

    async def segment() -> None:
        got.append(await world.exchange.respond(Request(messages=ASK.messages, native=asked)))

    world.script |= {"segment": segment, "model": answer}
    trace = await play(world, task=world_task(world, hooks=Looking))
    assert trace.ok, trace.errors
    assert seen == Seen([None, None], [None, None])
    assert world.seen[0].native is asked
    assert got[0].native is answered


async def test_the_body_of_an_answer_that_was_rewritten_is_not_passed_on() -> None:
    world, got = World(), list[Response]()

    async def answer() -> Response:
        return Response(message=AssistantMessage("secret"), native=Native(dialect="chat", body={"content": "secret"}))

    async def segment() -> None:
        got.append(await world.exchange.respond(ASK))

    world.script |= {"segment": segment, "model": answer}
    await play(world, task=world_task(world, hooks=Rewriting))
    assert got == [Response(message=AssistantMessage("hidden"))]
    assert got[0].native is None


@pytest.mark.parametrize("keep_answer", [True, False])
async def test_a_caller_that_goes_after_the_model_has_answered_may_keep_the_answer(keep_answer: bool) -> None:
    got, gone = list[str](), trio.CancelScope()

    class Slow(NoHooks):
        @intercept
        async def after(self, response: Response) -> None:
            gone.cancel()
            await trio.sleep(1)

    world = World()

    async def segment() -> None:
        session = world.rollout._world.session
        assert session is not None
        with gone:
            got.append((await session.respond(ASK, keep_answer=keep_answer)).message.text)
        await trio.sleep(2)

    world.script["segment"] = segment
    trace = await play(world, task=world_task(world, hooks=Slow))
    assert trace.num_turns == 1
    assert got == (["reply"] if keep_answer else [])


@pytest.mark.parametrize("restricted", [True, False])
async def test_under_a_network_policy_the_provider_is_not_asked_to_reach_out_and_the_call_says_so(
    restricted: bool,
) -> None:
    body: dict[str, JSON] = {
        "model": "m",
        "input": "hello",
        "tools": [{"type": "web_search"}, {"type": "function", "name": "add", "parameters": {}}],
    }
    world = World(restricted=restricted)

    async def segment() -> None:
        await world.exchange.respond(DIALECTS["responses"].parse_request(body))

    world.script["segment"] = segment
    trace = await play(world)
    native = world.seen[0].native
    assert native is not None
    assert native.body["tools"] == (body["tools"][1:] if restricted else body["tools"])  # type: ignore[index]
    removed = PolicyEvent(code="provider_capability_unavailable", paths=("web_search",))
    assert [call.policy for call in trace.calls] == [removed if restricted else None]
    assert trace.calls == trace_from_json(trace_to_json(trace)).calls


async def test_what_the_run_asks_of_a_provider_is_held_to_the_policy_too() -> None:
    world = World(restricted=True)
    trace = await play(world, sampling=Sampling(extra={"tools": [{"type": "web_search"}], "top_k": 3}))
    (call,) = trace.calls
    assert call.sampling == Sampling(extra={"top_k": 3})
    assert call.policy == PolicyEvent(code="provider_capability_unavailable", paths=("web_search",))


async def test_what_a_harness_of_this_process_asks_of_a_provider_is_held_to_the_policy_too() -> None:
    world = World(restricted=True)

    async def segment() -> None:
        sampling = Sampling(extra={"web_search_options": {}, "top_k": 3})
        await world.exchange.respond(Request(messages=ASK.messages, sampling=sampling))

    world.script["segment"] = segment
    trace = await play(world)
    (call,) = trace.calls
    assert call.policy is not None
    assert call.sampling == Sampling(extra={"top_k": 3})
