"""The turns of one slot, as its clients see them: whose answer is being made, and which answers are remembered.

A client that tries again is to get the answer of the turn that it asked for, not a second turn. An attempt is told to
be another of the same turn by its mark: an idempotency key, or the attempt counter of the official SDKs together with
the very same body. It then joins the turn while it runs, gets the same bytes once it is committed, and runs anew where
nothing was committed. Without a mark the same body is a turn of its own.
"""

from collections.abc import Iterator
from itertools import count
from typing import Literal

import trio
from attrs import define, field

from rollout_fsm.gateway.reply import Headers, Reply

AHEAD = 256 * 2**10
"""Bytes of an answer that may wait for its fastest client; then the model waits."""

REMEMBERED = 16
"""How many turns that are over a slot remembers."""

REMEMBERED_BYTES = 512 * 2**10
"""How many bytes of answers a slot remembers, beside those of its latest turn."""


@define(eq=False)
class Turn:
    """One turn, and its answer as the bytes that its clients get. Any number of clients wait for one turn."""

    identity: bytes
    """What another attempt of the same turn has in common with this one."""
    status: int = 0
    """The answer's HTTP status; 0 before its first byte is known."""
    headers: Headers = ()
    body: bytearray = field(factory=bytearray, repr=False)
    streamed: bool = False
    """Whether the answer comes in pieces."""
    outcome: Literal["running", "committed", "failed", "given up"] = "running"
    """`given up`: the last client had gone before the model answered, so that there is no answer."""
    delivered: bool = False
    """Whether a client was sent all of the answer."""
    ended: int = field(default=-1, init=False)
    """Where its end stands among those of its slot's turns; -1 before it."""
    scope: trio.CancelScope | None = field(factory=trio.CancelScope, init=False, repr=False)
    """What the turn runs in; None once it is over. Cancelled when its last client has gone: the session knows if that
    gives it up (L33)."""
    _ends: Iterator[int] = field(factory=count, kw_only=True, repr=False)
    """Numbers the ends of a slot's turns."""
    _clients: tuple["Client", ...] = field(default=(), init=False, repr=False)
    _news: trio.Event | None = field(default=None, init=False, repr=False)
    """Set when more of the answer has come, or its end; None where nobody waits for that."""
    _room: trio.Event | None = field(default=None, init=False, repr=False)
    """Set when a client was sent some more, or has gone; the same."""

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.outcome != "running"

    @property
    def fruitless(self) -> bool:
        """Whether it came to nothing, so that another attempt is to run."""
        return self.outcome in ("failed", "given up")

    @property
    def owed(self) -> bool:
        """Whether there is, or will be, an answer that no client was sent all of."""
        return not self.delivered and not self.fruitless

    @property
    def cancelled(self) -> bool:
        """Whether its last client has gone while it runs."""
        return self.scope is not None and self.scope.cancel_called

    @property
    def alone(self) -> bool:
        """Whether no client waits for it."""
        return not self._clients

    # The side of who makes the answer

    def begin(self, headers: Headers) -> None:
        """The answer is a stream, and begins."""
        self.status, self.headers, self.streamed = 200, headers, True

    def add(self, piece: bytes) -> None:
        """The next piece of the stream."""
        self.body += piece
        self._tell()

    async def room(self) -> None:
        """Wait until the fastest client has little left to be sent."""
        if len(self.body) <= AHEAD:
            return
        while self._clients and len(self.body) - max(client.sent for client in self._clients) > AHEAD:
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()

    def end(self, outcome: Literal["committed", "failed", "given up"], reply: Reply | None = None) -> None:
        """The answer is complete, or there is none: the stream was all, else `reply` is."""
        if reply is not None:
            self.status, self.headers, self.body = reply.status, reply.headers, bytearray(reply.body)
        self.outcome, self.ended, self.scope = outcome, next(self._ends), None
        self._tell()

    # The side of who waits for it

    def joined(self) -> "Client":
        """Wait for the answer for one client, for the length of a block. When the last one leaves before the end, the
        turn is cancelled."""
        return Client(self)

    def join(self, client: "Client") -> None:
        """A client waits from now on."""
        self._clients = (*self._clients, client)

    def leave(self, client: "Client") -> None:
        """A client waits no more."""
        self._clients = tuple(other for other in self._clients if other is not client)
        self.was_read()
        if not self._clients and self.scope is not None:
            self.scope.cancel()

    async def change(self) -> None:
        """Wait for more of the answer, or its end."""
        if self._news is None:
            self._news = trio.Event()
        await self._news.wait()

    def was_read(self) -> None:
        """A client was sent some more."""
        if self._room is not None:
            self._room.set()
            self._room = None

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None


@define(eq=False)
class Client:
    """One connection that waits for a turn's answer, for the length of a block."""

    turn: Turn
    sent: int = 0
    """Bytes of the body that were sent."""

    def __enter__(self) -> "Client":
        self.turn.join(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.turn.leave(self)

    @property
    def finished(self) -> bool:
        """Whether it was given all that comes."""
        return self.turn.over and self.sent == len(self.turn.body)

    async def begun(self) -> None:
        """Wait until the head of the answer is known, or that there is none; of a turn that was cancelled, its end."""
        turn = self.turn
        while not turn.over and (not turn.status or turn.cancelled):
            await turn.change()

    async def piece(self) -> bytes:
        """What has come since the last piece; empty when that was all."""
        while self.sent == len(self.turn.body) and not self.turn.over:
            await self.turn.change()
        piece = bytes(self.turn.body[self.sent :])
        self.sent += len(piece)
        self.turn.was_read()
        return piece


@define(eq=False)
class Turns:
    """The turns of a slot: those that run, and the last ones that are over."""

    _turns: list[Turn] = field(factory=list)
    """In the order in which they began."""
    _ends: Iterator[int] = field(factory=count, repr=False)

    def new(self, identity: bytes) -> Turn:
        """A turn that begins."""
        turn = Turn(identity, ends=self._ends)
        self._forget()
        self._turns.append(turn)
        return turn

    def tried_before(self, identity: bytes) -> Turn | None:
        """The turn that an attempt is another one of; None where it has to run.

        Several attempts that share an identity and no key cannot be told apart. Then each that came to nothing lets one
        run anew, so that the number of turns is right whichever it was.
        """
        known = [turn for turn in reversed(self._turns) if turn.identity == identity]
        if lost := [turn for turn in known if turn.alone and turn.owed]:
            return lost[0]
        if fruitless := [turn for turn in known if turn.fruitless]:
            self._turns.remove(fruitless[-1])
            return None
        running = [turn for turn in known if not turn.over]
        return next(iter(running or known), None)

    def clear(self) -> None:
        """Forget all of them. Those that run go on; nobody new joins them."""
        self._turns.clear()

    def _forget(self) -> None:
        """Forget turns that are over until few enough are left: never the one that ended last, and what a client may
        still ask for after the others; the oldest ends first. Of a failure no bytes are kept."""
        over = sorted((turn for turn in self._turns if turn.over), key=lambda turn: turn.ended)
        for turn in over:
            if turn.fruitless and turn.alone:
                turn.body.clear()
        forgettable = sorted(over[:-1], key=lambda turn: turn.owed)
        held = sum(len(turn.body) for turn in forgettable)
        while len(forgettable) >= REMEMBERED or held > REMEMBERED_BYTES:
            oldest = forgettable.pop(0)
            held -= len(oldest.body)
            self._turns.remove(oldest)
