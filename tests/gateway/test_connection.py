"""One connection at a time, byte by byte: what clients may do wrong, and that it stays theirs."""

import socket
import struct

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rollout_fsm.gateway import Gateway, Slot, open_gateway
from rollout_fsm.gateway.bodies import MAX_VALUES
from rollout_fsm.gateway.connection import AHEAD_LIMIT, CHUNK_SIZE, FREE_CHUNKS, HEAD_LIMIT
from rollout_fsm.messages import AssistantMessage, Response

from .raw import Answer, Raw, body_of, connected, get, head, post
from .sessions import ANSWER, Held, Scripted, texts

pytestmark = pytest.mark.real_time


async def served(gateway: Gateway, slot: Slot) -> bool:
    """Whether another client is answered."""
    async with connected(gateway) as client:
        return (await client.ask(post(slot.secret))).status == 200


# Requests and replies


async def test_a_reply_is_the_whole_completion() -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        answer = await client.ask(post(gateway.open_slot(Scripted()).secret))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.document["choices"][0]["message"] == {"role": "assistant", "content": "four"}


async def test_a_stream_is_server_sent_events_up_to_done() -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        answer = await client.ask(post(gateway.open_slot(Scripted()).secret, body_of(stream=True)))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.events[-1] == "[DONE]"
    assert len(answer.events) > 3


async def test_a_turn_is_committed_before_the_first_byte_of_its_answer() -> None:
    session = Held()
    async with open_gateway() as gateway, connected(gateway) as client, trio.open_nursery() as nursery:
        await client.send(post(gateway.open_slot(session).secret, body_of(stream=True)))

        async def committed_first() -> None:
            await client.stream.receive_some(1)
            assert session.committed.is_set()

        nursery.start_soon(committed_first)
        await session.begun.wait()
        session.release.set()


@pytest.mark.parametrize("scheme", ["Authorization: Bearer {}", "authorization: bearer  {}", "X-Api-Key: {}"])
async def test_the_secret_may_come_in_either_header(scheme: str) -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        assert (await client.ask(post("", body_of(), scheme.format(slot.secret)))).status == 200


@pytest.mark.parametrize("secret", ["", "wrong", "é"])
async def test_a_wrong_or_missing_secret_is_unauthorised_and_the_connection_goes_on(secret: str) -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        refused = await client.ask(post(secret))
        assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
        assert set(refused.error) == {"message", "type", "param", "code"}
        assert (await client.ask(post(slot.secret))).status == 200


async def test_the_secret_of_one_rollout_does_not_reach_another() -> None:
    one, other = Scripted(), Scripted()
    async with open_gateway() as gateway, connected(gateway) as client:
        first, second = gateway.open_slot(one), gateway.open_slot(other)
        await client.ask(post(first.secret, body_of("for one")))
        await client.ask(post(second.secret, body_of("for the other")))
    assert (texts(one.requests), texts(other.requests)) == (["for one"], ["for the other"])


async def test_an_unknown_route_is_not_found_and_says_what_there_is() -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        answer = await client.ask(post(slot.secret, path="/v1/embeddings"))
    assert (answer.status, answer.error["code"]) == (404, "unknown_route")
    for known in ("POST /v1/chat/completions", "POST /v1/messages", "POST /v1/messages/count_tokens", "GET /v1/models"):
        assert known in answer.error["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions/",
        "/v1/chat/completions?beta=1",
        "http://gateway/v1/chat/completions",
        "/chat/completions",
        "/v1/v1/chat/completions",
        "/v1/chat%2Fcompletions",
    ],
)
async def test_a_route_is_known_in_each_of_its_spellings(path: str) -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        assert (await client.ask(post(gateway.open_slot(Scripted()).secret, path=path))).status == 200


@pytest.mark.parametrize(
    "line",
    [b"GET http://[ HTTP/1.1", b"CONNECT elsewhere:443 HTTP/1.1", b"GET http://gateway HTTP/1.1", b"GET * HTTP/1.1"],
)
async def test_an_odd_target_is_an_unknown_route(line: bytes) -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        assert (await client.ask(line + b"\r\nHost: gateway\r\n\r\n")).status == 404
        assert (await client.ask(post(gateway.open_slot(Scripted()).secret))).status == 200


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/chat/completions", "POST, OPTIONS"), ("DELETE", "/v1/models", "GET, HEAD, OPTIONS")],
)
async def test_a_wrong_method_is_not_allowed_and_says_which_are(method: str, path: str, allowed: str) -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        answer = await client.ask(get(gateway.open_slot(Scripted()).secret, path, method))
    assert (answer.status, answer.headers["allow"], answer.error["code"]) == (405, allowed, "method_not_allowed")


