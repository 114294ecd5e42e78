"""The ways out of a box, whose own network is empty: sockets that listen inside of it and are served from outside.

Each leads to one of the framework's own routes, or to the proxy that holds programs to their network policy. The first
process of the box makes the socket and passes it out, so that no connection of the box touches the host's network but
through the engine's hands. The invariant: what the box reaches is what is in `_open`.
"""

import errno
import logging
import socket
from collections.abc import Mapping, Sequence

import trio
from attrs import define, field

from rollout_fsm.errors import SandboxError
from rollout_fsm.network import Policies
from rollout_fsm.runtime import Answer, Route
from rollout_fsm.runtimes.bubblewrap.control import Control
from rollout_fsm.runtimes.proxy import NetworkProxy
from rollout_fsm.runtimes.proxy.routes import PROXY, VARIABLES, Execution, Place, lay
from rollout_fsm.runtimes.tasks import Tasks

AT_ONCE = 128
"""How many connections one way serves at once; further ones wait."""
SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
AGAIN = 0.1
"""Seconds until a connection is accepted again, where the engine had no descriptor left for it."""

log = logging.getLogger("rollout_fsm.network")


@define(eq=False, repr=False)
class _Way:
    """A socket that listens in the box, and who answers on it."""

    listener: trio.SocketListener
    answer: Answer
    _scope: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    _places: trio.Semaphore = field(init=False, factory=lambda: trio.Semaphore(AT_ONCE))

    def close(self) -> None:
        """Listen no more, at once, and end the connections."""
        self._scope.cancel()
        self.listener.socket.close()

    async def serve(self) -> None:
        """Accept connections until it is closed."""
        with self._scope:
            async with self.listener, trio.open_nursery() as nursery:
                while True:
                    await self._places.acquire()
                    nursery.start_soon(self._one, await self._accepted())

    async def _accepted(self) -> trio.SocketStream:
        """The next connection; where there is no descriptor for one, there will be."""
        while True:
            try:
                return await self.listener.accept()
            except OSError as error:
                if error.errno not in SCARCE:
                    raise
                await trio.sleep(AGAIN)

    async def _one(self, stream: trio.SocketStream) -> None:
        try:
            async with stream:
                await self.answer(stream)
        except Exception:
            log.warning("a connection of a box failed", exc_info=True)
        finally:
            self._places.release()


@define(eq=False, repr=False)
class Ways:
    """The ways of one box. `runtime` is its name."""

    runtime: str
    _control: Control
    _tasks: Tasks
    _proxy: NetworkProxy = field(init=False, factory=lambda: NetworkProxy(policies=Policies()))
    _open: dict[Place, _Way] = field(init=False, factory=dict)

    @property
    def variables(self) -> Mapping[str, str]:
        """What programs are told of the proxy, where there is one."""
        return VARIABLES if PROXY in self._open else {}

    async def for_setup(self, policies: Policies) -> None:
        """Open the way to the proxy, where the policies allow anything."""
        self._proxy.policies = policies
        await self._have({} if policies.forbids_all else {PROXY: self._proxy.answer})

    async def for_execution(self, policies: Policies, routes: Sequence[Route]) -> None:
        """Leave what the policies allow, and the routes. What setup reached and they do not is cut.

        Raises `SandboxError` for a route that cannot be opened.
        """
        served, far = lay(self.runtime, routes)
        self._proxy.policies = Execution(policies.each, far)
        if far or not policies.forbids_all:
            served[PROXY] = self._proxy.answer
        await self._have(served)

    async def _have(self, wanted: Mapping[Place, Answer]) -> None:
        """Close the ways that are not wanted, or lead elsewhere, and open those that are missing."""
        for place, way in list(self._open.items()):
            if wanted.get(place) != way.answer:
                way.close()
                del self._open[place]
        for place, answer in wanted.items():
            if place not in self._open:
                way = _Way(await self._listener(place), answer)
                self._tasks.start_soon(way.serve)
                self._open[place] = way

    async def _listener(self, place: Place) -> trio.SocketListener:
        """A socket that listens in the box."""
        host, port = place
        cannot = f"runtime {self.runtime} cannot open {host}:{port} in its box"
        try:
            found = (await self._control.ask("listen", host, port)).descriptor
            if found is None:
                raise SandboxError(f"{cannot}: it got no socket")
            return trio.SocketListener(trio.socket.from_stdlib_socket(socket.socket(fileno=found)))
        except (OSError, ValueError) as error:
            known = {
                errno.EADDRINUSE: "a program of the setup listens there; have it take another port",
                errno.EACCES: "a route needs a port of 1024 or more",
            }
            raise SandboxError(f"{cannot}: {known.get(getattr(error, 'errno', 0), error)}") from error
