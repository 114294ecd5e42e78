"""What each route serves, in which shape, and what is told of what it does not."""

import json

import pytest
import trio

from rollout_fsm.errors import ProviderError, TaskError, TurnRefused
from rollout_fsm.gateway import open_gateway

from .raw import Answer, Raw, connected, get, post
from .sessions import Scripted, texts

pytestmark = pytest.mark.real_time

ASK = {
    "/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "2 + 2?"}]},
    "/responses": {"model": "m", "input": "2 + 2?"},
    "/messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "2 + 2?"}]},
}
DIALECTS = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}


def body(path: str, **more: object) -> bytes:
    return json.dumps({**ASK[path], **more}).encode()


def in_shape(path: str, answer: Answer) -> dict[str, object]:
    """An error, once it has been seen to have the shape of the path's dialect."""
    document = answer.document
    if path.startswith("/messages"):
        assert document["type"] == "error"
        assert {"type", "message"} <= set(document["error"])
    else:
        assert set(document["error"]) == {"message", "type", "param", "code"}
    error: dict[str, object] = document["error"]
    return error


def text_of(path: str, answer: Answer) -> str:
    """The text of an answer in the path's dialect."""
    document = answer.document
    if path == "/chat/completions":
        return str(document["choices"][0]["message"]["content"])
    content = document["output"][0]["content"] if path == "/responses" else document["content"]
    return str(content[0]["text"])


async def ask(session: Scripted, path: str, *, version: str = "/v1", method: str = "POST", **more: object) -> Answer:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session, model_name="small")
        return await client.ask(post(slot.secret, body(path, **more), path=f"{version}{path}", method=method))


@pytest.mark.parametrize("version", ["/v1", "", "/v1/v1"])
@pytest.mark.parametrize("path", ASK)
async def test_a_turn_is_taken_in_the_dialect_of_its_path_with_and_without_the_version(path: str, version: str) -> None:
    session = Scripted()
    answer = await ask(session, path, version=version)
    assert (answer.status, text_of(path, answer)) == (200, "four")
    assert texts(session.requests) == ["2 + 2?"]
    native = session.requests[0].native
    assert native is not None
    assert (native.dialect, dict(native.body)) == (DIALECTS[path], ASK[path])


