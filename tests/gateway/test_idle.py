"""A connection on the virtual clock: how long it waits for its client, and that a large read does not keep it busy."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import trio
import trio.testing
from attrs import frozen

from rollout_fsm.gateway.connection import CHUNKS_AT_ONCE, FREE_CHUNKS, IDLE, Call, Connection, Head
from rollout_fsm.gateway.incoming import Event, Incoming
from rollout_fsm.gateway.outgoing import Outgoing
from rollout_fsm.gateway.reply import Reply
from rollout_fsm.gateway.shutdown import Shutdown

from .raw import Raw, head


@frozen
class Echo:
    """Answers a body with itself, after so many seconds."""

    seconds: float = 0.0
    max_body: int = 10**6

    def route(self, head: Head) -> Call | Reply:
        return self._answer

    def refuse(self, head: Head | None, status: int, message: str, *, code: str | None = None) -> Reply:
        return Reply(status=status, body=message.encode())

    async def _answer(self, body: bytearray, out: Outgoing) -> Reply:
        await trio.sleep(self.seconds)
        return Reply(status=200, body=bytes(body))


@asynccontextmanager
async def client_of(application: Echo) -> AsyncIterator[Raw]:
    ours, theirs = socket.socketpair()
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as mine, trio.open_nursery() as nursery:

        async def serve() -> None:
            async with stream:
                await Connection(stream, application, Shutdown()).run()

        nursery.start_soon(serve)
        yield Raw(mine)


REQUEST = head("", "Content-Length: 3") + b"one"


@pytest.mark.parametrize("said", [b"", REQUEST[:1], REQUEST[:30], REQUEST[:-1]])
async def test_a_connection_on_which_nothing_more_is_said_ends_without_a_word(said: bytes) -> None:
    async with client_of(Echo()) as client:
        assert (await client.ask(REQUEST)).body == b"one"
        await client.send(said)
        before = trio.current_time()
        assert await client.ended()
        assert trio.current_time() - before == pytest.approx(IDLE)


async def test_a_connection_on_which_something_is_said_in_time_goes_on() -> None:
    async with client_of(Echo()) as client:
        for piece in (REQUEST[:10], REQUEST[10:-1]):
            await client.send(piece)
            await trio.sleep(IDLE - 1)
        assert (await client.ask(REQUEST[-1:])).body == b"one"


async def test_a_client_that_waits_for_its_answer_is_not_idle() -> None:
    async with client_of(Echo(seconds=10 * IDLE)) as client:
        for _ in range(2):
            assert (await client.ask(REQUEST)).body == b"one"


async def test_nothing_that_a_client_sent_is_kept_while_more_is_waited_for() -> None:
    ours, theirs = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in socket.socketpair())
    forgotten: list[int] = []

    class Sent(bytes):
        def __del__(self) -> None:
            forgotten.append(len(self))

    class Stream:
        send_all = theirs.send_all

        async def receive_some(self, size: int) -> bytes:
            return Sent(await theirs.receive_some(size))

    async with ours, theirs, trio.open_nursery() as nursery:
        nursery.start_soon(Connection(Stream(), Echo(seconds=1), Shutdown()).run)  # type: ignore[arg-type]
        client = Raw(ours)
        await client.send(REQUEST)
        await trio.testing.wait_all_tasks_blocked()
        assert forgotten == [len(REQUEST)]
        assert (await client.answer()).body == b"one"
        nursery.cancel_scope.cancel()


async def test_others_go_on_while_many_chunks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in chunks that are taken without a pause for others."""
    pauses: list[int] = []
    taken = 0
    next_event = Incoming.next

    def counted(incoming: Incoming) -> Event | None:
        nonlocal taken
        taken += 1
        return next_event(incoming)

    async def look() -> None:
        while True:
            pauses.append(taken)
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Incoming, "next", counted)
    async with trio.open_nursery() as nursery, client_of(Echo()) as client:
        nursery.start_soon(look)
        chunks = b"1\r\nx\r\n" * FREE_CHUNKS
        answer = await client.ask(head("", "Transfer-Encoding: chunked") + chunks + b"0\r\n\r\n")
        nursery.cancel_scope.cancel()
    assert answer.body == b"x" * FREE_CHUNKS
    assert taken > FREE_CHUNKS
    most = max(after - before for before, after in pairwise(pauses))
    assert most <= 2 * CHUNKS_AT_ONCE + 2  # of two tasks that take turns, one may go twice in a row
