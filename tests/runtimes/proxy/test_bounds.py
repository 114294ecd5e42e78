"""What a client, a name or an origin can hold the proxy up with is bounded."""

import logging
from contextlib import suppress

import pytest
import trio

from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtimes.proxy.dialling import look_up
from tests.runtimes.proxy.internet import OTHER, PUBLIC, everything, opened, site

ONLY_EXAMPLE = NetworkPolicy(["example.org"])
CONNECT = b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n"
GET = b"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n"


async def never(*_: object) -> None:
    await trio.sleep_forever()


async def test_a_head_that_comes_byte_by_byte_is_not_waited_for_longer_than_one_that_does_not_come() -> None:
    async with site(ONLY_EXAMPLE) as here, await here.open() as client, trio.open_nursery() as nursery:
        begun = trio.current_time()

        async def dribble() -> None:
            for byte in GET:
                await client.send_all(bytes([byte]))
                await trio.sleep(1)

        nursery.start_soon(dribble)
        assert (await client.receive_some()).startswith(b"HTTP/1.1 408 ")
        assert trio.current_time() - begun == here.proxy.head_timeout == 10
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("long", [GET.replace(b"/ ", b"/" + b"a" * 200_000 + b" "), GET[:-2] + b"X: " + b"a" * 200_000])
async def test_a_long_head_is_refused(long: bytes) -> None:
    async with site(ONLY_EXAMPLE) as here:
        assert (await here.ask(long)).startswith(b"HTTP/1.1 431 ")
        assert here.net.dialled == []


async def test_one_connection_too_many_is_turned_away_and_there_is_room_when_another_ends() -> None:
    async with site(ONLY_EXAMPLE, max_connections=2) as here:
        async with await opened(here, CONNECT), await here.open():
            answer = await here.ask(GET)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert answer.endswith(b"2 connections are open already: close some\n")
        await trio.testing.wait_all_tasks_blocked()
        await (await opened(here, CONNECT)).aclose()


async def test_an_origin_that_does_not_answer_is_given_up() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.proxy.connect = never  # type: ignore[assignment]
        begun = trio.current_time()
        answer = await here.ask(GET)
        assert answer.startswith(b"HTTP/1.1 504 ")
        assert answer.endswith(b"nothing answered within 30.0 s\n")
        assert trio.current_time() - begun == here.proxy.connect_timeout


async def test_an_address_that_does_not_answer_leaves_time_for_the_next() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.names["example.org"] = [["2606:4700::1", "2606:4700::2", OTHER]]
        here.net.servers[OTHER, 443] = here.net.servers[PUBLIC, 443]
        connect = here.proxy.connect

        async def dead(address: object, port: int) -> trio.SocketStream:
            if str(address) != OTHER:
                await trio.sleep_forever()
            return await connect(address, port)  # type: ignore[arg-type]

        here.proxy.connect = dead
        begun = trio.current_time()
        await (await opened(here, CONNECT)).aclose()
        assert trio.current_time() - begun == 20


async def test_a_look_up_that_does_not_end_is_given_up_and_few_are_made_at_once() -> None:
    async with site(ONLY_EXAMPLE) as here, trio.open_nursery() as nursery:
        most = now = 0

        async def slow(*_: object) -> None:
            nonlocal most, now
            now += 1
            most = max(most, now)
            try:
                await trio.sleep_forever()
            finally:
                now -= 1

        here.proxy.resolve = slow  # type: ignore[assignment]
        answers: list[bytes] = []

        async def ask() -> None:
            answers.append(await here.ask(GET))

        for _ in range(10):
            nursery.start_soon(ask)
        await trio.sleep(3 * here.proxy.connect_timeout)
        assert len(answers) == 10
        assert all(answer.startswith(b"HTTP/1.1 504 ") for answer in answers)
        assert b"was looked up without an answer for 30.0 s" in answers[0]
        assert most == 4


async def test_what_moves_no_byte_is_closed_and_what_moves_one_now_and_then_is_not() -> None:
    async with site(ONLY_EXAMPLE, idle_timeout=60) as here:
        async with await opened(here, CONNECT) as client:
            for _ in range(10):
                await trio.sleep(59)
                await client.send_all(b"x")
                assert await client.receive_some() == b"x"
            begun = trio.current_time()
            assert await everything(client) == b""
            assert trio.current_time() - begun == 60
        here.net.servers[PUBLIC, 80] = never
        assert await here.ask(GET) == b""


async def test_a_client_that_is_turned_away_and_goes_on_sending_is_not_listened_to_for_ever() -> None:
    async with site(ONLY_EXAMPLE) as here, await here.open() as client:
        await client.send_all(GET.replace(b"example.org", b"other.example"))
        assert (await everything(client)).startswith(b"HTTP/1.1 403 ")
        begun = trio.current_time()
        with suppress(trio.BrokenResourceError):
            while True:
                await client.send_all(b"x")
                await trio.sleep(0.5)
        assert trio.current_time() - begun <= 3


async def test_the_last_refusals_are_kept_and_each_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rollout_fsm.network")
    async with site(NetworkPolicy([])) as here:
        for port in range(1, 121):
            await here.ask(b"CONNECT example.org:%d HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        assert [refusal.port for refusal in here.proxy.refusals] == list(range(21, 121))
    assert len(caplog.messages) == 120
    assert caplog.messages[0] == (
        "refused: example.org:1 is not allowed by the network policy: its allow has no entry such as 'example.org:1'"
    )


@pytest.mark.real_time
async def test_a_name_is_looked_up_as_this_machine_does() -> None:
    assert {str(address) for address in await look_up("localhost", 80)} <= {"127.0.0.1", "::1"}
