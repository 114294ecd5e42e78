"""The engine's side of a container's carrier: connections that were made in a container whose network is gone, over the
pipes of one command line.

A frame is a letter, the number of a connection, a length, and so many bytes: `R`eady; `O`pened, at the place of that
index; `D`ata; `A`, one frame of data was taken; `E`, no more data; `C`losed. No side sends more than `WINDOW` frames of
data that were not taken, so no connection holds up another. What the container says is no more trusted than its
programs are: what is no frame ends the relay.
"""

import logging
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import trio
from attrs import define, field

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtime import Answer
from rollout_fsm.runtimes.docker import carrier
from rollout_fsm.runtimes.docker.carrier import AT_ONCE, CHUNK, HEAD, WINDOW
from rollout_fsm.runtimes.docker.client import LONGEST, PATIENCE, Client
from rollout_fsm.runtimes.docker.executing import end
from rollout_fsm.runtimes.proxy.routes import Place
from rollout_fsm.runtimes.proxy.speaking import GONE
from rollout_fsm.runtimes.tasks import Tasks

log = logging.getLogger("rollout_fsm.network")

READY = b"R"
OPENED = b"O"
DATA = b"D"
TAKEN = b"A"
ENDED = b"E"
CLOSED = b"C"
STUCK = 10.0
"""Seconds in which a frame has to be taken: half a frame is none, so what was begun is not given up before."""


class _BrokenError(Exception):
    """The container's side is gone, or says what is no frame."""


@define(eq=False, repr=False)
class _Line:
    """A connection, as a pair of sockets: one for who answers it, one that is carried."""

    number: int
    answer: Answer
    scope: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    granted: trio.Semaphore = field(init=False, factory=lambda: trio.Semaphore(WINDOW, max_value=WINDOW))
    put: trio.MemorySendChannel[bytes] = field(init=False)
    get: trio.MemoryReceiveChannel[bytes] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.put, self.get = trio.open_memory_channel[bytes](WINDOW + 1)  # and the end


