"""What the engine and a running program say to each other: standard input in, standard output and error out.

Knows pipes and an exit, and not how a program is started or ended. The invariant: a conversation is over soon after
the program's own exit, whoever holds its pipes, and what it wrote before is in the buffers.
"""

import fcntl
import os
import struct
import termios
from collections.abc import Awaitable, Callable, Sequence

import trio
from trio.lowlevel import FdStream

from rollout_fsm.runtimes.output import HeadTail

CHUNK = 65536
"""Bytes read at once."""


async def converse(
    exited: Callable[[], Awaitable[object]],
    stdin: trio.abc.SendStream | None,
    data: bytes | None,
    pipes: Sequence[tuple[FdStream, HeadTail]],
    *,
    drain: float,
) -> None:
    """Feed and read a program until it exits, then go on reading until its pipes end, at most for `drain` seconds.

    What it left behind may hold them open for ever, and may keep from reading what it was to be fed.
    """
    async with trio.open_nursery() as nursery:
        if stdin is not None:
            nursery.start_soon(_feed, stdin, data or b"")
        async with trio.open_nursery() as readers:
            for pipe, buffer in pipes:
                readers.start_soon(_read, pipe, buffer)
            await exited()
            readers.cancel_scope.deadline = trio.current_time() + drain
        nursery.cancel_scope.cancel()


def read_what_is_there(pipe: FdStream, buffer: HeadTail) -> None:
    """Read the bytes that a pipe holds at this moment, without waiting: a program's last words are among them."""
    (there,) = struct.unpack("i", fcntl.ioctl(pipe.fileno(), termios.FIONREAD, struct.pack("i", 0)))
    while there > 0 and (chunk := os.read(pipe.fileno(), min(there, CHUNK))):
        buffer.feed(chunk)
        there -= len(chunk)


async def _feed(stdin: trio.abc.SendStream, data: bytes) -> None:
    async with stdin:
        try:
            await stdin.send_all(data)
        except trio.BrokenResourceError:
            return  # the program wants no more of it, which is its right


async def _read(pipe: FdStream, buffer: HeadTail) -> None:
    while chunk := await pipe.receive_some(CHUNK):
        buffer.feed(chunk)
