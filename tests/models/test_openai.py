"""The model client against a server that behaves well, badly, or not at all. Real sockets; events, never clocks."""

import contextlib
import gc
import gzip
import json
import socket
import weakref
from collections.abc import Callable

import pytest
import trio

from rollout_fsm.errors import OverlongPromptError, ProviderError
from rollout_fsm.message_json import as_messages
from rollout_fsm.messages import JSON, Request, Sampling, Tool, Usage
from rollout_fsm.models import OpenAIModel
from tests.models.misbehaving import (
    Behaviour,
    Server,
    answers,
    chunk,
    closes,
    completion,
    floods,
    half,
    hangs,
    in_turn,
    resets,
    serving,
    streams,
)

SUM = Request(messages=as_messages("2 + 2?"))
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)


def model_of(server: Server, **settings: object) -> OpenAIModel:
    return OpenAIModel("m", base_url=server.base_url, **settings)  # type: ignore[arg-type]


async def failure(model: OpenAIModel) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await model.respond(SUM, Sampling())
    return caught.value


@pytest.mark.real_time
async def test_a_request_is_asked_and_its_answer_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", " k-123\n")
    async with serving(answers(completion("four", prompt_tokens=7, completion_tokens=1))) as server:
        model = model_of(server, api_key_var="MY_KEY", headers={"X-Team": "blue"})
        request = Request(messages=as_messages("2 + 2?"), tools=[Tool(name="add", parameters={"type": "object"})])
        response = await model.respond(request, Sampling(temperature=0.5, max_tokens=9, extra={"top_k": 3}))
    assert response.message.text == "four"
    assert response.usage == Usage(prompt_tokens=7, completion_tokens=1)
    (heard,) = server.heard
    assert heard.line == "POST /v1/chat/completions HTTP/1.1"
    assert heard.headers["authorization"] == "Bearer k-123"
    assert heard.headers["x-team"] == "blue"
    asked = heard.json
    assert (asked["model"], asked["temperature"], asked["max_tokens"], asked["top_k"]) == ("m", 0.5, 9, 3)
    assert asked["messages"] == [{"role": "user", "content": "2 + 2?"}]
    assert "tools" in asked
    assert "stream" not in asked


@pytest.mark.real_time
async def test_an_entered_model_keeps_its_connection_and_closes_it_when_left() -> None:
    async with serving(answers(completion())) as server:
        async with model_of(server) as model:
            for _ in range(5):
                await model.respond(SUM, Sampling())
            assert server.connections == 1
        await server.until(lambda server: server.gone == 1)


@pytest.mark.real_time
async def test_a_model_entered_twice_is_open_until_it_is_left_twice() -> None:
    async with serving(answers(completion())) as server, model_of(server) as model:
        async with model:
            await model.respond(SUM, Sampling())
        await model.respond(SUM, Sampling())
        assert server.connections == 1


@pytest.mark.real_time
async def test_a_model_that_is_not_entered_opens_and_closes_a_connection_for_each_call() -> None:
    async with serving(answers(completion())) as server:
        model = model_of(server)
        await model.respond(SUM, Sampling())
        await model.respond(SUM, Sampling())
        await server.until(lambda server: server.gone == 2)
    assert server.connections == 2


@pytest.mark.real_time
async def test_two_hundred_calls_are_in_flight_at_once() -> None:
    together = trio.Event()

    async def behave(stream: trio.SocketStream, request: object) -> None:
        if len(server.heard) == 200:
            together.set()
        await together.wait()
        await answers(completion())(stream, request)  # type: ignore[arg-type]

    async with serving(behave) as server, model_of(server) as model, trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(model.respond, SUM, Sampling())
    assert len(server.heard) == 200


@pytest.mark.real_time
async def test_a_cancelled_call_gives_its_connection_back() -> None:
    stalled = in_turn(
        *[hangs()] * 20, *[hangs(half(completion()))] * 20, *[hangs(STREAM_HEAD)] * 20, answers(completion())
    )
    async with serving(stalled) as server, model_of(server) as model:
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(model.respond, SUM, Sampling())
            await server.until(lambda server: len(server.heard) == 60)
            nursery.cancel_scope.cancel()
        await server.until(lambda server: server.gone == 60)
        assert (await model.respond(SUM, Sampling())).message.text == "four"