@pytest.mark.parametrize("path", ASK)
async def test_a_stream_has_the_events_of_its_dialect(path: str) -> None:
    answer = await ask(Scripted(), path, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.body.decode().strip().split("\n")
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    said = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    match path:
        case "/chat/completions":
            assert (names, lines[-1]) == ([], "data: [DONE]")
        case "/responses":
            assert (names[0], names[-1]) == ("response.created", "response.completed")
        case "/messages":
            assert (names[0], names[-1]) == ("message_start", "message_stop")
    if names:
        assert names == [event["type"] for event in said]


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (TurnRefused("rollout stopped: max_turns", condition="max_turns"), 400, "rollout stopped: max_turns"),
        (ProviderError("slow down", status_code=429), 429, "ProviderError: slow down"),
        (ProviderError("overloaded", status_code=529), 529, "ProviderError: overloaded"),
        (TaskError("hook h failed"), 502, "TaskError: hook h failed"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASK)
async def test_a_failure_is_told_in_the_shape_of_its_path(
    path: str, stream: bool, error: Exception, status: int, says: str
) -> None:
    answer = await ask(Scripted([error]), path, stream=stream)
    assert answer.status == status
    assert in_shape(path, answer)["message"] == says


@pytest.mark.parametrize("path", [*ASK, "/messages/count_tokens"])
async def test_every_refusal_is_in_the_shape_of_its_path(path: str) -> None:
    async with open_gateway(max_body=1000) as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        told = [
            await client.ask(post("wrong", b"{}", path=f"/v1{path}")),
            await client.ask(get(slot.secret, f"/v1{path}", "DELETE")),
            await client.ask(post(slot.secret, b"{}", "Content-Encoding: gzip", path=f"/v1{path}")),
            await client.ask(post(slot.secret, b"no json", path=f"/v1{path}")),
            await client.ask(post(slot.secret, b"x" * 1001, path=f"/v1{path}")),
        ]
        slot.close()
        async with connected(gateway) as late:
            told.append(await late.ask(post(slot.secret, b"{}", path=f"/v1{path}")))
    assert [answer.status for answer in told] == [401, 405, 415, 400, 413, 400]
    for answer in told:
        in_shape(path, answer)
    assert in_shape(path, told[-1])["message"] == "rollout concluded"


async def test_the_headers_that_belong_to_a_dialect_travel_with_its_body() -> None:
    session = Scripted()
    sent = (
        "Anthropic-Beta: tools-2099", "anthropic-version: 2023-06-01", "anthropic-beta: one, more", "X-Other: no",
        "OpenAI-Organization: no",
    )  # fmt: skip
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        await client.ask(post(slot.secret, body("/messages"), *sent, path="/v1/messages"))
    native = session.requests[0].native
    assert native is not None
    assert native.headers == {"anthropic-beta": "tools-2099, one, more", "anthropic-version": "2023-06-01"}


# Counting


async def count(session: Scripted, given: bytes) -> Answer:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        return await client.ask(post(slot.secret, given, path="/v1/messages/count_tokens"))


async def test_the_tokens_of_a_prompt_are_counted_by_the_session_and_are_no_turn() -> None:
    session = Scripted()
    answer = await count(session, json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode())
    assert (answer.status, answer.document) == (200, {"input_tokens": 41})
    assert session.requests == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TurnRefused("no segment is running"), 400),
        (ProviderError("slow down", status_code=429), 429),
        (ValueError("a bug"), 502),
    ],
)
async def test_a_count_that_fails_is_told_as_a_turn_is(error: Exception, status: int) -> None:
    session = Scripted()
    session.counted = error
    answer = await count(session, body("/messages"))
    assert answer.status == status
    assert str(error) in str(in_shape("/messages", answer)["message"])


# Models


async def test_the_list_of_models_can_be_read_by_the_clients_of_both_providers() -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted(), model_name="org/small")
        listed = (await client.ask(get(slot.secret))).document
        single = (await client.ask(get(slot.secret, "/v1/models/org/small"))).document
        encoded = (await client.ask(get(slot.secret, "/v1/models/org%2Fsmall"))).document
        other = await client.ask(get(slot.secret, "/v1/models/other"))
    assert (listed["object"], listed["has_more"], listed["first_id"]) == ("list", False, "org/small")
    assert listed["data"] == [single]
    assert single == encoded
    assert (single["id"], single["object"], single["type"]) == ("org/small", "model", "model")
    assert (other.status, other.error["code"]) == (404, "model_not_found")
    assert "org/small" in other.error["message"]


async def test_a_model_is_known_to_be_there_by_its_head_alone() -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted(), model_name="small")
        assert (await client.ask(get(slot.secret, "/v1/models/small", "HEAD"), bodiless=True)).status == 200
        assert (await client.ask(get(slot.secret, "/v1/models/none", "HEAD"), bodiless=True)).status == 404


# A box of one's own


async def test_connections_that_are_made_in_a_rollouts_box_reach_its_slot_alone() -> None:
    async with open_gateway() as gateway, trio.open_nursery() as nursery:
        slot, other = gateway.open_slot(Scripted()), gateway.open_slot(Scripted())
        assert slot.answer is not None
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, slot.answer, [listener])
        async with await trio.open_tcp_stream(*listener.socket.getsockname()) as stream:
            client = Raw(stream)
            for path in ASK:
                asked = body(path)
                assert (await client.ask(post(slot.secret, asked, path=f"/v1{path}"))).status == 200
                assert (await client.ask(post(other.secret, asked, path=f"/v1{path}"))).status == 401
        nursery.cancel_scope.cancel()
