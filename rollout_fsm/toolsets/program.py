"""A program that speaks MCP, and its life: started, spoken to line by line, ended with all that it has started.

Its exit, where it comes by itself, ends whoever holds it, by a `ToolsetError` with its status and its last words.
"""

import logging
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import trio
from attrs import define, field
from trio.lowlevel import FdStream

from rollout_fsm.errors import SandboxError, ToolsetError, text
from rollout_fsm.runtimes.conversation import CHUNK, converse
from rollout_fsm.runtimes.launch import MARKER
from rollout_fsm.runtimes.output import HeadTail
from rollout_fsm.runtimes.programs import DRAIN, Programs

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

log = logging.getLogger("rollout_fsm.toolsets")

LONGEST = 64 * 2**20
"""Bytes that one message may have."""
WORDS = 4000
"""Bytes of its standard error that are kept."""
FAREWELL = 1.0
"""Seconds that it has to exit by itself once its standard input has ended, and to follow the end of its output."""
GRACE = 3.0
"""Seconds between TERM and KILL."""


@define(eq=False)
class Program:
    """A program that runs."""

    name: str
    _process: trio.Process = field(repr=False)
    _errors: HeadTail = field(factory=lambda: HeadTail(WORDS), init=False, repr=False)

    @asynccontextmanager
    async def streams(self) -> "AsyncIterator[TransportStreams]":
        """Its messages, in and out, as a client of the protocol package takes them."""
        import anyio
        from mcp.shared.message import SessionMessage

        read, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, written = anyio.create_memory_object_stream[SessionMessage](0)
        async with trio.open_nursery() as pumps, read, received, sent, written:
            pumps.start_soon(self._read, read)
            pumps.start_soon(self._write, written)
            yield received, sent
            pumps.cancel_scope.cancel()

    async def outlast(self) -> NoReturn:
        """Read its standard error until it exits. Raises `ToolsetError` then."""
        stderr = cast(FdStream, self._process.stderr)
        await converse(self._process.wait, None, None, [(stderr, self._errors)], drain=DRAIN)
        status = self._process.returncode
        raise ToolsetError(f"tool server {self.name!r} ended by itself with exit status {status}{self.last_words}")

    @property
    def last_words(self) -> str:
        """The end of its standard error, for a message."""
        words = self._errors.text().strip()
        return f"; its standard error: {words}" if words else ""

    async def part(self) -> None:
        """End its standard input, which asks it to exit, and wait a little."""
        assert self._process.stdin is not None
        await self._process.stdin.aclose()
        with trio.move_on_after(FAREWELL):
            await self._process.wait()

    async def _read(self, messages: "MemoryObjectSendStream[SessionMessage | Exception]") -> None:
        stdout, pending = cast(FdStream, self._process.stdout), bytearray()
        async with messages:
            while chunk := await stdout.receive_some(CHUNK):
                *ends, rest = chunk.split(b"\n")
                for end in ends:
                    if (message := self._message(bytes(pending) + end)) is not None:
                        await messages.send(message)
                    pending.clear()
                pending += rest
                if len(pending) > LONGEST:
                    raise ToolsetError(f"tool server {self.name!r} wrote a message of more than {LONGEST:,} bytes")
            with trio.move_on_after(FAREWELL):
                await self._process.wait()
                await trio.sleep_forever()  # its exit says more than the end of its output

    def _message(self, line: bytes) -> "SessionMessage | None":
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            log.debug("tool server %r wrote a line that is no message", self.name)
            return None

    async def _write(self, messages: "MemoryObjectReceiveStream[SessionMessage]") -> None:
        stdin = self._process.stdin
        assert stdin is not None
        async with messages:
            async for message in messages:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await stdin.send_all(line.encode() + b"\n")
                except trio.BrokenResourceError:
                    return  # it reads nothing any more: what is asked of it fails


class _Started(Programs):
    """The one program of a tool server, with what it starts."""

    @asynccontextmanager
    async def program(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> AsyncIterator[trio.Process]:
        serial, process = await self._start(argv, cwd, env, b"")
        try:
            yield process
        finally:
            await self._let_go(serial, process, exited=False)


@asynccontextmanager
async def running(name: str, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> AsyncIterator[Program]:
    """Run a program for a block. Raises `ToolsetError` where it cannot be started, or exits before the block does."""
    started = _Started(runtime=f"of tool server {name!r}", marker=f"{MARKER}{uuid.uuid4().hex}", cap=WORDS, grace=GRACE)
    async with AsyncExitStack() as stack:
        try:
            process = await stack.enter_async_context(started.program(argv, cwd, env))
        except (OSError, SandboxError) as error:
            why = text(error.__cause__ or error)
            raise ToolsetError(f"tool server {name!r} cannot be started: {why}") from None
        program = Program(name, process)
        async with trio.open_nursery() as watching:
            watching.start_soon(program.outlast)
            yield program
            watching.cancel_scope.cancel()
        await program.part()
