"""What gets through the proxy: tunnels and forwarded requests, as they were said."""

from contextlib import suppress

import pytest
import trio

from rollout_fsm.network import NetworkPolicy, Policies
from tests.runtimes.proxy.internet import OTHER, PUBLIC, everything, opened, site, web

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
ONLY_EXAMPLE = NetworkPolicy(["example.org"])
CONNECT = b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n"
GET = b"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n"


# ---- tunnels


async def test_a_tunnel_carries_bytes_both_ways_until_both_sides_have_ended() -> None:
    async with site(ONLY_EXAMPLE) as here, await here.open() as client:
        await client.send_all(CONNECT + b"early ")
        head = b""
        while b"early " not in head:
            head += await client.receive_some()
        assert head == b"HTTP/1.1 200 Connection established\r\n\r\nearly "
        await client.send_all(b"\x16\x03\x01 not looked at")
        await client.send_eof()
        assert await everything(client) == b"\x16\x03\x01 not looked at"


async def test_a_side_of_a_tunnel_that_has_ended_may_still_be_told() -> None:
    async def speaks_last(stream: trio.SocketStream) -> None:
        heard = await everything(stream)
        await stream.send_all(b"heard " + heard)

    async def speaks_first(stream: trio.SocketStream) -> None:
        await stream.send_all(b"bye")
        await stream.send_eof()
        told.append(await everything(stream))
        all_told.set()

    told: list[bytes] = []
    all_told = trio.Event()
    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 443] = speaks_last
        assert (await here.ask(CONNECT, b"all", end=True)).endswith(b"\r\n\r\nheard all")
        here.net.servers[PUBLIC, 443] = speaks_first
        async with await opened(here, CONNECT) as client:
            assert await everything(client) == b"bye"
            await client.send_all(b"late words")
            await client.send_eof()
            await all_told.wait()
    assert told == [b"late words"]


async def test_a_tunnel_whose_one_side_breaks_off_is_closed_to_the_other() -> None:
    async def breaks(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.aclose()

    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 443] = breaks
        async with await opened(here, CONNECT) as client:
            await client.send_all(b"x" * 10)
            assert await everything(client) == b""


async def test_a_tunnel_holds_no_more_than_the_slower_side_takes() -> None:
    """The far side reads nothing: what the client can send is what sockets and one piece hold."""

    async def deaf(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with site(ONLY_EXAMPLE, idle_timeout=10) as here:
        here.net.servers[PUBLIC, 443] = deaf
        async with await opened(here, CONNECT) as client:
            sent = 0
            with suppress(trio.BrokenResourceError):
                while True:
                    await client.send_all(b"x" * 10_000)
                    sent += 10_000
            assert sent < 2_000_000


# ---- requests


async def test_a_request_is_forwarded_to_the_host_of_its_url() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 80], heard = web(OK)
        answer = await here.ask(
            b"POST http://EXAMPLE.org/a?b=c HTTP/1.1\r\nHost: other.example\r\nContent-Length: 3\r\n"
            b"Proxy-Authorization: Basic x\r\nConnection: x-mine, keep-alive, content-length\r\nX-Mine: 1\r\n"
            b"TE: trailers\r\nUpgrade: websocket\r\nX-Kept: 2\r\n\r\nabc"
        )
        assert answer == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"
        assert bytes(heard) == (
            b"POST /a?b=c HTTP/1.1\r\nhost: example.org\r\ncontent-length: 3\r\nx-kept: 2\r\n"
            b"connection: close\r\n\r\nabc"
        )


async def test_a_body_in_chunks_goes_on_in_chunks_and_comes_back_in_chunks() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 80], heard = web(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 99\r\nTrailer: x\r\n\r\n",
            b"2\r\nhi\r\n0\r\nx: y\r\n\r\n",
        )
        answer = await here.ask(
            b"PUT http://example.org HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"3\r\nabc\r\n1;ext=1\r\nd\r\n0\r\nx: y\r\n\r\n",
        )
        head, _, body = answer.partition(b"\r\n\r\n")
        assert body == b"2\r\nhi\r\n0\r\n\r\n"
        assert b"content-length" not in head.lower()
        assert bytes(heard).startswith(b"PUT / HTTP/1.1\r\nhost: example.org\r\ntransfer-encoding: chunked\r\n")
        assert bytes(heard).endswith(b"\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n")