async def test_head_and_options_are_answered_without_a_body_and_the_connection_goes_on() -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted(), model_name="small")
        whole = await client.ask(get(slot.secret))
        for_head = await client.ask(get(slot.secret, method="HEAD"), bodiless=True)
        refused_head = await client.ask(get("", method="HEAD"), bodiless=True)
        options = await client.ask(get("", "/v1/chat/completions", "OPTIONS"))
        again = await client.ask(get(slot.secret))
    assert (for_head.status, for_head.headers["content-length"]) == (200, whole.headers["content-length"])
    assert refused_head.status == 401
    assert (options.status, options.headers["allow"]) == (204, "POST, OPTIONS")
    assert again.document["data"][0]["id"] == "small"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the request body is not JSON"),
        (b"{", "the request body is not JSON"),
        (b"\xff\xfe\xfd", "the request body is not JSON"),
        (b"[" * 100_000, "the request body is not JSON"),
        (b'{"temperature": NaN}', "NaN is not a number that JSON has"),
        (b"[]", "expected a JSON object, got list"),
        (b"{}", "messages: expected a list with at least one message, got nothing"),
        (body_of(stream="yes"), "stream: expected true or false"),
        (body_of(n=2), "n: expected 1"),
        (b'{"temperature": 1e999}', "1e999 is beyond the numbers that can be held"),
        (b'{"x": ' + b"[" * 200 + b"]" * 200 + b"}", "nested too deeply"),
        (b'{"x": [' + b"1," * MAX_VALUES + b"1]}", "500,002 commas, colons and opening brackets; 500,000"),
    ],
    ids=lambda value: value[:40].decode(errors="replace") if isinstance(value, bytes) else value,
)
async def test_a_malformed_body_is_a_bad_request_that_says_what_is_wrong(body: bytes, message: str) -> None:
    session = Scripted()
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        answer = await client.ask(post(slot.secret, body))
        assert (answer.status, answer.error["code"]) == (400, "malformed_request")
        assert message in answer.error["message"]
        assert session.requests == []
        assert (await client.ask(post(slot.secret))).status == 200


@pytest.mark.parametrize(
    "headers", [("Content-Encoding: gzip",), ("Content-Encoding: identity", "Content-Encoding: br")]
)
async def test_a_compressed_body_is_refused(headers: tuple[str, ...]) -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        assert (await client.ask(post(slot.secret, b"\x1f\x8b", *headers))).status == 415


# How connections go on and end


async def test_a_connection_serves_many_requests() -> None:
    session = Scripted()
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        for turn in range(5):
            assert (await client.ask(post(slot.secret, body_of(str(turn), stream=bool(turn % 2))))).status == 200
    assert texts(session.requests) == ["0", "1", "2", "3", "4"]


async def test_a_connection_ends_where_the_client_asks_for_it() -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        answer = await client.ask(post(gateway.open_slot(Scripted()).secret, None, "Connection: close"))
        assert answer.headers["connection"] == "close"
        assert await client.ended()


@pytest.mark.parametrize("headers", [(), ("Connection: Upgrade", "Upgrade: h2c")])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_old_client_gets_its_answer_up_to_the_end_of_the_connection(
    stream: bool, headers: tuple[str, ...]
) -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        secret = gateway.open_slot(Scripted()).secret
        request = post(secret, body_of(stream=stream), *headers).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        answer = await client.ask(request)
        assert answer.status == 200
        assert "transfer-encoding" not in answer.headers
        assert answer.events[-1] == "[DONE]" if stream else answer.document["object"] == "chat.completion"
        assert await client.ended()


async def test_requests_sent_at_once_are_answered_in_order() -> None:
    session = Scripted([Response(message=AssistantMessage(text)) for text in ("one", "two", "three")])
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        await client.send(b"".join(post(slot.secret, body_of(text)) for text in ("1", "2", "3")))
        answers = [await client.answer() for _ in range(3)]
    assert [answer.document["choices"][0]["message"]["content"] for answer in answers] == ["one", "two", "three"]
    assert texts(session.requests) == ["1", "2", "3"]


