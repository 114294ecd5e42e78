"""One slot for each rollout: the secret that a harness presents, and the session behind it.

A closed slot admits nothing and keeps no session, but its secret stays known until the gateway ends: a late request is
told that the rollout is concluded, not that its key is wrong (L58).
"""

import hmac
import secrets
from hashlib import sha256
from typing import Protocol

from attrs import define, field

from rollout_fsm.errors import TurnRefused
from rollout_fsm.gateway.dialects.recall import Recall, Recollection, afresh
from rollout_fsm.gateway.turns import Turns
from rollout_fsm.messages import Deliver, Request, Response
from rollout_fsm.runtime import Answer

CONCLUDED = "rollout concluded"
SECRET_BYTES = 32


class Interceptable(Protocol):
    """What the gateway needs of a session: one turn across the model boundary."""

    async def respond(self, request: Request, *, deliver: Deliver | None = None, keep_answer: bool = False) -> Response:
        """Run one turn, committed before it returns. Raises `TurnRefused`, or a failure that `status_of` answers.

        `deliver` takes the pieces of the answer while it is made. With `keep_answer` a call that is cancelled once the
        model has answered returns all the same (L33).
        """
        ...

    async def count_tokens(self, request: Request) -> int:
        """How many tokens a prompt has. Raises as `respond` does."""
        ...


@define(kw_only=True, eq=False)
class Slot:
    """One rollout's place at the gateway."""

    url: str
    """Base URL for an OpenAI client on the gateway's host."""
    model_name: str
    """The name under which the model is listed."""
    secret: str = field(repr=False)
    """The key for this rollout and no other."""
    _session: Interceptable | None = field(repr=False)
    answer: Answer | None = field(default=None, repr=False)
    """Serves connections that are made in the rollout's own box: they reach this slot and no other."""
    turns: Turns = field(factory=Turns, init=False, repr=False)
    """What clients are waiting for, and what one that tries again is answered with."""
    _recall: Recall = field(factory=Recollection, init=False, repr=False)

    @property
    def closed(self) -> bool:
        """Whether admission has ended."""
        return self._session is None

    @property
    def recall(self) -> Recall:
        """Gives the messages of a request, and keeps the conversations that were sent last; nothing once closed."""
        return self._recall

    def close(self) -> None:
        """End admission and forget session, conversations and answers. Calls in flight go on: they are the session's.
        Idempotent."""
        self._session = None
        self.turns.clear()
        self._recall = afresh  # the other one may yet be filled, by a thread

    async def respond(self, request: Request, *, deliver: Deliver | None) -> Response:
        """Hand one request to the session. Raises `TurnRefused` once the slot is closed, and what the session does."""
        return await self._open().respond(request, deliver=deliver, keep_answer=True)

    async def count_tokens(self, request: Request) -> int:
        """Have the session count. Raises `TurnRefused` once the slot is closed, and what the session does."""
        return await self._open().count_tokens(request)

    def _open(self) -> Interceptable:
        if self._session is None:
            raise TurnRefused(CONCLUDED)
        return self._session


class Slots:
    """All slots, open and closed, by the digest of their secret.

    How long a look-up takes says nothing about a secret: it depends on the digest of what was presented only.
    """

    def __init__(self) -> None:
        self._by_digest: dict[bytes, tuple[bytes, Slot]] = {}

    def open(self, session: Interceptable, *, url: str, model_name: str) -> Slot:
        """A new slot with a fresh secret."""
        slot = Slot(url=url, model_name=model_name, secret=secrets.token_urlsafe(SECRET_BYTES), session=session)
        digest = sha256(slot.secret.encode()).digest()
        self._by_digest[digest] = (digest, slot)
        return slot

    def find(self, secret: bytes) -> Slot | None:
        """The slot with this secret, None if there is none."""
        presented = sha256(secret).digest()
        digest, slot = self._by_digest.get(presented, (bytes(len(presented)), None))
        return slot if hmac.compare_digest(digest, presented) else None