@define(eq=False, repr=False)
class Relay:
    """The ways out of one container: who answers at which places of its loopback interface."""

    runtime: str
    places: Collection[Place]
    _process: trio.Process
    _answers: Sequence[Answer]
    _scope: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    _over: trio.Event = field(init=False, factory=trio.Event)
    _heard: bytearray = field(init=False, factory=bytearray)
    _lines: dict[int, _Line] = field(init=False, factory=dict)
    _writing: trio.Lock = field(init=False, factory=trio.Lock)

    @classmethod
    async def open(cls, client: Client, container: str, served: Mapping[Place, Answer], tasks: Tasks) -> "Relay":
        """Listen in the container. Raises `SandboxError` where that cannot be."""
        places = [f"{host}:{port}" for host, port in served]
        words = ("exec", "-i", "--user=0", container, "python3", "-I", "-S", "-c", _program(), *places)
        relay = cls(client.runtime, served.keys(), await client.open(*words), tuple(served.values()))
        try:
            await relay._ready()
        except BaseException:
            await end(relay._process)
            raise
        tasks.start_soon(relay._carry)
        return relay

    async def _ready(self) -> None:
        assert self._process.stderr is not None
        with trio.move_on_after(PATIENCE):
            try:
                kind, _, _ = await self._frame()
            except _BrokenError:
                kind = b""
            if kind == READY:
                return
            complaint = bytes(await self._process.stderr.receive_some(LONGEST)).decode(errors="replace").strip()
            raise SandboxError(
                f"runtime {self.runtime} has a network policy and cannot carry the framework's routes into its "
                f"container: {complaint or 'its python3 says nothing'}; the image needs python3 for that"
            )
        raise SandboxError(f"runtime {self.runtime}: python3 in the container did not answer within {PATIENCE:g} s")

    async def _carry(self) -> None:
        """Serve what is connected, until the container's side ends or the relay is closed."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_drain, self._process.stderr)
                    try:
                        while True:
                            self._take(nursery, *await self._frame())
                    except _BrokenError:
                        nursery.cancel_scope.cancel()
        finally:
            await end(self._process)
            self._over.set()

    async def close(self) -> None:
        """Cut every connection. Any number of times."""
        self._process.kill()  # so that nothing waits for it any more
        self._scope.cancel()
        await self._over.wait()

    def _take(self, nursery: trio.Nursery, kind: bytes, number: int, data: bytes) -> None:
        line = self._lines.get(number)
        if kind == OPENED:
            if line is not None or len(data) != 1 or data[0] >= len(self._answers) or len(self._lines) >= 2 * AT_ONCE:
                raise _BrokenError
            line = self._lines[number] = _Line(number, self._answers[data[0]])
            nursery.start_soon(self._serve, line)
        elif kind not in (DATA, TAKEN, ENDED, CLOSED):
            raise _BrokenError
        elif line is None:
            return  # it was closed meanwhile
        elif kind == CLOSED:
            line.scope.cancel()
        elif kind == TAKEN:
            if line.granted.value == WINDOW:
                raise _BrokenError
            line.granted.release()
        else:
            try:
                line.put.send_nowait(data if kind == DATA else b"")
            except trio.WouldBlock:
                raise _BrokenError from None

    async def _serve(self, line: _Line) -> None:
        """A connection, until who answers it is done."""
        carried, served = (trio.SocketStream(trio.socket.from_stdlib_socket(one)) for one in socket.socketpair())
        try:
            with line.scope:
                async with carried, trio.open_nursery() as nursery:
                    nursery.start_soon(self._bring, line, carried)
                    nursery.start_soon(_answer, line.answer, served)
                    await self._send(line, carried)
                    nursery.cancel_scope.cancel()
        finally:
            del self._lines[line.number]
            served.socket.close()
        await self._say(CLOSED, line.number)

    async def _bring(self, line: _Line, carried: trio.SocketStream) -> None:
        """What the container says, to who answers."""
        try:
            async for data in line.get:
                if data:
                    await carried.send_all(data)
                    await self._say(TAKEN, line.number)
                else:
                    await carried.send_eof()
        except GONE:
            return  # it wants no more

    async def _send(self, line: _Line, carried: trio.SocketStream) -> None:
        """What is answered, to the container, until there is no more."""
        try:
            while data := bytes(await carried.receive_some(CHUNK)):
                await line.granted.acquire()
                await self._say(DATA, line.number, data)
        except GONE:
            return
        await self._say(ENDED, line.number)

    async def _say(self, kind: bytes, number: int, data: bytes = b"") -> None:
        """Send a frame, whole."""
        assert self._process.stdin is not None
        async with self._writing:
            with trio.move_on_after(STUCK, shield=True) as scope:
                try:
                    await self._process.stdin.send_all(HEAD.pack(kind, number, len(data)) + data)
                except GONE:
                    return  # whoever reads will see its end
            if scope.cancelled_caught:
                self._process.kill()

    async def _frame(self) -> tuple[bytes, int, bytes]:
        """The next frame. Raises `_BrokenError` where there is none."""
        kind, number, length = HEAD.unpack(await self._exactly(HEAD.size))
        return kind, number, await self._exactly(length)

    async def _exactly(self, count: int) -> bytes:
        assert self._process.stdout is not None
        while len(self._heard) < count:
            chunk = await self._process.stdout.receive_some(2 * CHUNK)
            if not chunk:
                raise _BrokenError
            self._heard += chunk
        data = bytes(self._heard[:count])
        del self._heard[:count]
        return data


def _program() -> str:
    return Path(carrier.__file__).read_text(encoding="utf-8")


async def _answer(answer: Answer, stream: trio.SocketStream) -> None:
    async with stream:
        try:
            await answer(stream)
        except Exception:
            log.warning("a connection of a box failed", exc_info=True)


async def _drain(pipe: trio.abc.ReceiveStream | None) -> None:
    while pipe is not None and await pipe.receive_some(CHUNK):
        pass
