"""A process that an agent leaves behind, and the strings by which a test pulls it.

The agent starts it in the background and ends; it connects to the test, and for each line that it is sent it makes one
call to the gateway and sends back what it got. It ends when the test hangs up.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio
from attrs import define, field

PUPPET = """
import subprocess
if sys.argv[1:] == ["puppet"]:
    host, port = os.environ["STRINGS"].split(":")
    strings = socket.create_connection((host, int(port))).makefile("rw")
    for text in strings:
        status, document = post([{"role": "user", "content": text.strip()}])
        strings.write(json.dumps([status, document]) + "\\n")
        strings.flush()
    sys.exit()

def leave_a_puppet():
    command = [sys.executable, "-I", "-S", "agent.py", "puppet"]
    subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
"""For an agent's body to begin with: what the left process does, and how it is left."""


@define(eq=False)
class Strings:
    """Where the puppet is pulled from."""

    address: str
    _arrived: trio.MemoryReceiveChannel[trio.SocketStream]
    _stream: trio.SocketStream | None = field(default=None, init=False)
    _heard: bytes = field(default=b"", init=False)

    @property
    def env(self) -> dict[str, str]:
        """What the agent's variables are to say."""
        return {"STRINGS": self.address}

    async def there(self) -> None:
        """Wait until the puppet is there."""
        if self._stream is None:
            self._stream = await self._arrived.receive()

    async def call(self, text: str = "late") -> tuple[int, Mapping[str, object]]:
        """Have it make one call; returns the status and the error that it got."""
        await self.there()
        assert self._stream is not None
        await self._stream.send_all(text.encode() + b"\n")
        while b"\n" not in self._heard:
            more = await self._stream.receive_some()
            assert more, "the puppet is gone"
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        status, document = json.loads(line)
        return status, document.get("error", document)

    async def gone(self) -> None:
        """Wait until the puppet has ended."""
        await self.there()
        assert self._stream is not None
        try:
            while await self._stream.receive_some():
                pass
        except trio.BrokenResourceError:
            return  # killed


@asynccontextmanager
async def strings() -> AsyncIterator[Strings]:
    """Strings for one puppet."""
    send, receive = trio.open_memory_channel[trio.SocketStream](1)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        held = trio.Event()

        async def connection(stream: trio.SocketStream) -> None:
            await send.send(stream)
            await held.wait()

        nursery.start_soon(trio.serve_listeners, connection, [listener])
        yield Strings(f"127.0.0.1:{port}", receive)
        nursery.cancel_scope.cancel()
