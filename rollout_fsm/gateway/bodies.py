"""The body of a request, read as what a dialect makes of it.

Reading costs time by the number of a body's values, not by its bytes. A body of many is read in a thread, so that other
clients are served meanwhile; one of very many is refused unread.
"""

from collections.abc import Mapping

import trio
from attrs import evolve, field, frozen

from rollout_fsm.gateway.dialects.dialect import Dialect, DialectError
from rollout_fsm.gateway.dialects.recall import Recall, afresh
from rollout_fsm.gateway.incoming import Head
from rollout_fsm.messages import JSON, Request
from rollout_fsm.strict_json import parse_json

MAX_VALUES = 500_000
"""How many commas, colons and opening brackets a body may have, those in texts included: about what a second of reading
and writing amounts to. A long conversation in a million tokens has fewer."""
MANY_VALUES = 50_000
"""From how many on a body is read in a thread. Below, reading holds everybody up for less than 0.1 s."""

THREADS = 2
"""How many bodies of one gateway are read in threads at once: each takes its share of the interpreter's time."""

RECALLED = 8 * 2**20
"""How many bytes a body may have whose messages are remembered: a long conversation in a million tokens has fewer."""

PASSED_ON = (b"anthropic-version", b"anthropic-beta", b"openai-beta")
"""Headers that belong to a dialect: they say which of its features a body makes use of."""


@frozen
class Reader:
    """Reads the bodies of one gateway."""

    _threads: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(THREADS), repr=False)

    async def read(
        self, head: Head, body: bytearray, dialect: Dialect, recall: Recall = afresh
    ) -> tuple[Request, Mapping[str, JSON]]:
        """The request, and the document that it was read from. Raises `DialectError`.

        Cancelled while a thread reads, it leaves the thread to end by itself: the body must not be changed then.
        """
        values = _values(body)
        if values > MAX_VALUES:
            raise DialectError(
                f"the request body has {values:,} commas, colons and opening brackets; {MAX_VALUES:,} are allowed"
            )
        recall = recall if len(body) <= RECALLED else afresh
        if values < MANY_VALUES:
            return read_request(head, body, dialect, recall)
        return await trio.to_thread.run_sync(
            read_request, head, body, dialect, recall, abandon_on_cancel=True, limiter=self._threads
        )


def read_request(head: Head, body: bytearray, dialect: Dialect, recall: Recall) -> tuple[Request, Mapping[str, JSON]]:
    """What `Reader.read` reads, however much it is. Needs no event loop."""
    document = _document(body)
    request = dialect.parse_request(document, recall)
    if request.native is not None:
        headers = {name.decode(): value.decode("latin-1") for name in PASSED_ON if (value := head.all(name))}
        request = evolve(request, native=evolve(request.native, headers=headers))
    return request, document


def _values(body: bytearray) -> int:
    """A bound on how many values it has: one of these characters precedes every value in another, however deep."""
    if len(body) < MANY_VALUES:
        return len(body)
    return len(body) - len(body.translate(None, b",:["))


def _document(body: bytearray) -> dict[str, JSON]:
    """The request as an object."""
    try:
        document = parse_json(body)
    except ValueError as error:
        raise DialectError(f"the request body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise DialectError(f"the request body: expected a JSON object, got {type(document).__name__}")
    return document