@pytest.mark.parametrize("size", [10, 3 * AHEAD_LIMIT])
async def test_a_request_sent_while_another_runs_is_kept_for_its_turn(size: int) -> None:
    session = Held()
    async with open_gateway() as gateway, connected(gateway) as client, trio.open_nursery() as nursery:
        slot = gateway.open_slot(session)
        await client.send(post(slot.secret))
        await session.begun.wait()
        nursery.start_soon(client.send, post(slot.secret, body_of("x" * size)))
        await wait_all_tasks_blocked()
        assert session.calls == 1
        session.release.set()
        assert [(await client.answer()).status, (await client.answer()).status] == [200, 200]
    assert session.calls == 2


async def test_a_client_that_waits_for_100_continue_is_told_to_go_on() -> None:
    body = body_of()
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        expecting = head(slot.secret, f"Content-Length: {len(body)}", "Expect: 100-continue")
        assert (await client.ask(expecting)).status == 100
        assert (await client.ask(body)).status == 200
        assert (await client.ask(post(slot.secret))).status == 200


@pytest.mark.parametrize(
    ("header", "body"), [("Content-Length: 0", b""), ("X: 1", b""), ("Transfer-Encoding: chunked", b"0\r\n\r\n")]
)
async def test_a_client_that_has_nothing_more_to_send_is_not_told_to_go_on(header: str, body: bytes) -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        assert (await client.ask(head(slot.secret, header, "Expect: 100-continue") + body)).status == 400
        assert (await client.ask(post(slot.secret))).status == 200


@pytest.mark.parametrize(("secret", "length", "status"), [("wrong", 10, 401), (None, 10**9, 413)])
async def test_a_client_that_waits_for_100_continue_is_refused_before_it_sends(
    secret: str | None, length: int, status: int
) -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        answer = await client.ask(head(secret or slot.secret, f"Content-Length: {length}", "Expect: 100-continue"))
        assert (answer.status, answer.headers["connection"]) == (status, "close")


async def test_a_refusal_of_head_has_no_body_wherever_it_is_made() -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        request = head("", "Content-Length: 5", "Expect: 100-continue", path="/v1/models", method="HEAD")
        assert (await client.ask(request, bodiless=True)).status == 401
        assert await client.ended()


# Too much


async def test_a_body_of_just_the_cap_is_taken_and_one_byte_more_is_not() -> None:
    body = body_of()
    async with open_gateway(max_body=len(body)) as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        assert (await client.ask(post(slot.secret, body))).status == 200
        answer = await client.ask(post(slot.secret, body + b" "))
        assert (answer.status, answer.error["code"]) == (413, "body_too_large")
        assert str(len(body)) in answer.error["message"]
        assert await client.ended()


async def test_a_body_that_is_announced_too_large_is_refused_before_it_comes() -> None:
    async with open_gateway(max_body=1000) as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        assert (await client.ask(head(slot.secret, "Content-Length: 1001"))).status == 413


@pytest.mark.parametrize(("secret", "status"), [(None, 413), ("wrong", 401)])
async def test_a_body_in_chunks_is_refused_once_it_is_too_large(secret: str | None, status: int) -> None:
    session = Scripted()
    async with open_gateway(max_body=1000) as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        chunks = b"12c\r\n" + b"x" * 300 + b"\r\n"
        opening = head(secret or slot.secret, "Transfer-Encoding: chunked")
        assert (await client.ask(opening + chunks * 4)).status == status
        assert session.requests == []
        assert await served(gateway, slot)


async def test_a_body_in_chunks_is_put_together() -> None:
    session = Scripted()
    body = body_of("in chunks")
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        answer = await client.ask(head(slot.secret, "Transfer-Encoding: chunked") + pieces + b"0\r\n\r\n")
        assert answer.status == 200
    assert texts(session.requests) == ["in chunks"]


@pytest.mark.parametrize(("secret", "status", "code"), [(None, 400, None), ("wrong", 401, "invalid_api_key")])
async def test_a_body_in_very_many_small_chunks_is_refused(secret: str | None, status: int, code: str | None) -> None:
    session = Scripted()
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        answer = await client.ask(
            head(secret or slot.secret, "Transfer-Encoding: chunked") + b"1\r\nx\r\n" * (2 * FREE_CHUNKS)
        )
        assert (answer.status, answer.error["code"]) == (status, code)
        if status == 400:
            assert "4,162 chunks for 4,162 bytes are too many: send larger chunks" in answer.error["message"]
        assert await client.ended()
        assert session.requests == []
        assert await served(gateway, slot)


