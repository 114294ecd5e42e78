"""Which route a request takes, and whether it may: by its path, its method, and the key that it presents.

A route is found by its path alone, so that every refusal is in the shape that the route's clients read. Paths are the
same with and without a leading `/v1`, however often: clients differ in whether their base URL has one.
"""

from collections.abc import Iterator
from typing import Protocol
from urllib.parse import unquote

from attrs import frozen

from rollout_fsm.errors import TurnRefused
from rollout_fsm.gateway.connection import Call, Head
from rollout_fsm.gateway.dialects.dialect import Dialect
from rollout_fsm.gateway.reply import Failure, Reply, error_reply, failure_of
from rollout_fsm.gateway.slots import CONCLUDED, Slot

VERSION = "/v1"


class Route(Protocol):
    """What is served at some paths."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are taken, beside OPTIONS."""
        ...

    @property
    def dialect(self) -> Dialect:
        """In whose shape errors are said."""
        ...

    @property
    def title(self) -> str:
        """What is served, for a client that asked for something else: `POST /v1/messages`."""
        ...

    def matches(self, path: str) -> bool:
        """Whether the route serves this path, given without version and without a last slash."""
        ...

    def find(self, secret: bytes) -> Slot | None:
        """The slot that a key opens here; None if it opens none."""
        ...

    def answer(self, head: Head, path: str, slot: Slot) -> Call | Reply:
        """What answers a request for an open slot."""
        ...


@frozen(kw_only=True)
class Router:
    """The gateway's application."""

    routes: tuple[Route, ...]
    """The first one also says, in its dialect, that a path is unknown."""
    max_body: int
    only: Slot | None = None
    """The one slot that is served; None serves all of them."""

    def route(self, head: Head) -> Call | Reply:
        """What answers this request: the call of an open slot, or a reply that says why there is none."""
        path = _below_version(head.path)
        route = self._found(path)
        if route is None:
            known = ", ".join(route.title for route in self.routes)
            return self.refuse(
                head, 404, f"no route {head.method} {head.path}: this gateway serves {known}", code="unknown_route"
            )
        allowed = (("allow", ", ".join((*route.methods, "OPTIONS"))),)
        if head.method == "OPTIONS":
            return Reply(status=204, headers=allowed)
        if head.method not in route.methods:
            message = f"{head.path} does not take {head.method}: use {' or '.join(route.methods)}"
            return error_reply(
                Failure(status=405, message=message, code="method_not_allowed"), route.dialect, headers=allowed
            )
        slot = self._slot(route, head)
        if slot is None:
            message = (
                "no rollout has this key: send the rollout's own secret as `Authorization: Bearer …` or `x-api-key`"
            )
            return error_reply(
                Failure(status=401, message=message, code="invalid_api_key"),
                route.dialect,
                headers=(("www-authenticate", "Bearer"),),
            )
        if slot.closed:
            return error_reply(failure_of(TurnRefused(CONCLUDED)), route.dialect)
        encoding = (head.all(b"content-encoding") or b"identity").decode("latin-1")
        if encoding.lower() != "identity":
            return self.refuse(head, 415, f"content-encoding {encoding} is not supported: send the body as it is")
        return route.answer(head, path, slot)

    def refuse(self, head: Head | None, status: int, message: str, *, code: str | None = None) -> Reply:
        """An error for a request that is not answered otherwise, in the shape that its client reads."""
        route = None if head is None else self._found(_below_version(head.path))
        return error_reply(Failure(status=status, message=message, code=code), (route or self.routes[0]).dialect)

    def _found(self, path: str) -> Route | None:
        return next((route for route in self.routes if route.matches(path)), None)

    def _slot(self, route: Route, head: Head) -> Slot | None:
        for secret in _secrets(head):
            if (slot := route.find(secret)) is not None:
                return slot if self.only in (None, slot) else None
        return None


def _below_version(path: str) -> str:
    """The path as routes know it."""
    path = path.rstrip("/")
    while path.startswith(f"{VERSION}/"):
        path = path.removeprefix(VERSION)
    return unquote(path)


def _secrets(head: Head) -> Iterator[bytes]:
    """The keys that a client presents: OpenAI's way and Anthropic's."""
    scheme, _, token = (head.get(b"authorization") or b"").partition(b" ")
    if scheme.lower() == b"bearer":
        yield token.strip()
    if (key := head.get(b"x-api-key")) is not None:
        yield key
