"""The interception server: harness programs post their model calls here, and the rollout's session answers them.

One gateway serves many rollouts, told apart by their secrets. Its connections live in a nursery of its own; nothing
that a client does, or that a call raises, leaves its connection. When it closes, idle connections end at once and calls
in flight have a short grace.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio
from attrs import evolve

from rollout_fsm.gateway.connection import Connection
from rollout_fsm.gateway.router import Router
from rollout_fsm.gateway.routes import model_routes
from rollout_fsm.gateway.shutdown import Shutdown
from rollout_fsm.gateway.slots import Interceptable, Slot, Slots
from rollout_fsm.gateway.state import PATH as STATE
from rollout_fsm.gateway.state import StateDoor, StateDoors, StateRoute
from rollout_fsm.trace import Trace

log = logging.getLogger("rollout_fsm.gateway")

MAX_BODY = 64 * 2**20
GRACE = 2.0
MAX_PORT = 2**16 - 1

_DIALABLE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}


class Gateway:
    """An open gateway. Made by `open_gateway`."""

    def __init__(self, *, url: str, max_body: int, nursery: trio.Nursery) -> None:
        self.url = url
        """Base URL for an OpenAI client on this host (`http://127.0.0.1:PORT/v1`)."""
        self._slots = Slots()
        self._states = StateDoors()
        routes = (*model_routes(self._slots, nursery), StateRoute(doors=self._states))
        self._router = Router(routes=routes, max_body=max_body)
        self._shutdown = Shutdown()
        self._nursery = nursery

    def __repr__(self) -> str:
        return f"<Gateway {self.url}>"

    def open_slot(self, session: Interceptable, *, model_name: str = "") -> Slot:
        """A slot for one rollout: its secret, and the URL to use it at. The list of models shows `model_name`."""
        slot = self._slots.open(session, url=self.url, model_name=model_name)
        slot.answer = partial(self._connection, router=evolve(self._router, only=slot))
        return slot

    def open_state(self, slot: Slot, trace: Trace) -> StateDoor:
        """A door to the state of the rollout that has this slot, for its tool servers in other processes."""
        return self._states.open(slot, trace, url=self.url.removesuffix("/v1") + STATE)

    async def serve(self, *listeners: trio.SocketListener) -> None:
        """Accept clients on listening sockets until cancelled, then close these. The connections are the gateway's own.

        For a socket that listens elsewhere, in a sandbox say, and was passed in.
        """
        await trio.serve_listeners(self._connection, list(listeners), handler_nursery=self._nursery)

    async def _connection(self, stream: trio.SocketStream, *, router: Router | None = None) -> None:
        try:
            await Connection(stream, router or self._router, self._shutdown).run()
        except Exception:  # one client's trouble is never another's
            log.warning("a connection of the gateway failed", exc_info=True)

    def _close(self, grace: float) -> None:
        self._shutdown.begin()
        self._nursery.cancel_scope.deadline = trio.current_time() + grace


@asynccontextmanager
async def open_gateway(
    *, host: str = "127.0.0.1", port: int = 0, max_body: int = MAX_BODY, grace: float = GRACE
) -> AsyncIterator[Gateway]:
    """Open the gateway for a block; port 0 takes a free one.

    `max_body` is in bytes; `grace` in seconds is what calls in flight have to end in when the block is left. Raises
    `OSError` naming host and port where it cannot listen, `ValueError` for a number that is no port. What the block
    raises comes out as it is, never in a group.
    """
    listeners = await _listen(host, port)
    raised: BaseException | None = None
    async with trio.open_nursery() as connections:
        gateway = Gateway(url=_url(listeners[0], host), max_body=max_body, nursery=connections)
        async with trio.open_nursery() as accepting:
            accepting.start_soon(gateway.serve, *listeners)
            try:
                yield gateway
            except BaseException as error:  # noqa: BLE001  (raised again below)
                raised = error
            accepting.cancel_scope.cancel()
        gateway._close(grace)
    try:
        if raised is not None:
            raise raised
    finally:
        raised = None


async def _listen(host: str, port: int) -> list[trio.SocketListener]:
    if not 0 <= port <= MAX_PORT:  # the resolver would take it modulo 65536
        raise ValueError(f"the gateway cannot listen on port {port}: expected 1 to {MAX_PORT}, or 0 for a free one")
    try:
        return await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        advice = "Give another host or port; port 0 takes a free one"
        reason = error.strerror or error
        raise OSError(error.errno, f"the gateway cannot listen on {host}:{port}: {reason}. {advice}") from error


def _url(listener: trio.SocketListener, host: str) -> str:
    address, port = listener.socket.getsockname()[:2]
    name = _DIALABLE.get(address, address if host in _DIALABLE else host)
    return f"http://[{name}]:{port}/v1" if ":" in name else f"http://{name}:{port}/v1"