async def test_a_silent_server_is_given_up_after_the_timeout() -> None:
    async with serving(hangs()) as server, model_of(server, timeout=40) as model:
        began = trio.current_time()
        error = await failure(model)
        assert trio.current_time() - began == pytest.approx(40)
    assert str(error) == (
        f"asking {server.base_url}/chat/completions timed out: no byte came or went for 40 s (`timeout` of the model); "
        "raise it, or stream the answers"
    )
    assert error.status_code is None


@pytest.mark.real_time
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("asked", [True, False])
async def test_a_stream_is_folded_whether_it_was_asked_for_or_not(asked: bool, chunked: bool) -> None:
    usage: dict[str, JSON] = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    behaviour = streams(b": warming up\n\n", chunk("fo"), chunk("ur"), chunk(finish="length"), usage, chunked=chunked)
    async with serving(behaviour) as server, model_of(server, stream=asked) as model:
        response = await model.respond(SUM, Sampling())
    assert response.message.text == "four"
    assert response.finish_reason == "length"
    assert response.usage == Usage(prompt_tokens=7, completion_tokens=2)
    assert server.heard[0].json.get("stream") == (True if asked else None)
    assert server.heard[0].json.get("stream_options") == ({"include_usage": True} if asked else None)


@pytest.mark.real_time
async def test_a_stream_leaves_its_connection_usable() -> None:
    async with serving(streams(chunk("four"), chunk(finish="stop"))) as server, model_of(server) as model:
        for _ in range(3):
            await model.respond(SUM, Sampling())
    assert server.connections == 1


@pytest.mark.real_time
async def test_a_stream_without_its_done_but_with_a_finish_reason_is_an_answer() -> None:
    async with serving(streams(chunk("four"), chunk(finish="stop"), done=False)) as server:
        assert (await model_of(server).respond(SUM, Sampling())).message.text == "four"


async def test_a_stream_whose_server_stays_silent_after_its_done_is_an_answer() -> None:
    event = b"data: " + json.dumps(chunk("four", finish="stop")).encode() + b"\n\ndata: [DONE]\n\n"
    piece = b"%x\r\n%s\r\n" % (len(event), event)
    async with serving(hangs(STREAM_HEAD + piece)) as server, model_of(server) as model:
        assert (await model.respond(SUM, Sampling())).message.text == "four"
        await server.until(lambda server: server.gone == 1)


@pytest.mark.real_time
async def test_an_answer_asked_as_a_stream_may_come_in_one_piece() -> None:
    async with serving(answers(completion())) as server:
        assert (await model_of(server, stream=True).respond(SUM, Sampling())).message.text == "four"


