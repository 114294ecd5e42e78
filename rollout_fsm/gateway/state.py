"""The route to a rollout's state: what hooks, tools and signals share (`trace.state`), for a tool server in another
process.

`GET` gives all of it as JSON, with an `ETag`; `PUT` replaces all of it. Who reads, changes and writes it back sends the
tag as `If-Match` and is answered 412 where somebody else was faster. Its secret opens nothing else, and the model's
does not open it. It is served while the exchange is open.
"""

import hmac
import json
import secrets
from functools import partial
from hashlib import sha256

from attrs import define, field, frozen

from rollout_fsm.exact_json import FormatError, plain
from rollout_fsm.gateway.connection import Call, Head
from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.dialect import Dialect
from rollout_fsm.gateway.outgoing import Outgoing
from rollout_fsm.gateway.reply import Failure, Headers, Reply, error_reply
from rollout_fsm.gateway.slots import SECRET_BYTES, Slot
from rollout_fsm.messages import JSON
from rollout_fsm.strict_json import parse_json
from rollout_fsm.trace import Trace

PATH = "/state"
MAX_STATE = 4 * 2**20
"""Bytes that a state may have as JSON."""


@define(kw_only=True, eq=False)
class StateDoor:
    """One rollout's state, as far as the gateway gives it away."""

    url: str
    secret: str = field(repr=False)
    """The bearer token that opens it."""
    _slot: Slot
    _trace: Trace | None = field(repr=False)

    def close(self) -> None:
        """Give nothing away any more, and forget the trace. Idempotent."""
        self._trace = None


class StateDoors:
    """All doors, by the digest of their secret, and by the slot of the rollout that they belong to."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, tuple[bytes, StateDoor]] = {}
        self._by_slot: dict[Slot, StateDoor] = {}

    def open(self, slot: Slot, trace: Trace, *, url: str) -> StateDoor:
        """A door to the state of the rollout that has this slot, with a fresh secret. Open until either is closed."""
        door = StateDoor(url=url, secret=secrets.token_urlsafe(SECRET_BYTES), slot=slot, trace=trace)
        digest = sha256(door.secret.encode()).digest()
        self._by_digest[digest] = (digest, door)
        self._by_slot[slot] = door
        return door

    def slot(self, secret: bytes) -> Slot | None:
        """The slot of the rollout whose state this secret opens, None if there is none."""
        presented = sha256(secret).digest()
        digest, door = self._by_digest.get(presented, (bytes(len(presented)), None))
        return door._slot if door is not None and hmac.compare_digest(digest, presented) else None

    def trace(self, slot: Slot) -> Trace | None:
        """The trace of a rollout; None where its door is closed."""
        door = self._by_slot.get(slot)
        return None if door is None else door._trace


@frozen(kw_only=True)
class StateRoute:
    """Reading and writing a rollout's state."""

    doors: StateDoors = field(repr=False)
    dialect: Dialect = field(factory=lambda: DIALECTS["chat"], init=False)
    methods: tuple[str, ...] = field(default=("GET", "PUT"), init=False)
    title: str = field(default=f"GET and PUT {PATH}", init=False)

    def matches(self, path: str) -> bool:
        """Whether this is the path of the state."""
        return path == PATH

    def find(self, secret: bytes) -> Slot | None:
        """A rollout's slot, by its key for the state."""
        return self.doors.slot(secret)

    def answer(self, head: Head, path: str, slot: Slot) -> Call:
        """What reads or writes. Either is one step, that nothing else comes in between."""
        return partial(self._answer, head, slot)

    async def _answer(self, head: Head, slot: Slot, body: bytearray, out: Outgoing) -> Reply:
        trace = self.doors.trace(slot)
        if trace is None:
            return self._refused(409, "the rollout is not in its exchange any more", "state_closed")
        try:
            return _read(trace.state) if head.method == "GET" else _write(trace.state, head.get(b"if-match"), body)
        except _Refused as refused:
            return self._refused(refused.status, str(refused), refused.code, refused.headers)

    def _refused(self, status: int, message: str, code: str, headers: Headers = ()) -> Reply:
        return error_reply(Failure(status=status, message=message, code=code), self.dialect, headers=headers)


class _Refused(Exception):  # noqa: N818
    def __init__(self, status: int, message: str, code: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


def _read(state: dict[str, object]) -> Reply:
    body = _written(_known(state))
    if len(body) > MAX_STATE:
        raise _Refused(
            409, f"the state has {len(body):,} bytes as JSON; {MAX_STATE:,} can be handed out", "state_too_large"
        )
    return Reply(status=200, body=body, headers=(("content-type", "application/json"), *_tagged(body)))


def _write(state: dict[str, object], condition: bytes | None, body: bytearray) -> Reply:
    if len(body) > MAX_STATE:
        raise _Refused(413, f"the state has {len(body):,} bytes; {MAX_STATE:,} are allowed", "state_too_large")
    known = _known(state)
    tag = _tagged(_written(known))
    if condition is not None and not _holds(condition, tag[0][1]):
        raise _Refused(
            412, "the state has changed since it was read: read it, change it and write it again", "state_changed", tag
        )
    try:
        wanted = parse_json(body)
    except ValueError as error:
        raise _Refused(400, f"the state that was sent is not JSON: {error}", "malformed_state") from None
    if not isinstance(wanted, dict):
        raise _Refused(400, f"a state is a JSON object, not a {type(wanted).__name__}", "malformed_state")
    for name in state.keys() - wanted.keys():
        del state[name]
    # what has not changed stays the object that others hold, a tuple say
    state |= {name: value for name, value in wanted.items() if not _is_known(name, value, known)}
    return Reply(status=204, headers=_tagged(_written(wanted)))


def _known(state: dict[str, object]) -> dict[str, JSON]:
    try:
        known = plain(state, "the state of this rollout cannot be handed out as JSON")
    except FormatError as error:
        raise _Refused(409, f"{error}; keep what is no JSON elsewhere", "state_not_json") from None
    assert isinstance(known, dict)
    return known


def _is_known(name: str, value: JSON, known: dict[str, JSON]) -> bool:
    return name in known and _written({name: known[name]}) == _written({name: value})


def _written(state: dict[str, JSON]) -> bytes:
    return json.dumps(state, sort_keys=True, separators=(",", ":")).encode()


def _tagged(body: bytes) -> Headers:
    return (("etag", f'"{sha256(body).hexdigest()}"'),)


def _holds(condition: bytes, tag: str) -> bool:
    return any(given.strip() in (b"*", tag.encode()) for given in condition.split(b","))
