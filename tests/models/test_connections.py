"""The connections of a model client: which are kept, which are not, how an answer is framed, and where a URL leads."""

import ssl
import threading
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme

from rollout_fsm.models import connections
from rollout_fsm.models.connections import IDLE, Connections, target_of
from rollout_fsm.models.faults import BrokenError, ConnectError, HeaderError, SilentError, UrlError, unreachable
from rollout_fsm.models.wire import HEAD_LIMIT, SEND_SIZE, Connection
from tests.models.misbehaving import Behaviour, Heard, Server, closes, in_turn, sends, serving

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def client(timeout: float | None = 60.0) -> AsyncIterator[Connections]:
    made = Connections(timeout)
    try:
        yield made
    finally:
        made.close()


async def ask(client: Connections, server: Server, **headers: str) -> tuple[int, bytes]:
    sent = {name.lower(): (name, value) for name, value in headers.items()}
    async with client.asked(server.base_url, sent, b"asked") as answer:
        body = b""
        while piece := await answer.piece():
            body += piece
        return answer.status, body


# Which connections are kept


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (OK, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Trailer: 1\r\n\r\n", True),
        (b"HTTP/1.1 100 Continue\r\nX-A: 1\r\n\r\n" + OK, True),
        (b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + OK, True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", False),
        (OK + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", False),
        (OK + b"nonsense", False),
    ],
)
async def test_a_connection_is_kept_where_the_endpoint_keeps_it_and_said_no_more_than_was_asked(
    answer: bytes, kept: bool
) -> None:
    async with serving(sends(answer)) as server, client() as asking:
        for _ in range(2):
            assert await ask(asking, server) == (200, b"ok")
        assert server.connections == (1 if kept else 2)


async def test_a_connection_that_was_not_used_for_long_is_not_used_again() -> None:
    async with serving(sends(OK)) as server, client() as asking:
        await ask(asking, server)
        await trio.sleep(IDLE - 1)
        await ask(asking, server)
        assert server.connections == 1
        await trio.sleep(IDLE)
        await ask(asking, server)
        assert server.connections == 2
        await server.until(lambda server: server.gone == 1)


@pytest.mark.real_time
async def test_a_connection_that_the_endpoint_has_closed_meanwhile_is_not_used_again() -> None:
    async with serving(in_turn(closes(OK), sends(OK))) as server, client() as asking:
        await ask(asking, server)
        await server.until(lambda server: server.gone == 1)
        assert await ask(asking, server) == (200, b"ok")


@pytest.mark.real_time
async def test_a_connection_whose_answer_was_not_read_to_its_end_is_closed() -> None:
    async with serving(sends(OK)) as server, client() as asking:
        async with asking.asked(server.base_url, {}, b""):
            pass
        await server.until(lambda server: server.gone == 1)


@pytest.mark.real_time
async def test_connections_are_closed_with_their_client_and_one_in_use_when_it_is_over() -> None:
    async with serving(sends(OK)) as server, client() as asking:
        async with asking.asked(server.base_url, {}, b"") as answer:
            await ask(asking, server)
            asking.close()
            await server.until(lambda server: server.gone == 1)
            assert await answer.piece() == b"ok"
            assert await answer.piece() == b""
        await server.until(lambda server: server.gone == 2)


# How an answer is framed


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        (closes(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"), "closed in the middle of the answer"),
        (closes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"), "closed in the middle"),
        (closes(b"HTTP/1.1 200"), "closed without an answer"),
        (closes(b"HTTP/1.1 100 Continue\r\n\r\n"), "closed without an answer"),
        (sends(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 2 * HEAD_LIMIT), "a head of more than"),
        (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;" + b"x" * 2 * HEAD_LIMIT), "more than"),
        (
            closes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"),
            "closed in the middle",
        ),
        (
            sends(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"),
            "no HTTP/1.1: it goes on in another protocol",
        ),
        (sends(b"HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n"), "no HTTP/1.1: its status is 0"),
        (sends(b"SSH-2.0-OpenSSH_9.2\r\n"), "no HTTP/1.1"),
    ],
)
async def test_an_answer_that_is_none_is_a_fault_that_says_what_it_was(behaviour: Behaviour, says: str) -> None:
    async with serving(behaviour) as server, client() as asking:
        with pytest.raises(BrokenError, match=says):
            await ask(asking, server)


@pytest.mark.real_time
async def test_an_answer_without_a_length_goes_on_to_the_end_of_its_connection() -> None:
    async with serving(closes(b"HTTP/1.1 200 OK\r\n\r\nall of it")) as server, client() as asking:
        assert await ask(asking, server) == (200, b"all of it")


@pytest.mark.real_time
async def test_an_endpoint_that_has_had_enough_may_have_said_why() -> None:
    async def behave(stream: trio.SocketStream, request: Heard) -> None:
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nmuch")
        await stream.send_eof()

    async with serving(behave) as server, client() as asking:
        assert await ask(asking, server) == (413, b"much")


# What is sent


class Taking:
    """An endpoint that takes so many seconds for each piece of a request, and then answers."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)
        self.taken = 0

    async def send_all(self, data: bytes) -> None:
        await trio.sleep(self.seconds.pop(0))
        self.taken += len(data)

    async def receive_some(self, size: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return OK


async def test_an_endpoint_may_take_a_large_request_slowly_but_not_rest_for_too_long() -> None:
    content = bytes(3 * SEND_SIZE)
    with trio.socket.socket() as socket:
        slow = Taking(9, 9, 9, 9)
        answer = await Connection(slow, socket, 10).ask(b"", content)  # type: ignore[arg-type]
        assert (answer.status, slow.taken, trio.current_time()) == (200, len(content), pytest.approx(27))
        with pytest.raises(SilentError):
            await Connection(Taking(9, 11), socket, 10).ask(b"", content)  # type: ignore[arg-type]
        assert trio.current_time() == pytest.approx(27 + 9 + 10)


@pytest.mark.real_time
async def test_a_request_says_where_it_goes_and_who_asks_in_one_piece() -> None:
    async with serving(sends(OK)) as server, client() as asking:
        await ask(asking, server, Authorization="Bearer k", Accept="text/event-stream", Umlaut="\xfc")
    (heard,) = server.heard
    assert heard.line == "POST /v1 HTTP/1.1"
    assert heard.body == b"asked"
    host = server.base_url.removeprefix("http://").removesuffix("/v1")
    assert heard.headers == {
        "host": host,
        "accept": "text/event-stream",
        "user-agent": "rollout-fsm",
        "authorization": "Bearer k",
        "umlaut": "\xfc",
        "content-length": "5",
    }


@pytest.mark.real_time
async def test_how_a_request_is_framed_is_not_for_a_header_of_ones_own_to_say() -> None:
    async with serving(sends(OK)) as server, client() as asking:
        framing = {"Content-Length": "3", "Transfer-Encoding": "chunked"}
        assert await ask(asking, server, **framing) == (200, b"ok")
    assert server.heard[0].headers.get("transfer-encoding") is None
    assert server.heard[0].body == b"asked"


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"X Y": "a"}, {"": "a"}, {"X": "\u20ac"}, {"X": "a\x00b"}])
async def test_a_header_that_http_does_not_allow_is_not_sent(headers: dict[str, str]) -> None:
    async with serving(sends(OK)) as server, client() as asking:
        with pytest.raises(HeaderError):
            await ask(asking, server, **headers)
        assert server.connections == 0


# Where a URL leads


@pytest.mark.parametrize(
    ("url", "host", "port", "name", "path"),
    [
        ("http://models.test/v1", "models.test", 80, "models.test", "/v1"),
        ("https://models.test", "models.test", 443, "models.test", "/"),
        ("http://models.test:0/v1", "models.test", 0, "models.test:0", "/v1"),
        ("http://models.test:80/v1", "models.test", 80, "models.test", "/v1"),
        ("https://Models.Test:80/v1?a=b%20c&d=e f#g", "models.test", 80, "models.test:80", "/v1?a=b%20c&d=e%20f"),
        ("http://[::1]:8000/v1", "::1", 8000, "[::1]:8000", "/v1"),
        ("http://m\xfcller.test/\xfc", "xn--mller-kva.test", 80, "xn--mller-kva.test", "/%C3%BC"),
        ("http://me:secret@models.test/v1", "models.test", 80, "models.test", "/v1"),
    ],
)
def test_a_url_says_who_is_asked_and_for_what(url: str, host: str, port: int, name: str, path: str) -> None:
    target = target_of(url)
    assert (target.origin.host, target.origin.port) == (host, port)
    assert (target.name, target.path) == (name.encode(), path.encode())
    assert "secret" not in repr(target)


@pytest.mark.real_time
async def test_the_credentials_of_a_url_are_sent_instead_of_a_key() -> None:
    async with serving(sends(OK)) as server, client() as asking:
        url = server.base_url.replace("http://", "http://me:s%40cret@")
        async with asking.asked(url, {"authorization": ("Authorization", "Bearer k")}, b""):
            pass
    assert server.heard[0].headers["authorization"] == f"Basic {b64encode(b'me:s@cret').decode()}"


@pytest.mark.parametrize(
    "url", ["http://", "http:///v1", "http://a:b/", "http://a:70000/", "ftp://a/", "http://" + "a" * 70]
)
def test_a_url_that_leads_nowhere_is_said(url: str) -> None:
    with pytest.raises(UrlError):
        target_of(url)


# TLS


@pytest.mark.real_time
async def test_an_endpoint_that_speaks_no_tls_cannot_be_connected_to() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.send_all(OK)
        while await stream.receive_some():
            pass

    async with trio.open_nursery() as nursery, client() as asking:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        server = Server(f"https://127.0.0.1:{listener.socket.getsockname()[1]}/v1")
        assert "wrong version number" in await connecting(asking, server)
        nursery.cancel_scope.cancel()


async def connecting(client: Connections, server: Server) -> str:
    """What is said of a connection that cannot be made."""
    with pytest.raises(ConnectError) as caught:
        await ask(client, server)
    return str(unreachable(caught.value, doing="asking", url=server.base_url, timeout=None))


@asynccontextmanager
async def serving_tls(authority: trustme.CA) -> AsyncIterator[Server]:
    """A server of this machine with a certificate of the authority's; each thing that it is asked is answered."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server = Server(f"https://127.0.0.1:{listener.socket.getsockname()[1]}/v1")

        async def serve(stream: trio.SocketStream) -> None:
            server.connections += 1
            secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
            try:
                while await secured.receive_some():
                    await secured.send_all(OK)
            except trio.BrokenResourceError:
                pass  # the client does not trust it

        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield server
        nursery.cancel_scope.cancel()


@pytest.mark.real_time
async def test_an_endpoint_whose_certificate_is_trusted_is_asked_over_tls_on_one_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = trustme.CA()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    made_in: list[int] = []

    def make() -> ssl.SSLContext:
        made_in.append(threading.get_ident())
        return trusting

    monkeypatch.setattr(connections, "_tls", make)
    async with serving_tls(authority) as server, client() as asking:
        for _ in range(2):
            assert await ask(asking, server) == (200, b"ok")
        assert server.connections == 1
    assert threading.get_ident() not in made_in  # the event loop went on


@pytest.mark.real_time
async def test_an_endpoint_whose_certificate_nobody_trusts_is_not_asked() -> None:
    async with serving_tls(trustme.CA()) as server, client() as asking:
        assert "certificate verify failed" in await connecting(asking, server)


@pytest.mark.real_time
async def test_no_variable_of_the_environment_says_who_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "trusted.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
    monkeypatch.setattr(connections, "_tls", connections._tls.__wrapped__)
    async with serving_tls(authority) as server, client() as asking:
        assert "certificate verify failed" in await connecting(asking, server)
