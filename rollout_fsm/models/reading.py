"""The bytes of an answer, decoded, and read until there is enough of them."""

import contextlib
import zlib
from collections.abc import Awaitable, Callable

import trio

from rollout_fsm.models.faults import EncodingError, NetworkError
from rollout_fsm.models.wire import Answer

__all__ = ["ENCODINGS", "read"]

ENCODINGS = "gzip"
"""What is asked for. Not deflate, which is two things: who means which cannot be known."""

PARTING = 0.5
"""Seconds given to the end of an answer after its last word, so that its connection can serve again."""


async def read(answer: Answer, take: Callable[[bytes], Awaitable[bool]]) -> None:
    """Hand each piece to `take` until it says that this was enough, or the answer ends.

    Raises what `take` raises, and `NetworkError` when the connection breaks before there was enough.
    """
    decode = _decoder(answer)
    while piece := await answer.piece():
        if await take(decode(piece)):
            break
    else:
        return
    with trio.move_on_after(PARTING), contextlib.suppress(NetworkError):
        while await answer.piece():
            pass


def _decoder(answer: Answer) -> Callable[[bytes], bytes]:
    given = (answer.header(b"content-encoding") or "").lower().split(",")
    encoding = ", ".join(coding for said in given if (coding := said.strip()) not in ("", "identity"))
    if not encoding:
        return bytes
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise EncodingError(f"{encoding!r} was not asked for")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)  # either of the two, by its own header

    def decode(piece: bytes) -> bytes:
        try:
            return inflate.decompress(piece)
        except zlib.error as error:
            raise EncodingError(str(error)) from error

    return decode