@pytest.mark.real_time
@pytest.mark.parametrize("coding", ["gzip", "X-Gzip", "identity, gzip", "identity\r\nContent-Encoding: gzip"])
async def test_a_compressed_answer_is_read(coding: str) -> None:
    body = gzip.compress(json.dumps(completion()).encode())
    async with serving(answers(body, headers={"Content-Encoding": coding})) as server:
        assert (await model_of(server).respond(SUM, Sampling())).message.text == "four"


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("behaviour", "status", "says"),
    [
        (answers({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, status=429), 429, "slow down"),
        (answers({"error": {"message": "boom"}}, status=500), 500, "answered 500: boom"),
        (answers(b"upstream gone", status=503, content_type="text/plain"), 503, "answered 503: upstream gone"),
        (answers(b"", status=404), 404, "check the base URL (most end in /v1) and the model's name"),
        (
            answers(b"", status=301, headers={"Location": "http://other.test/v1"}),
            301,
            "redirects to http://other.test/v1",
        ),
        (closes(half({"error": {"message": "half"}}, status=500)), 500, "answered 500: half"),
        (
            answers(b"<html>Hello</html>", content_type="text/html"),
            None,
            "not JSON (content type text/html); check the base",
        ),
        (answers(b"<html>Hello</html>"), None, "it begins b'<html>Hello</html>' (18 bytes)"),
        (
            answers(b""),
            None,
            "not JSON (content type application/json); check the base URL (most end in /v1); it is empty",
        ),
        (answers(b"[" * 100_000), None, "the answer is not JSON"),
        (answers([1, 2]), None, "the answer is JSON, but no object; it begins b'[1, 2]'"),
        (
            answers({"hello": 1}),
            None,
            "no chat completion: choices: expected a list with at least one choice, got nothing",
        ),
        (
            answers({"choices": []}),
            None,
            "no chat completion: choices: expected a list with at least one choice, got []",
        ),
        (answers({"choices": [{"message": {"content": 5}}]}), None, "no chat completion: choices[0].message.content"),
        (
            answers({"error": {"message": "overloaded", "code": 503}}),
            503,
            "an error in spite of its status 200: overloaded",
        ),
        (answers({"error": "overloaded"}), None, "an error in spite of its status 200: overloaded"),
        (answers({"detail": "overloaded"}), None, "an error in spite of its status 200: overloaded"),
        (answers(b"\x1f\x8bnonsense", headers={"Content-Encoding": "gzip"}), None, "its content encoding is broken"),
        (
            answers(b"?", headers={"Content-Encoding": "br"}),
            None,
            "its content encoding is broken: 'br' was not asked for",
        ),
        (closes(), None, "asking http://127.0.0.1"),
        (closes(b"nonsense\r\n\r\n"), None, "the connection broke"),
        (resets(), None, "the connection broke"),
        (closes(half(completion())), None, "reading the answer of http://127.0.0.1"),
        (closes(STREAM_HEAD + b"3\r\nabc"), None, "reading the answer of http://127.0.0.1"),
        (streams(chunk("fo"), done=False), None, "closed after 1 chunks, before its end: the answer is cut off"),
        (
            streams(chunk("fo"), b'data: {"choi', done=False, chunked=False),
            None,
            "closed after 1 chunks, before its end",
        ),
        (streams(done=False), None, "closed after 0 chunks"),
        (streams(), None, "the stream ended without a choice in it"),
        (streams({"choices": [], "usage": {}}), None, "the stream ended without a choice in it"),
        (streams(chunk("fo"), "nonsense"), None, "a chunk that is no JSON object; it begins b'nonsense'"),
        (streams({"choices": 7}), None, "the stream holds no chat completion: choices"),
        (streams(chunk("fo"), {"error": {"message": "boom", "code": 502}}), 502, "the stream reports an error: boom"),
        (streams(b"event: error\ndata: worn out\n\n"), None, "the stream reports an error: worn out"),
        (streams(b'event: error\ndata: {"message": "worn out", "code": 500}\n\n'), 500, "reports an error: worn out"),
        (
            streams({"choices": [{"delta": {}, "error": {"message": "boom", "code": 502}}]}),
            502,
            "reports an error: boom",
        ),
    ],
)
async def test_a_failed_call_is_a_provider_error_that_says_what_came(
    behaviour: Behaviour, status: int | None, says: str
) -> None:
    async with serving(behaviour) as server, model_of(server) as model:
        error = await failure(model)
    assert says in str(error)
    assert f"{server.base_url}/chat/completions" in str(error)
    assert error.status_code == status
    assert type(error) is ProviderError


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("behaviour", "status"),
    [
        (answers({"error": {"message": "it is too much", "code": "context_length_exceeded"}}, status=400), 400),
        (
            answers(
                {"object": "error", "message": "The input (9 tokens) is longer than the model's context length"},
                status=400,
            ),
            400,
        ),
        (answers({"error": {"code": 400, "message": "n", "type": "exceed_context_size_error"}}), 400),
        (streams({"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}), None),
        (streams(b'event: error\ndata: {"code": 400, "message": "prompt is too long"}\n\n'), 400),
    ],
)
async def test_a_full_context_is_an_overlong_prompt(behaviour: Behaviour, status: int | None) -> None:
    async with serving(behaviour) as server, model_of(server) as model:
        error = await failure(model)
    assert isinstance(error, OverlongPromptError)
    assert error.status_code == status


@pytest.mark.real_time
async def test_a_call_after_a_failed_one_is_answered() -> None:
    behaviour = in_turn(
        answers({}, status=500), resets(), closes(half(completion())), streams(done=False), answers(completion())
    )
    async with serving(behaviour) as server, model_of(server) as model:
        for _ in range(4):
            await failure(model)
        assert (await model.respond(SUM, Sampling())).message.text == "four"


@pytest.mark.real_time
@pytest.mark.parametrize(
    "first", [STREAM_HEAD + b"6\r\n data:\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
)
async def test_an_answer_without_end_is_left(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("answers", "folding"):
        monkeypatch.setattr(f"rollout_fsm.models.{module}.LARGEST", 1_000_000)
    async with serving(floods(first)) as server, model_of(server) as model:
        assert "is larger than 1000000 bytes" in str(await failure(model))
        await server.until(lambda server: server.gone == 1)


@pytest.mark.real_time
async def test_a_stream_that_goes_on_after_its_error_is_left() -> None:
    event = b'data: {"error": {"message": "boom"}}\n\n'
    async with (
        serving(floods(STREAM_HEAD + b"%x\r\n%s\r\n" % (len(event), event))) as server,
        model_of(server) as model,
    ):
        assert "the stream reports an error: boom" in str(await failure(model))
        await server.until(lambda server: server.gone == 1)


@pytest.mark.real_time
@pytest.mark.parametrize(
    "behaviour",
    [
        answers(completion()),
        streams(chunk("four", finish="stop")),
        answers({}, status=500),
        answers(b"nonsense"),
        closes(),
        streams(chunk("fo"), {"error": "boom"}),
    ],
)
async def test_a_call_that_is_over_keeps_nothing_of_its_request(behaviour: Behaviour) -> None:
    async def ask(model: OpenAIModel) -> weakref.ref[Request]:
        request = Request(messages=as_messages("2 + 2?"))
        with contextlib.suppress(ProviderError):
            await model.respond(request, Sampling())
        return weakref.ref(request)

    async with serving(behaviour) as server, model_of(server) as model:
        gc.collect()
        gc.disable()
        try:
            gone = await ask(model)
            assert gone() is None
        finally:
            gc.enable()


@pytest.mark.real_time
async def test_nobody_at_home_is_said_with_what_to_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = await failure(OpenAIModel("m", base_url=f"http://127.0.0.1:{port}/v1"))
    assert f"cannot connect to http://127.0.0.1:{port}/v1/chat/completions: " in str(error)
    assert "refused" in str(error)
    assert str(error).endswith("; check the base URL and that it is running")
    assert error.status_code is None


async def test_an_unknown_host_is_said() -> None:
    class Nowhere(trio.abc.HostnameResolver):
        async def getaddrinfo(self, *_: object, **__: object) -> list[object]:  # type: ignore[override]
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        async def getnameinfo(self, *_: object) -> tuple[str, str]:
            raise NotImplementedError

    trio.socket.set_custom_hostname_resolver(Nowhere())
    error = await failure(OpenAIModel("m", base_url="http://nowhere.test/v1"))
    assert "cannot connect to http://nowhere.test/v1/chat/completions" in str(error)
    assert "Name or service not known" in str(error)


async def test_openai_itself_is_not_asked_without_a_key() -> None:
    model = OpenAIModel("m", api_key_var="MY_KEY")
    error = await failure(model)
    assert "no key for https://api.openai.com/v1: set the environment variable MY_KEY" in str(error)
    assert error.status_code is None
    with pytest.raises(ValueError, match="set the environment variable MY_KEY"):
        model.check()


@pytest.mark.real_time
@pytest.mark.parametrize("variable", ["MY_KEY", None])
async def test_another_endpoint_without_a_key_is_sent_a_placeholder(variable: str | None) -> None:
    async with serving(answers(completion())) as server:
        await model_of(server, api_key_var=variable).respond(SUM, Sampling())
    assert server.heard[0].headers["authorization"] == "Bearer EMPTY"


@pytest.mark.real_time
async def test_the_endpoint_comes_from_the_argument_and_else_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(answers(completion("environment"))) as one, serving(answers(completion("argument"))) as other:
        monkeypatch.setenv("OPENAI_BASE_URL", one.base_url + "/#top")
        assert (await OpenAIModel("m").respond(SUM, Sampling())).message.text == "environment"
        given = OpenAIModel("m", base_url=other.base_url + "/chat/completions/?api-version=3")
        assert (await given.respond(SUM, Sampling())).message.text == "argument"
    assert one.heard[0].line == "POST /v1/chat/completions HTTP/1.1"
    assert other.heard[0].line == "POST /v1/chat/completions?api-version=3 HTTP/1.1"


async def test_an_endpoint_that_is_no_url_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "base_url of the model 'm' must begin with http" in str(
        await failure(OpenAIModel("m", base_url="models.test/v1"))
    )
    monkeypatch.setenv("OPENAI_BASE_URL", "models.test/v1")
    assert "OPENAI_BASE_URL of the model 'm' must begin with" in str(await failure(OpenAIModel("m")))
    assert "secret" not in str(await failure(OpenAIModel("m", base_url="me:secret@models.test/v1?key=secret")))
    assert "cannot ask http://[x]/v1" in str(await failure(OpenAIModel("m", base_url="http://[x]/v1")))


@pytest.mark.real_time
async def test_the_proxy_of_the_machine_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    async with serving(answers(completion())) as server:
        assert (await model_of(server).respond(SUM, Sampling())).message.text == "four"


@pytest.mark.parametrize("show", [repr, str, lambda model: f"{model!r}"], ids=["repr", "str", "format"])
def test_a_model_shows_no_secret(show: Callable[[OpenAIModel], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "k-123")
    model = OpenAIModel(
        "m", base_url="https://me:secret@models.test/v1", api_key_var="MY_KEY", headers={"X-Key": "secret"}
    )
    shown = show(model)
    assert "secret" not in shown
    assert "k-123" not in shown
    assert shown.startswith("OpenAIModel(name='m', base_url='https://models.test/v1', api_key_var='MY_KEY'")


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines"])
async def test_a_key_that_cannot_be_sent_is_said_without_showing_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    error = await failure(OpenAIModel("m"))
    assert str(error) == "the key in OPENAI_API_KEY has characters that no key has: set it again"


@pytest.mark.real_time
async def test_a_header_that_cannot_be_sent_is_said_without_showing_it() -> None:
    async with serving(answers(completion())) as server:
        error = await failure(model_of(server, headers={"X-Key": "sec\nret"}))
    assert "a header holds what HTTP does not allow" in str(error)
    assert "ret" not in str(error).replace(server.base_url, "")


@pytest.mark.real_time
async def test_a_header_of_ones_own_takes_the_place_of_the_clients_however_it_is_written() -> None:
    async with serving(answers(completion())) as server:
        await model_of(server, headers={"AUTHORIZATION": "Basic x", "X-Team": "blue"}).respond(SUM, Sampling())
    assert server.heard[0].headers["authorization"] == "Basic x"
    assert server.heard[0].headers["x-team"] == "blue"


@pytest.mark.real_time
async def test_a_lone_surrogate_in_a_prompt_is_sent_escaped() -> None:
    async with serving(answers(completion())) as server:
        await model_of(server).respond(Request(messages=as_messages("\ud800")), Sampling())
    assert rb"\ud800" in server.heard[0].body


@pytest.mark.real_time
async def test_the_limit_on_output_is_named_as_the_endpoint_names_it() -> None:
    async with serving(answers(completion())) as server:
        await model_of(server).respond(SUM, Sampling(max_tokens=5))
        await model_of(server, limit_field="max_completion_tokens").respond(SUM, Sampling(max_tokens=5))
    older, newer = (heard.json for heard in server.heard)
    assert (older.get("max_tokens"), older.get("max_completion_tokens")) == (5, None)
    assert (newer.get("max_tokens"), newer.get("max_completion_tokens")) == (None, 5)
