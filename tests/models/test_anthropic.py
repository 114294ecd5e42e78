"""The client of Anthropic's messages, against a server that behaves well or badly."""

import pytest
import trio

from rollout_fsm.errors import OverlongPromptError, ProviderError
from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.message_json import as_messages
from rollout_fsm.messages import (
    AssistantMessage,
    Delta,
    Native,
    Request,
    Sampling,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from rollout_fsm.models import AnthropicModel
from tests.models.bodies import event_bytes, message, message_events, named
from tests.models.misbehaving import Behaviour, Server, answers, closes, hangs, serving, streams

pytestmark = pytest.mark.real_time

SUM = Request(messages=as_messages("2 + 2?"))
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)


def model_of(server: Server, **settings: object) -> AnthropicModel:
    return AnthropicModel("claude", base_url=server.base_url, **settings)  # type: ignore[arg-type]


def error(kind: str, words: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_1"}


async def told(model: AnthropicModel, request: Request = SUM) -> tuple[list[Delta], str]:
    """What a streamed answer told, and what it came to."""
    pieces: list[Delta] = []

    async def deliver(delta: Delta) -> None:
        await trio.lowlevel.checkpoint()
        pieces.append(delta)

    response = await model.stream_response(request, Sampling(), deliver)
    return pieces, response.message.text


async def test_a_request_is_asked_in_anthropics_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-ant-1")
    conversation = Request(
        messages=[
            SystemMessage("be brief"),
            UserMessage("2 + 2?"),
            AssistantMessage("let me see", tool_calls=[ToolCall(id="t1", name="add", arguments='{"a": 2}')]),
            ToolMessage("4", tool_call_id="t1"),
        ]
    )
    async with serving(answers(message())) as server:
        response = await model_of(server, api_key_var="MY_KEY").respond(conversation, Sampling(temperature=0.5))
    assert response.message.text == "four"
    assert response.finish_reason == "stop"
    assert response.usage == Usage(prompt_tokens=7, completion_tokens=1, cached_input_tokens=2)
    (heard,) = server.heard
    assert heard.line == "POST /v1/messages HTTP/1.1"
    assert heard.headers["x-api-key"] == "sk-ant-1"
    assert heard.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in heard.headers
    asked = heard.json
    assert asked["system"] in ("be brief", [{"type": "text", "text": "be brief"}])
    assert (asked["model"], asked["temperature"], asked["max_tokens"]) == ("claude", 0.5, 8192)
    assert [turn["role"] for turn in asked["messages"]] == ["user", "assistant", "user"]  # type: ignore[attr-defined]


async def test_what_an_answer_may_have_is_the_runs_word_else_the_models() -> None:
    async with serving(answers(message())) as server:
        await model_of(server, max_tokens=77).respond(SUM, Sampling(max_tokens=5))
        await model_of(server, max_tokens=77).respond(SUM, Sampling())
        await model_of(server, max_tokens=77).stream_response(SUM, Sampling(), nobody)
    assert [heard.json["max_tokens"] for heard in server.heard] == [5, 77, 77]


async def nobody(delta: Delta) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/", "/v1/messages"])
async def test_the_base_url_may_end_in_its_version_or_before_it(ending: str) -> None:
    async with serving(answers(message())) as server:
        root = server.base_url.removesuffix("/v1")
        await AnthropicModel("claude", base_url=f"{root}{ending}").respond(SUM, Sampling())
    assert server.heard[0].line == "POST /v1/messages HTTP/1.1"


async def test_the_endpoint_comes_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answers(message())) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url.removesuffix("/v1"))
        assert (await AnthropicModel("claude").respond(SUM, Sampling())).message.text == "four"


async def test_anthropic_itself_is_not_asked_without_a_key() -> None:
    with pytest.raises(ProviderError, match=r"no key for https://api\.anthropic\.com/v1: .* ANTHROPIC_API_KEY, or"):
        await AnthropicModel("claude").respond(SUM, Sampling())
    with pytest.raises(ValueError, match="ANTHROPIC_API_KEY"):
        AnthropicModel("claude").check()


async def test_a_harness_that_speaks_it_is_passed_through_with_its_headers() -> None:
    body = {
        "model": "claude-of-the-harness",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "u"},
    }
    request = DIALECTS["messages"].parse_request(body)  # type: ignore[arg-type]
    assert request.native is not None
    headers = {"anthropic-beta": "interleaved-thinking-2025-05-14", "anthropic-version": "2099-01-01"}
    native = Native(dialect="messages", body=body, messages=request.native.messages, headers=headers)  # type: ignore[arg-type]
    passed = Request(messages=request.messages, sampling=request.sampling, native=native)
    async with serving(answers(message())) as server:
        await model_of(server).respond(passed, request.sampling)
    (heard,) = server.heard
    assert heard.json == {**body, "model": "claude"}
    assert {name: heard.headers[name] for name in headers} == headers


