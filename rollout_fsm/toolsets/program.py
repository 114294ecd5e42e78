"""A program that speaks MCP, and its life: started, spoken to line by line, ended with all that it has started.

Its exit, where it comes by itself, ends whoever holds it, by a `ToolsetError` with its status and its last words.
"""

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import trio
from attrs import define, field
from trio.lowlevel import FdStream

from rollout_fsm.errors import SandboxError, ToolsetError, text
from rollout_fsm.runtimes import launch
from rollout_fsm.runtimes.conversation import CHUNK, converse
from rollout_fsm.runtimes.looks import looks
from rollout_fsm.runtimes.output import HeadTail
from rollout_fsm.runtimes.programs import DRAIN, PATIENCE, Programs
from rollout_fsm.runtimes.threads import file_limiter
from rollout_fsm.toolsets import supervisor

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
SHOWN = 200
"""Bytes of a line that is no message, in what is said of it."""
LOUD = 10
"""How many of these are warned of: one that writes nothing else does not fill the log."""
SERIAL = 0
"""The number of the one program."""

_ANSWER = re.compile(
    rb"""\s*\{\s* (?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?
    (?: "id"\s*:\s*(?P<first>\d+)\s*,\s* (?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)? "(?:result|error)".*
      | "(?:result|error)".*,\s*"id"\s*:\s*(?P<last>\d+)\s*\}\s* )""",
    re.VERBOSE | re.DOTALL,
)
"""An answer of which no more can be read than the number of its question, which stands first or last."""


@define(eq=False)
class Program:
    """A program that runs."""

    name: str
    _process: trio.Process = field(repr=False)
    _errors: HeadTail = field(factory=lambda: HeadTail(WORDS), init=False, repr=False)
    _unread: int = field(default=0, init=False, repr=False)

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
        from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._unread += 1
            level = logging.WARNING if self._unread <= LOUD else logging.DEBUG
            log.log(level, "tool server %r wrote a line that is no message: %r", self.name, line[:SHOWN])
        if (answer := _ANSWER.fullmatch(line)) is None:
            return None
        shown = line[:SHOWN].decode(errors="replace")
        failure = ErrorData(code=INTERNAL_ERROR, message=f"tool server {self.name!r} gave no valid answer: {shown}")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(answer["first"] or answer["last"]), error=failure))

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
    """The one program of a tool server, with what it starts, under a supervisor that ends them when the engine is gone.
    What is known here is the supervisor, which lives and exits with the program.
    """

    @asynccontextmanager
    async def program(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> AsyncIterator[trio.Process]:
        """Run it for a block. Raises what says why it cannot be started."""
        ours, theirs = socket.socketpair()
        lifeline = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        try:
            with theirs:
                process = await self._supervised(argv, cwd, env, theirs)
            try:
                await self._begun(lifeline, argv, cwd, env)
                yield process
            finally:
                await self._end_supervised(process, lifeline)
        finally:
            ours.close()

    @trio.lowlevel.enable_ki_protection
    async def _supervised(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], theirs: socket.socket
    ) -> trio.Process:
        """Start the supervisor and know it: nothing comes between the two, neither a cancellation nor a Ctrl-C."""
        begun = [sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno()), env.get("LC_CTYPE", ""), *argv]
        try:
            process = await trio.lowlevel.open_process(
                begun,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=str(cwd),
                env={**env, self.marker: str(SERIAL)},
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )
        except OSError as error:
            raise await self._why(error, begun, cwd, env) from error
        self.next_serial = SERIAL + 1
        self._known[SERIAL] = process
        return process

    async def _begun(self, lifeline: trio.SocketStream, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        """Wait until the program runs."""
        said = await lifeline.receive_some(CHUNK)
        if not said:
            raise SandboxError("its supervisor ended before it could start it")
        if number := int(said):
            raise await self._why(OSError(number, os.strerror(number)), argv, cwd, env)

    async def _why(self, error: OSError, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Exception:
        explained = partial(launch.explain, error, argv, env, cwd, self.runtime)
        return await trio.to_thread.run_sync(explained, limiter=file_limiter())

    async def _end_supervised(self, process: trio.Process, lifeline: trio.SocketStream) -> None:
        """Ask everybody to end, have the supervisor end them after a grace, then whoever got away from it."""
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                await looks().strike(partial(self._strike, range(SERIAL, SERIAL + 1), signal.SIGTERM, frozenset()))
                with trio.move_on_after(self.grace):
                    await process.wait()
            await trio.aclose_forcefully(lifeline)
            with trio.move_on_after(PATIENCE):
                await process.wait()
            await self._let_go(SERIAL, process, exited=False)


@asynccontextmanager
async def running(name: str, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> AsyncIterator[Program]:
    """Run a program for a block. Raises `ToolsetError` where it cannot be started, or exits before the block does."""
    started = _Started(
        runtime=f"of tool server {name!r}", marker=f"{launch.MARKER}{uuid.uuid4().hex}", cap=WORDS, grace=GRACE
    )
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
