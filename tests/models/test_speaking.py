"""In which dialect an endpoint is asked: the harness's own where the endpoint speaks it, else one that it speaks."""

import json

import pytest
import trio

from rollout_fsm.errors import ProviderError
from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.messages import Delta, Request, Response, Sampling
from rollout_fsm.models import AnthropicModel, OpenAIModel
from tests.models.bodies import message, message_events, named, response, response_events
from tests.models.misbehaving import Behaviour, Server, answers, chunk, completion, serving, streams

pytestmark = pytest.mark.real_time

ASKED = {
    "chat": {"model": "h", "messages": [{"role": "user", "content": "2 + 2?"}], "metadata": {"a": "b"}},
    "responses": {"model": "h", "input": "2 + 2?", "store": False, "metadata": {"a": "b"}},
    "messages": {
        "model": "h",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "2 + 2?"}],
        "metadata": {"user_id": "u"},
    },
}
WHOLE = {"chat": completion(), "responses": response(), "messages": message()}
STREAMED: dict[str, Behaviour] = {
    "chat": streams(chunk("fo"), chunk("ur", finish="stop")),
    "responses": named(*response_events("fo", "ur")),
    "messages": named(*message_events("fo", "ur")),
}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


def asked(dialect: str) -> Request:
    """A request of a harness that speaks this dialect."""
    return DIALECTS[dialect].parse_request(ASKED[dialect])  # type: ignore[arg-type]


async def ask(
    server: Server, dialect: str, *speaks: str, streamed: bool = False, model: type[OpenAIModel] = OpenAIModel
) -> tuple[Response, list[Delta]]:
    settings = {"speaks": speaks} if speaks else {}
    endpoint = model("m", base_url=server.base_url, api_key_var=None, **settings)  # type: ignore[arg-type]
    request, told = asked(dialect), list[Delta]()

    async def deliver(delta: Delta) -> None:
        await trio.lowlevel.checkpoint()
        told.append(delta)

    if streamed:
        return await endpoint.stream_response(request, request.sampling, deliver), told
    return await endpoint.respond(request, request.sampling), told


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_a_spoken_dialect_passes_through_untouched(dialect: str) -> None:
    async with serving(answers(WHOLE[dialect])) as server:
        answer, _ = await ask(server, dialect, "chat", "responses")
    (heard,) = server.heard
    assert heard.line == f"POST {PATHS[dialect]} HTTP/1.1"
    assert heard.json == {**ASKED[dialect], "model": "m"}
    assert answer.message.text == "four"
    assert answer.native is not None
    assert (answer.native.dialect, dict(answer.native.body)) == (dialect, WHOLE[dialect])


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_a_spoken_dialect_is_streamed_through_event_by_event(dialect: str) -> None:
    async with serving(STREAMED[dialect]) as server:
        answer, told = await ask(server, dialect, "chat", "responses", streamed=True)
    assert server.heard[0].line == f"POST {PATHS[dialect]} HTTP/1.1"
    assert answer.message.text == "".join(delta.content for delta in told) == "four"
    assert {delta.native.dialect for delta in told if delta.native is not None} == {dialect}


@pytest.mark.parametrize(
    ("dialect", "speaks", "spoken"),
    [
        ("responses", (), "chat"),
        ("messages", (), "chat"),
        ("responses", ("chat",), "chat"),
        ("chat", ("responses",), "responses"),
        ("messages", ("responses", "chat"), "responses"),
        ("messages", ("chat", "responses"), "chat"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_another_dialect_is_translated_to_the_first_that_is_spoken(
    dialect: str, speaks: tuple[str, ...], spoken: str, streamed: bool
) -> None:
    async with serving(STREAMED[spoken] if streamed else answers(WHOLE[spoken])) as server:
        answer, told = await ask(server, dialect, *speaks, streamed=streamed)
    assert server.heard[0].line == f"POST {PATHS[spoken]} HTTP/1.1"
    assert "2 + 2?" in json.dumps(server.heard[0].json)
    assert answer.message.text == "four"
    if streamed:
        assert "".join(delta.content for delta in told) == "four"


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_anthropics_model_is_asked_in_messages_whatever_the_harness_speaks(dialect: str, streamed: bool) -> None:
    behaviour = STREAMED["messages"] if streamed else answers(WHOLE["messages"])
    async with serving(behaviour) as server:
        model: type = AnthropicModel
        answer, _ = await ask(server, dialect, streamed=streamed, model=model)
    assert server.heard[0].line == f"POST {PATHS['messages']} HTTP/1.1"
    assert answer.message.text == "four"


async def test_openais_own_endpoint_is_asked_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    model = OpenAIModel("m")
    assert [model._dialect(asked(dialect)).name for dialect in PATHS] == ["chat", "responses", "chat"]
    assert model._dialect(Request(messages=asked("chat").messages)).name == "chat"


@pytest.mark.parametrize("speaks", [(), ("messages",), ("chat", "latin")])
def test_what_is_spoken_is_known(speaks: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="speaks is made of 'chat' and 'responses'"):
        OpenAIModel("m", speaks=speaks)  # type: ignore[arg-type]


async def test_a_request_that_cannot_be_translated_is_the_harnesss_mistake() -> None:
    body = {**ASKED["responses"], "tools": [{"type": "web_search"}]}
    request = DIALECTS["responses"].parse_request(body)  # type: ignore[arg-type]
    async with serving(answers(completion())) as server:
        model = OpenAIModel("m", base_url=server.base_url, api_key_var=None)
        with pytest.raises(ProviderError, match="the request cannot be put to the model 'm'") as caught:
            await model.respond(request, Sampling())
    assert caught.value.status_code == 400
    assert server.heard == []


async def test_a_failed_response_is_a_provider_error_with_its_status() -> None:
    failed = {
        "type": "response.failed",
        "response": response(status="failed", error={"code": "rate_limit_exceeded", "message": "slow down"}),
    }
    for behaviour in (named(*response_events("fo")[:5], failed), answers(failed["response"])):
        async with serving(behaviour) as server:
            with pytest.raises(ProviderError, match="slow down") as caught:
                await ask(server, "responses", "responses")
        assert caught.value.status_code == 429
