"""The bytes of an answer, read until there is enough of them.

The client library's iterators are nested generators that do not close each other: one that is left between two pieces
stays open until the garbage collector finds it, which trio reports. So an iteration is never left there. What wants to
leave early, a failure or a cancellation while a piece is passed on, cancels the next wait instead, which ends every
generator on the way out.
"""

import zlib
from collections.abc import Awaitable, Callable

import httpx2
import trio

__all__ = ["ENCODINGS", "read"]

ENCODINGS = "gzip, deflate"
"""What may be asked for: what the standard library can take apart."""

PARTING = 0.5
"""Seconds given to the end of an answer after its last word, so that its connection can serve again."""


async def read(answer: httpx2.Response, take: Callable[[bytes], Awaitable[bool]]) -> None:
    """Hand each piece to `take` until it says that this was enough, or the answer ends.

    Raises what `take` raises, and `httpx2.RequestError` when the connection breaks before there was enough.
    """
    decode = _decoder(answer)
    enough = False
    fault: BaseException | None = None
    with trio.CancelScope() as parting:
        try:
            async for piece in answer.aiter_raw():
                if enough:
                    continue
                try:
                    enough = await take(decode(piece))
                except BaseException as error:  # noqa: BLE001  (raised below)
                    fault, enough = error, True
                    parting.cancel()
                if enough:
                    parting.deadline = min(parting.deadline, trio.current_time() + PARTING)
        except httpx2.RequestError:
            if not enough:
                raise
    if fault is not None:
        try:
            raise fault
        finally:
            fault = None  # a frame that holds the error that it raises is a cycle


def _decoder(answer: httpx2.Response) -> Callable[[bytes], bytes]:
    encoding = answer.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return bytes
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise httpx2.DecodingError(f"{encoding!r} was not asked for")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)  # either of the two, by its own header

    def decode(piece: bytes) -> bytes:
        try:
            return inflate.decompress(piece)
        except zlib.error as error:
            raise httpx2.DecodingError(str(error)) from error

    return decode