async def test_a_body_in_very_many_chunks_of_some_size_is_put_together() -> None:
    session = Scripted()
    body = body_of("x" * (2 * FREE_CHUNKS * CHUNK_SIZE))
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        pieces = (body[start : start + CHUNK_SIZE] for start in range(0, len(body), CHUNK_SIZE))
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        answer = await client.ask(head(slot.secret, "Transfer-Encoding: chunked") + chunks + b"0\r\n\r\n")
    assert answer.status == 200
    assert len(texts(session.requests)[0]) == 2 * FREE_CHUNKS * CHUNK_SIZE


async def test_headers_beyond_the_bound_are_refused() -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        answer = await client.ask(post(slot.secret, None, f"X-Long: {'x' * 2 * HEAD_LIMIT}"))
        assert answer.status == 431
        assert await served(gateway, slot)


# Clients that misbehave


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),  # somebody speaks TLS
        b"HELO gateway\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_garbage_is_a_bad_request_and_disturbs_nobody(garbage: bytes) -> None:
    async with open_gateway() as gateway, connected(gateway) as bystander, connected(gateway) as client:
        slot = gateway.open_slot(Scripted())
        answer = await client.ask(garbage)
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
        assert await client.ended()
        assert (await bystander.ask(post(slot.secret))).status == 200


async def test_a_client_that_speaks_another_version_is_told_which_to_speak() -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        answer = await client.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert (answer.status, answer.headers["connection"]) == (505, "close")
        assert "HTTP/1.1" in answer.error["message"]


@pytest.mark.parametrize("share", [1, 40, -1])
async def test_half_a_request_disturbs_nobody_whether_it_waits_or_ends(share: int) -> None:
    session = Scripted()
    async with open_gateway() as gateway, connected(gateway) as waiting, connected(gateway) as ending:
        slot = gateway.open_slot(session)
        half = post(slot.secret)[:share]
        await waiting.send(half)
        await ending.send(half)
        await ending.stream.send_eof()
        assert b"200 OK" not in await ending.rest()
        assert await served(gateway, slot)
    assert len(session.requests) == 1


async def test_a_client_that_does_not_read_its_answer_holds_up_nobody() -> None:
    large = Response(message=AssistantMessage("x" * 30_000_000))
    async with open_gateway(grace=0) as gateway, connected(gateway) as deaf:
        await deaf.send(post(gateway.open_slot(Scripted([large])).secret))
        await deaf.stream.receive_some(1)
        assert await served(gateway, gateway.open_slot(Scripted()))


# Hanging up


def reset(client: Raw) -> None:
    """Break the connection off instead of ending it."""
    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["close", "reset", "end of sending", "close after sending ahead"])
async def test_a_client_that_hangs_up_cancels_its_call(how: str, stream: bool) -> None:
    session = Held()
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        async with connected(gateway) as client:
            await client.send(post(slot.secret, body_of(stream=stream)))
            await session.begun.wait()
            if how == "close after sending ahead":
                await client.send(post(slot.secret))
            if how == "reset":
                reset(client)
            if how == "end of sending":
                await client.stream.send_eof()
                assert await client.ended()
        await session.cancelled.wait()
        assert session.calls == 1
        assert not session.committed.is_set()


async def test_a_session_whose_model_has_answered_commits_after_the_client_hung_up() -> None:
    session = Held()
    session.answered = True
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        async with connected(gateway) as client:
            await client.send(post(slot.secret))
            await session.begun.wait()
        await wait_all_tasks_blocked()
        session.release.set()
        await session.committed.wait()
        assert not session.cancelled.is_set()
        assert await served(gateway, slot)


async def test_a_hang_up_cancels_no_call_but_its_own() -> None:
    session, other = Held(), Held()
    async with open_gateway() as gateway, connected(gateway) as staying, trio.open_nursery() as nursery:
        answers: list[Answer] = []

        async def stay() -> None:
            answers.append(await staying.ask(post(gateway.open_slot(other).secret)))

        nursery.start_soon(stay)
        await other.begun.wait()
        async with connected(gateway) as leaving:
            await leaving.send(post(gateway.open_slot(session).secret))
            await session.begun.wait()
        await session.cancelled.wait()
        other.release.set()
    assert [answer.status for answer in answers] == [200]


async def test_a_stream_whose_reader_leaves_midway_disturbs_nobody() -> None:
    large = Response(message=AssistantMessage("x" * 30_000_000))
    async with open_gateway() as gateway:
        async with connected(gateway) as client:
            await client.send(post(gateway.open_slot(Scripted([large])).secret, body_of(stream=True)))
            await client.stream.receive_some(1)
        assert await served(gateway, gateway.open_slot(Scripted([ANSWER])))
