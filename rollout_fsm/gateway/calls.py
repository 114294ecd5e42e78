"""A model call over HTTP: its body read, the rollout's session asked, the answer sent in the client's dialect.

The turn runs in a task of the gateway's own, since another attempt may wait for it too. The session commits a turn
before it returns, so a commit precedes the last event of a stream, and every byte of an answer in one piece. A failure
before the first piece has its own status; after it, it is an event, and the connection ends.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import TypeVar

import trio
from attrs import frozen

from rollout_fsm.errors import leaves
from rollout_fsm.gateway.bodies import Reader
from rollout_fsm.gateway.dialects.dialect import Dialect, DialectError
from rollout_fsm.gateway.incoming import Head
from rollout_fsm.gateway.outgoing import Outgoing
from rollout_fsm.gateway.reply import STREAM, Failure, Reply, error_reply, events, failure_of, json_reply
from rollout_fsm.gateway.slots import Slot
from rollout_fsm.gateway.turns import Client, Turn
from rollout_fsm.messages import Delta, Request

log = logging.getLogger("rollout_fsm.gateway")

T = TypeVar("T")

BUG = Failure(status=500, message="the gateway failed; its log says how", type="server_error")


@frozen(kw_only=True)
class ModelCall:
    """Answers one request for a turn."""

    head: Head
    dialect: Dialect
    slot: Slot
    reader: Reader
    nursery: trio.Nursery
    """Where turns run."""

    async def __call__(self, body: bytearray, out: Outgoing) -> Reply | None:
        """The answer of a turn: one that begins here, or one that this is another attempt of."""
        identity, again = _mark(self.head, self.dialect, body)
        try:
            request, document = await self.reader.read(self.head, body, self.dialect, self.slot.recall)
            stream = self.dialect.wants_stream(document)
        except DialectError as error:
            return error_reply(failure_of(error), self.dialect)
        del document
        body.clear()  # a call lasts, and the request has its text now
        while True:
            turn = self.slot.turns.tried_before(identity) if again else None
            if turn is None:
                turn = self.slot.turns.new(identity)
                asking = _Asking(turn=turn, dialect=self.dialect, slot=self.slot, request=request)
                self.nursery.start_soon(asking.run, stream)
            with turn.joined() as client:
                await client.begun()
                if turn.outcome != "given up":
                    await _send(client, out)
                    return None
            again = True  # it was given up before this attempt joined it


async def _send(client: Client, out: Outgoing) -> None:
    """Send a turn's answer to one client, as far as it is there, and on as it comes."""
    turn = client.turn
    if not turn.streamed:
        await out.reply(Reply(status=turn.status, headers=turn.headers, body=bytes(turn.body)))
    else:
        out.begin(turn.status, turn.headers)
        while (piece := await client.piece()) and not client.finished:
            await out.send(piece)
        out.closing = out.closing or turn.fruitless
        await out.end(piece)
    turn.delivered = True


@frozen(kw_only=True)
class _Asking:
    """Has the session take a turn, and writes its answer down. Lives in a task of the gateway."""

    turn: Turn
    dialect: Dialect
    slot: Slot
    request: Request

    async def run(self, stream: bool) -> None:
        """Take the turn. Raises only what ends the process: a bug in here is this call's trouble, and nobody else's."""
        try:
            await (self._stream() if stream else self._whole())
        except Exception:
            log.warning("the answer of a turn could not be written", exc_info=True)
            self.turn.end("failed", None if self.turn.streamed else error_reply(BUG, self.dialect))

    async def _whole(self) -> None:
        """An answer in one piece."""

        async def ask() -> Reply:
            response = await self.slot.respond(self.request, deliver=None)
            return json_reply(
                self.dialect.render_response(response, request=self.request, model=self._model, created=_now())
            )

        await self._settle(ask, lambda failure: error_reply(failure, self.dialect))

    async def _stream(self) -> None:
        """An answer in pieces: those that the model tells, then the rest, once the turn is committed."""
        turn = self.turn
        renderer = self.dialect.renderer(self.request, model=self._model, created=_now())

        def tell(piece: bytes) -> None:
            if piece and not turn.streamed:
                turn.begin(STREAM)
            turn.add(piece)

        async def deliver(delta: Delta) -> None:
            if not turn.over:
                tell(events(renderer.delta(delta)))
                await turn.room()

        async def ask() -> None:
            response = await self.slot.respond(self.request, deliver=deliver)
            tell(events(renderer.end(response)))

        def fail(failure: Failure) -> Reply | None:
            if not turn.streamed:
                return error_reply(failure, self.dialect)
            tell(events(renderer.failure(failure.message, type=failure.type, code=failure.code)))
            return None

        await self._settle(ask, fail)

    async def _settle(
        self, ask: Callable[[], Awaitable[Reply | None]], fail: Callable[[Failure], Reply | None]
    ) -> None:
        """Ask, and write down what it came to."""
        assert self.turn.scope is not None
        with self.turn.scope:
            came = await came_to(ask)
            if isinstance(came, Failure):
                self.turn.end("failed", fail(came))
            else:
                self.turn.end("committed", came)
            return
        self.turn.end("given up")

    @property
    def _model(self) -> str:
        return self.request.model or self.slot.model_name


async def came_to(ask: Callable[[], Awaitable[T]]) -> T | Failure:
    """What a call of the session comes to. Whatever fails in it is what its client is told; only a cancellation of this
    very call, or an exit, passes."""
    try:
        return await ask()
    except BaseException as error:  # foreign code: groups and stray cancellations come too
        if any(not isinstance(leaf, Exception | trio.Cancelled) for leaf in leaves(error)):
            raise
        await trio.lowlevel.checkpoint_if_cancelled()
        return failure_of(error)


def _now() -> int:
    return int(time.time())


def _mark(head: Head, dialect: Dialect, body: bytearray) -> tuple[bytes, bool]:
    """What all attempts of one turn have in common, and whether this may be another one than the first.

    An idempotency key speaks for one body: with another body it is another turn.
    """
    key = head.get(b"idempotency-key") or b""
    digest = blake2b(body, digest_size=16, key=blake2b(key, digest_size=32).digest(), person=dialect.name.encode()[:16])
    count = head.get(b"x-stainless-retry-count") or b""
    return digest.digest(), bool(key) or (count.isdigit() and count.strip(b"0") != b"")
