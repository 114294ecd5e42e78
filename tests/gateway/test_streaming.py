"""Answers that are sent while they are made: in which order, to whom how fast, and how they break off."""

import json

import pytest
from trio.testing import wait_all_tasks_blocked

from rollout_fsm.errors import ProviderError, TurnRefused
from rollout_fsm.gateway import Slot, open_gateway
from rollout_fsm.gateway.turns import AHEAD

from .raw import Raw, body_of, connected, post
from .sessions import Held, Scripted, Streaming

pytestmark = pytest.mark.real_time

STREAMED = body_of(stream=True)


def said(data: bytes) -> str:
    """The text of the chunks in a piece of a stream."""
    events = [line.removeprefix("data: ") for line in data.decode().split("\n") if line.startswith("data: {")]
    choices = [choice for event in events for choice in json.loads(event).get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def begun(client: Raw, slot: Slot, *headers: str) -> None:
    """Ask for a stream, and read its head."""
    await client.send(post(slot.secret, STREAMED, *headers))
    assert b"200" in await client.until(b"\r\n\r\n")


async def more(client: Raw) -> bytes:
    """The next chunk of the transfer; empty when that was the last one."""
    return (await client.exactly(int(await client.until(b"\r\n"), 16) + 2))[:-2]


async def read_text(client: Raw, text: str) -> None:
    """Read until so much was said."""
    seen = ""
    while seen != text:
        assert text.startswith(seen)
        seen += said(await more(client))


async def test_each_piece_is_sent_while_the_model_still_answers() -> None:
    session = Streaming("one ", "two ", "three")
    async with open_gateway() as gateway, connected(gateway) as client:
        await client.send(post(gateway.open_slot(session).secret, STREAMED))
        for number, piece in enumerate(session.pieces):
            session.go_on()
            if not number:
                assert b"200" in await client.until(b"\r\n\r\n")
            await read_text(client, piece)
        assert not session.committed
        session.go_on()
        rest = await client.chunks()
    assert session.committed
    assert said(rest) == ""
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_nothing_is_sent_before_the_first_piece_so_that_a_failure_has_its_status() -> None:
    async with open_gateway() as gateway, connected(gateway) as client:
        refused = gateway.open_slot(Streaming(end=TurnRefused("rollout stopped: x", condition="x")))
        session = refused._session
        assert isinstance(session, Streaming)
        await client.send(post(refused.secret, STREAMED))
        session.go_on()
        answer = await client.answer()
    assert (answer.status, answer.error["code"]) == (400, "x")


async def test_a_session_that_tells_no_pieces_is_streamed_once_its_turn_is_committed() -> None:
    session = Held()
    async with open_gateway() as gateway, connected(gateway) as client:
        await client.send(post(gateway.open_slot(session).secret, STREAMED))
        await session.begun.wait()
        session.release.set()
        answer = await client.answer()
    assert said(answer.body) == "four, number 1"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ProviderError("the line went dead", status_code=502), "ProviderError: the line went dead"),
        (TurnRefused("the segment ended while the call was in flight"), "the segment ended while the call"),
    ],
)
async def test_a_failure_after_the_first_piece_is_an_event_and_ends_the_connection(
    error: Exception, words: str
) -> None:
    session = Streaming("one ", end=error)
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        session.go_on(2)
        await begun(client, slot)
        rest = await client.chunks()
        assert await client.ended()
    assert said(rest) == "one "
    assert words in rest.decode()
    assert b'"error"' in rest


async def test_a_client_that_hangs_up_midway_cancels_its_call() -> None:
    session = Streaming("one ", "two")
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        async with connected(gateway) as client:
            session.go_on()
            await begun(client, slot)
            await read_text(client, "one ")
        await session.cancelled.wait()
        assert not session.committed
        async with connected(gateway) as client:
            assert (await client.ask(post(gateway.open_slot(Scripted()).secret))).status == 200


async def test_a_client_that_does_not_read_holds_up_its_own_model_and_nobody_else() -> None:
    piece = "x" * AHEAD
    session = Streaming(*[piece] * 60)
    session.go_on(61)
    async with open_gateway() as gateway, connected(gateway) as deaf:
        await begun(deaf, gateway.open_slot(session))
        async with connected(gateway) as client:
            assert (await client.ask(post(gateway.open_slot(Scripted()).secret))).status == 200
        await wait_all_tasks_blocked(0.05)
        held = session.told
        assert held < 60
        await wait_all_tasks_blocked(0.05)
        assert session.told == held
        assert said(await deaf.chunks()) == piece * 60
    assert session.committed


async def test_an_old_client_gets_the_pieces_up_to_the_end_of_the_connection() -> None:
    session = Streaming("one ", "two")
    async with open_gateway() as gateway, connected(gateway) as client:
        request = post(gateway.open_slot(session).secret, STREAMED).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        session.go_on()
        await client.send(request)
        head = await client.until(b"\r\n\r\n")
        assert b"transfer-encoding" not in head.lower()
        while said(client.buffer) != "one ":
            await client.more()
        session.go_on(2)
        assert said(await client.rest()) == "one two"


async def test_a_connection_goes_on_after_a_stream() -> None:
    session = Streaming("one ", "two")
    session.go_on(6)
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        for _ in range(2):
            assert said((await client.ask(post(slot.secret, STREAMED))).body) == "one two"