async def test_the_headers_of_another_dialect_are_not_passed_on() -> None:
    native = Native(dialect="chat", body={}, headers={"openai-beta": "x"})
    async with serving(answers(message())) as server:
        await model_of(server).respond(Request(messages=SUM.messages, native=native), Sampling())
    assert "openai-beta" not in server.heard[0].headers


@pytest.mark.parametrize("with_names", [True, False])
async def test_a_stream_is_told_in_its_pieces_and_folded(with_names: bool) -> None:
    async with serving(named(*message_events("fo", "ur"), named=with_names)) as server, model_of(server) as model:
        pieces, text = await told(model)
        again, _ = await told(model)
    assert text == "four"
    assert [piece.content for piece in pieces if piece.content] == ["fo", "ur"]
    assert [piece.native.name for piece in pieces if piece.native] == [
        event["type"] for event in message_events("", "")
    ]
    assert len(again) == len(pieces)
    assert server.heard[0].json["stream"] is True
    assert server.connections == 1


async def test_the_usage_of_a_stream_is_put_together() -> None:
    async with serving(named(*message_events("four"))) as server:
        response = await model_of(server, stream=True).respond(SUM, Sampling())
    assert response.usage == Usage(prompt_tokens=7, completion_tokens=3, cached_input_tokens=2)


@pytest.mark.parametrize(
    ("behaviour", "status", "says"),
    [
        (
            answers(error("rate_limit_error", "slow down"), status=429),
            429,
            "answered 429 (rate_limit_error): slow down",
        ),
        (answers(error("overloaded_error", "Overloaded"), status=529), 529, "answered 529 (overloaded_error)"),
        (answers(error("authentication_error", "invalid x-api-key"), status=401), 401, "check the key"),
        (answers(error("overloaded_error", "Overloaded")), 529, "in spite of its status 200"),
        (answers({"type": "message", "content": 7}), None, "the answer is no message: "),
        (named(*message_events("fo")[:4], error("overloaded_error", "Overloaded")), 529, "reports an error"),
        (named(error("api_error", "Internal")), 500, "the stream reports an error (api_error): Internal"),
        (named(*message_events("fo")[:4]), None, "before its end: the answer is cut off"),
        (closes(STREAM_HEAD + b"3\r\nabc"), None, "the connection broke"),
        (streams("nonsense"), None, "a chunk that is no JSON object"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_failed_call_is_a_provider_error_with_its_status(
    behaviour: Behaviour, status: int | None, says: str, streamed: bool
) -> None:
    async with serving(behaviour) as server, model_of(server) as model:
        with pytest.raises(ProviderError) as caught:
            await (told(model) if streamed else model.respond(SUM, Sampling()))
    assert says in str(caught.value)
    assert caught.value.status_code == status
    assert type(caught.value) is ProviderError


async def test_a_full_context_is_an_overlong_prompt() -> None:
    words = "prompt is too long: 210000 tokens > 200000 maximum"
    async with serving(answers(error("invalid_request_error", words), status=400)) as server:
        with pytest.raises(OverlongPromptError) as caught:
            await model_of(server).respond(SUM, Sampling())
    assert caught.value.status_code == 400


async def test_a_cancelled_stream_gives_its_connection_back() -> None:
    head = b"".join(event_bytes(event) for event in message_events("fo")[:4])
    async with serving(hangs(STREAM_HEAD + b"%x\r\n%s\r\n" % (len(head), head))) as server, model_of(server) as model:
        seen = trio.Event()

        async def deliver(delta: Delta) -> None:
            await trio.lowlevel.checkpoint()
            if delta.content:
                seen.set()

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(model.stream_response, SUM, Sampling(), deliver)
            await seen.wait()
            nursery.cancel_scope.cancel()
        await server.until(lambda server: server.gone == server.connections)


async def test_tokens_are_counted_by_the_endpoint() -> None:
    async with serving(answers({"input_tokens": 14})) as server:
        assert await model_of(server).count_tokens(SUM) == 14
    (heard,) = server.heard
    assert heard.line == "POST /v1/messages/count_tokens HTTP/1.1"
    assert set(heard.json) == {"model", "messages"}


@pytest.mark.parametrize("body", [{}, {"input_tokens": "14"}, {"input_tokens": True}])
async def test_a_count_that_is_none_is_said(body: dict[str, object]) -> None:
    async with serving(answers(body)) as server:
        with pytest.raises(ProviderError, match="no whole number `input_tokens`"):
            await model_of(server).count_tokens(SUM)


async def test_a_count_that_fails_is_a_provider_error() -> None:
    async with serving(answers(error("rate_limit_error", "slow down"), status=429)) as server:
        with pytest.raises(ProviderError, match="slow down") as caught:
            await model_of(server).count_tokens(SUM)
    assert caught.value.status_code == 429


def test_a_model_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-1")
    model = AnthropicModel("claude", base_url="https://me:secret@models.test", headers={"X-Key": "secret"})
    assert "secret" not in repr(model)
    assert repr(model).startswith("AnthropicModel(name='claude', base_url='https://models.test', api_key_var=")
