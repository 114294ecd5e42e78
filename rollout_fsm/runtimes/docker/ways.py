"""The network of one container: what the engine's default gives it, and under a policy none, but for the relay."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from attrs import define, field

from rollout_fsm.errors import SandboxError
from rollout_fsm.network import Policies
from rollout_fsm.runtime import Route
from rollout_fsm.runtimes.docker.client import Client
from rollout_fsm.runtimes.docker.relay import Relay
from rollout_fsm.runtimes.proxy import NetworkProxy
from rollout_fsm.runtimes.proxy.routes import PROXY, VARIABLES, Execution, lay
from rollout_fsm.runtimes.tasks import Tasks

HOST = "host.docker.internal"
"""The engine's host, as containers with a network name it."""
NETWORKS = "{{range $name, $network := .NetworkSettings.Networks}}{{$name}} {{end}}"
"""The template that shows which networks a container is connected to."""


@define(eq=False, repr=False)
class Ways:
    """What a container's programs reach. `runtime` is the box's name."""

    runtime: str
    policies: Policies = field(factory=Policies)
    _proxy: NetworkProxy = field(init=False, factory=lambda: NetworkProxy(policies=Policies()))
    _relay: Relay | None = field(init=False, default=None)
    _tasks: Tasks = field(init=False)
    _opened: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._tasks = Tasks(f"runtime {self.runtime}", lambda: None)

    @property
    def held(self) -> bool:
        """Whether programs of the execution are held to policies at all."""
        return bool(self.policies.each)

    @property
    def variables(self) -> Mapping[str, str]:
        """What programs are told of the proxy, once there is one."""
        return VARIABLES if self._relay is not None and PROXY in self._relay.places else {}

    async def cut(self, client: Client, container: str, routes: Sequence[Route]) -> None:
        """Take the network away, but for the routes and what the policies allow. Raises `SandboxError`."""
        served, far = lay(self.runtime, routes)
        self._proxy.policies = Execution(self.policies.each, far)
        if far or not self.policies.forbids_all:
            served[PROXY] = self._proxy.answer
        for network in (await client.ask("inspect", "-f", NETWORKS, container)).split():
            await client.ask("network", "disconnect", "-f", network, container)
        if left := await client.ask("inspect", "-f", NETWORKS, container):
            raise SandboxError(f"runtime {self.runtime} is still connected to {left}, and its policy allows no network")
        if self._relay is not None:
            await self._relay.close()
            self._relay = None
        if served:
            if not self._opened:
                self._opened = True
                await self._tasks.open()
            self._relay = await Relay.open(client, container, served, self._tasks)

    async def close(self) -> None:
        """End the relay. Any number of times."""
        if self._relay is not None:
            await self._relay.close()
        await self._tasks.close()

    def host_url(self, url: str) -> str:
        """The URL of something of the engine's host: itself where the relay carries it, else over the host's name."""
        parts = urlsplit(url)
        if self.held or not parts.hostname or not _of_the_host(parts.hostname):
            return url
        return parts._replace(netloc=HOST if parts.port is None else f"{HOST}:{parts.port}").geturl()


def _of_the_host(name: str) -> bool:
    """Whether it names the machine that it is said on."""
    if name == "localhost":
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