async def test_an_old_server_that_ends_its_answer_by_closing_is_understood() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 80], _ = web(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        assert (await here.ask(GET)).endswith(b"\r\n\r\n9\r\nall of it\r\n0\r\n\r\n")
        here.net.servers[PUBLIC, 80], _ = web(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        assert (await here.ask(b"GET http://example.org/ HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\nall of it")


async def test_an_answer_to_head_has_the_length_and_no_body() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 80], _ = web(b"HTTP/1.1 200 OK\r\ncontent-length: 70\r\n\r\n")
        answer = await here.ask(GET.replace(b"GET", b"HEAD"))
        assert answer == b"HTTP/1.1 200 OK\r\ncontent-length: 70\r\nconnection: close\r\n\r\n"
        refused = await here.ask(GET.replace(b"GET", b"HEAD").replace(b"example.org", b"other.example"))
        assert refused.startswith(b"HTTP/1.1 403 ")
        assert refused.endswith(b"\r\n\r\n")


async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 80], heard = web(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK)
        async with await here.open() as client:
            await client.send_all(
                b"PUT http://example.org/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
            )
            assert await client.receive_some() == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send_all(b"abc")
            assert (await everything(client)).endswith(b"\r\n\r\nhi")
        assert b"expect" not in heard
        assert heard.endswith(b"abc")


async def test_an_answer_that_comes_before_the_body_is_given() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 80], _ = web(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        answer = await here.ask(
            b"PUT http://example.org/ HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\n", b"abc"
        )
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert answer.endswith(b"no")


async def test_ports_other_than_the_usual_one_stand_in_the_host_header() -> None:
    async with site(NetworkPolicy(["example.org:8080", "[2606:4700::1111]"])) as here:
        here.net.servers[PUBLIC, 8080], heard = web(OK)
        await here.ask(b"GET http://example.org:8080?q HTTP/1.1\r\nHost: example.org\r\n\r\n")
        assert bytes(heard).startswith(b"GET /?q HTTP/1.1\r\nhost: example.org:8080\r\n")
        here.net.servers["2606:4700::1111", 80], heard = web(OK)
        await here.ask(b"GET http://[2606:4700:0::1111]:80/ HTTP/1.1\r\nHost: example.org\r\n\r\n")
        assert bytes(heard).startswith(b"GET / HTTP/1.1\r\nhost: [2606:4700::1111]\r\n")
        assert here.net.looked_up == ["example.org"]


# ---- trouble


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (b"", 502, b"the origin's answer is not valid HTTP/1.1"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", 502, b"the origin's answer is not valid HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 502, b"conflicting Content-Length"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", 502, b"the origin's answer is not valid HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000, 502, b"the origin's answer is not valid HTTP/1.1"),
    ],
)
async def test_an_origin_that_answers_no_http_is_said(answer: bytes, status: int, says: bytes) -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 80], _ = web(answer)
        said = await here.ask(GET)
        assert said.startswith(b"HTTP/1.1 %d " % status)
        assert says in said


async def test_an_answer_that_is_cut_off_does_not_look_whole() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 80], _ = web(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nhalf of ")
        assert (await here.ask(GET)).endswith(b"content-length: 20\r\nconnection: close\r\n\r\nhalf of ")
        here.net.servers[PUBLIC, 80], _ = web(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel")
        assert (await here.ask(GET)).endswith(b"\r\n\r\n3\r\nhel\r\n")


async def test_what_cannot_be_looked_up_or_reached_is_said() -> None:
    async with site(NetworkPolicy(["nowhere.example", "example.org", "empty.example"])) as here:
        here.net.names["empty.example"] = [[]]
        del here.net.servers[PUBLIC, 80]
        for name, says in (
            (b"nowhere.example", b"the name nowhere.example could not be looked up"),
            (b"empty.example", b"the name empty.example has no address"),
            (b"example.org", b"no connection: refused"),
        ):
            said = await here.ask(b"GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n" % name)
            assert said.startswith(b"HTTP/1.1 502 ")
            assert says in said
        assert not here.proxy.refusals


async def test_the_next_address_of_a_name_is_tried_where_one_refuses() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.names["example.org"] = [["2606:4700::1111", OTHER]]
        here.net.servers[OTHER, 80], _ = web(OK)
        assert (await here.ask(GET)).endswith(b"hi")
        assert here.net.dialled == [("2606:4700::1111", 80), (OTHER, 80)]


async def test_a_client_that_breaks_off_ends_its_origins_connection() -> None:
    ended = trio.Event()

    async def patient(stream: trio.SocketStream) -> None:
        try:
            while True:
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n" + b"x" * 100_000)
        finally:
            ended.set()

    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 80] = patient
        async with await here.open() as client:
            await client.send_all(GET)
            await client.receive_some()
        await ended.wait()


async def test_a_client_that_says_nothing_is_let_go() -> None:
    async with site(ONLY_EXAMPLE) as here:
        assert await here.ask(end=True) == b""


# ---- policies that are exchanged


async def test_what_the_new_policies_do_not_permit_is_cut_off_and_the_rest_goes_on() -> None:
    async with site() as here:
        here.net.servers[OTHER, 443] = here.net.servers[PUBLIC, 443]
        async with (
            await opened(here, CONNECT) as kept,
            await opened(here, CONNECT.replace(b"example.org", OTHER.encode())) as cut,
        ):
            here.proxy.policies = Policies((ONLY_EXAMPLE,))
            assert await everything(cut) == b""
            await kept.send_all(b"still here")
            assert await kept.receive_some() == b"still here"
        assert [str(refusal) for refusal in here.proxy.refusals] == [
            f"{OTHER}:443 is not allowed by the network policy: its allow has no entry such as '{OTHER}:443'"
        ]
        assert (await here.ask(GET.replace(b"example.org", b"other.example"))).startswith(b"HTTP/1.1 403 ")


async def test_a_connection_that_is_just_being_made_is_cut_off_too() -> None:
    async with site() as here:

        async def slow(*_: object) -> trio.SocketStream:
            here.proxy.policies = Policies((NetworkPolicy([]),))
            await trio.sleep_forever()
            raise AssertionError

        here.proxy.connect = slow
        said = await here.ask(GET)
        assert said.startswith(b"HTTP/1.1 403 ")
        assert b"example.org is not allowed any more: the network policy was exchanged" in said


async def test_policies_that_are_exchanged_during_a_look_up_count_after_it() -> None:
    async with site() as here:
        resolve = here.proxy.resolve

        async def slow(name: str, port: int) -> object:
            here.proxy.policies = Policies((NetworkPolicy([]),))
            return await resolve(name, port)

        here.proxy.resolve = slow  # type: ignore[assignment]
        assert (await here.ask(GET)).startswith(b"HTTP/1.1 403 ")
        assert here.net.dialled == []
