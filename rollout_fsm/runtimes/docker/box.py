"""A runtime that is a container.

Everything is said to an engine's command line, and by it to a shell in the container. What is promised is what the
engine promises of its containers; that none stays is seen to by a label that no other container bears.
"""

import logging
import math
import secrets
from collections.abc import Mapping, Sequence

import trio
from attrs import Factory, define, field, validators

from rollout_fsm.errors import SandboxError
from rollout_fsm.messages import JSON
from rollout_fsm.network import NetworkPolicy, Policies, is_policy
from rollout_fsm.runtime import ProgramResult, Route, Runtime
from rollout_fsm.runtimes import launch
from rollout_fsm.runtimes.docker import scripts
from rollout_fsm.runtimes.docker.client import Client
from rollout_fsm.runtimes.docker.container import INSIDE, Container, remove
from rollout_fsm.runtimes.docker.executing import Ended, execute
from rollout_fsm.runtimes.docker.lease import LABEL, DockerLease
from rollout_fsm.runtimes.docker.ways import HOST, Ways
from rollout_fsm.runtimes.lifetime import Lifetime
from rollout_fsm.runtimes.local import CAP, GRACE, READ_CAP

IMAGE = "python:3.12-slim"
"""The image, unless said otherwise."""
PROCESSES = 1024
"""How many processes a container may have, unless said otherwise."""

SETUP = "s"
EXECUTION = "e"
"""What the marks of programs begin with, which tell when they were started."""

log = logging.getLogger("rollout_fsm")


@define(eq=False, repr=False)
class DockerRuntime(Runtime):
    """Programs in a container of Docker's or Podman's. A factory too: `partial(DockerRuntime, image="debian:12")`.

    Tested against a stand-in for the command line, which runs its containers' programs as processes of the machine.

    `image` is pulled where it is missing; it has a POSIX shell with `grep`, `head`, `readlink`, `sleep` and `wc`, and
    under a network policy `python3`. `engine`: the program, "docker" or "podman" or a path. `user`: who programs are;
    the image's user unless it is said. `memory` (as the engine spells it, "2g"), `cpus` and `processes` bound the
    container. It has no capabilities and no folder of the host; what is written stays in it.

    `network`: what the execution may reach, beside the framework's own routes; a task's policy joins it. Under a policy
    the container is taken off its networks when the execution begins, and reaches what the policies allow through an
    HTTP proxy, of which programs are told by HTTP_PROXY and the like; routes keep their URLs. Setup has the engine's
    default network. Without a policy that stays, and programs reach the engine's host as host.docker.internal: on Linux
    the gateway has to listen where containers reach it, on `open_engine(host="172.17.0.1")`, say, and not on loopback.

    `cap`: bytes kept of each output stream of a program, the first and the last half. `grace`: seconds between TERM
    and KILL. `read_cap`: bytes of the longest file that `read` reads.
    """

    name: str
    image: str = field(default=IMAGE, kw_only=True, validator=validators.matches_re("[^-].*"))
    engine: str = field(default="docker", kw_only=True)
    network: NetworkPolicy | None = field(
        factory=lambda: NetworkPolicy(allow=()),
        kw_only=True,
        validator=validators.optional(is_policy),
    )
    user: str | None = field(default=None, kw_only=True)
    memory: str | None = field(default=None, kw_only=True)
    cpus: float | None = field(default=None, kw_only=True, validator=validators.optional(validators.gt(0)))
    processes: int = field(default=PROCESSES, kw_only=True, validator=validators.ge(1))
    workspace: str = field(default="/workspace", kw_only=True, validator=validators.matches_re("/.+"))
    cap: int = field(default=CAP, kw_only=True, validator=validators.ge(0))
    grace: float = field(default=GRACE, kw_only=True, validator=validators.ge(0))
    read_cap: int = field(default=READ_CAP, kw_only=True, validator=validators.ge(0))
    _lease: DockerLease = field(init=False)
    _ways: Ways = field(init=False)
    _client: Client | None = field(init=False, default=None)
    """Set once the container may exist."""
    _started: Container | None = field(init=False, default=None)
    _lifetime: Lifetime = field(init=False, default=Factory(lambda self: Lifetime(self.name), takes_self=True))
    _spared: Sequence[str] | None = field(init=False, default=None)
    """The processes that were there when the execution began, once it has."""

    def __attrs_post_init__(self) -> None:
        self._lease = DockerLease.new(
            self.name,
            engine=self.engine,
            workspace=self.workspace,
            grace=self.grace,
            cap=self.cap,
            read_cap=self.read_cap,
        )
        self._ways = Ways(self.name)
        self.restrict(None)

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called (L3)."""
        return self._lifetime.stopped

    @property
    def lease(self) -> dict[str, JSON]:
        """The label that the container bears or will bear, and where its engine is."""
        return self._lease.to_json()

    async def start(self) -> None:
        """Pull the image where it is missing, make the container and start it (L8). Raises `SandboxError` with what the
        engine complained of.
        """
        await trio.lowlevel.checkpoint()
        self._lifetime.require_new(begun=self._client is not None)
        client = Client.find(self.name, self.engine, self._lease.address)
        if (await client.attempt("image", "inspect", self.image)).code:
            await client.ask("pull", "-q", self.image, patience=math.inf)
        self._client = client
        with trio.CancelScope(shield=True):  # an engine goes on making what it was asked for by a command that is gone
            await client.ask("create", *self._options(), self.image, "-c", scripts.LIVE)
        await client.ask("start", self._lease.container)
        container = self._container(client)
        await container.prepare()
        self._started = container

    def _container(self, client: Client) -> Container:
        return Container(client, self._lease.container, self._lease.token, self.workspace)

    def _options(self) -> list[str]:
        options = [f"--name={self._lease.container}", f"--label={LABEL}={self._lease.token}"]
        options += ["--init", "--cap-drop=ALL", "--security-opt=no-new-privileges", f"--pids-limit={self.processes}"]
        options += [f"--add-host={HOST}:host-gateway", f"--env={INSIDE}={self._lease.token}", "--entrypoint=/bin/sh"]
        options += [f"--memory={self.memory}", f"--memory-swap={self.memory}"] if self.memory else []
        options += [f"--cpus={self.cpus:g}"] if self.cpus else []
        options += [f"--user={self.user}"] if self.user else []
        return options

    @classmethod
    async def reclaim(cls, lease: Mapping[str, JSON]) -> None:
        """Remove the container of a runtime whose own process has died. Any number of times.

        One of another machine's own engine is not touched. Shielded and bounded. Raises `SandboxError` naming what is
        left, also for what is no lease.
        """
        await trio.lowlevel.checkpoint()
        known = DockerLease.from_json(lease)
        if not known.here:
            raise SandboxError(
                f"the container {known.container} is on the machine {known.machine!r} and cannot be removed from here: "
                f"remove it there, with `{known.engine} rm -f {known.container}`"
            )
        left = cls._of(known.container, known)
        left._client = Client.find(left.name, known.engine, known.address)
        await left.stop()

    @classmethod
    async def adopt(cls, name: str, lease: Mapping[str, JSON]) -> "DockerRuntime | None":
        """Take over the container of a runtime whose process has died: its files are there, its programs run on. None
        if it does not run any more, or is another machine's."""
        await trio.lowlevel.checkpoint()
        known = DockerLease.from_json(lease)
        if not known.here:
            return None
        runtime = cls._of(name, known)
        client = runtime._client = Client.find(name, known.engine, known.address)
        running = await client.ask("ps", "-q", "--no-trunc", "--filter", known.filter, "--filter", "status=running")
        if not running:
            return None
        runtime._started = runtime._container(client)
        return runtime

    @classmethod
    def _of(cls, name: str, lease: DockerLease) -> "DockerRuntime":
        runtime = cls(
            name,
            engine=lease.engine,
            workspace=lease.workspace,
            grace=lease.grace,
            cap=lease.cap,
            read_cap=lease.read_cap,
        )
        runtime._lease = lease
        return runtime

    async def stop(self) -> None:
        """Remove the container with everything in it. Any number of times; after a start that failed or never came too
        (L8).

        Shielded, and bounded by what the engine has for a command. Raises `SandboxError` naming what is left; a further
        call tries again.
        """
        await self._lifetime.end(self._tear_down)

    async def _tear_down(self) -> None:
        await self._ways.close()
        if self._client is not None:
            await remove(self._client, self._lease.filter)

    @property
    def _running(self) -> Container:
        return self._lifetime.require(self._started, "container")

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        """Run a program in the workspace to its end; many may run at once.

        Variables: the image's, HOME (the workspace), those of the proxy where there is one, then `env`. Returns soon
        after the program's own exit, and leaves alone what it started (L13). An exit status from 129 to 192 is taken
        for the end by a signal, as shells say it. Raises `TimeoutError` after `timeout` seconds, with the program and
        what it started killed; `FileNotFoundError` and `PermissionError` that say which program; `SandboxError` where
        the container does not run it, or is stopped meanwhile. A cancellation kills as a timeout does.
        """
        argv, container = launch.command(argv), self._running
        mark = f"{SETUP if self._spared is None else EXECUTION}-{secrets.token_hex(8)}"
        variables = {"HOME": self.workspace, **self._ways.variables, **(env or {}), self._marker: mark}
        data = input.encode() if isinstance(input, str) else input or b""
        ended: Ended | None = None
        try:
            with trio.move_on_after(math.inf if timeout is None else timeout):
                ended = await execute(container, argv, variables, data, self.cap)
        finally:
            if ended is None and not self._lifetime.stopped:
                await self._give_up(container, f"{self._marker}={mark}")
        if self._lifetime.stopped:
            raise SandboxError(f"runtime {self.name} was stopped while {argv[0]!r} ran")
        if ended is None:
            raise TimeoutError(f"{list(argv)!r} did not end within {timeout} s and was killed")
        return ended.result(argv[0], self.name)

    async def _give_up(self, container: Container, pattern: str) -> None:
        """End a program that nobody waits for any more."""
        with trio.CancelScope(shield=True):
            try:
                if survivors := await container.end(pattern, (), self.grace):
                    log.warning("runtime %s: processes %s of its container would not die", self.name, survivors)
            except SandboxError as error:
                log.warning("a program in a container could not be ended: %s", error)

    @property
    def _marker(self) -> str:
        return launch.MARKER + self._lease.token

    async def alive(self) -> bool:
        """Whether it is started, not stopped, and the container runs (L41)."""
        await trio.lowlevel.checkpoint()
        return not self._lifetime.stopped and self._started is not None and await self._started.lives()

    async def kill(self) -> bool:
        """End every process that came since `prepare_execution`, and wait for it; False if some survive.

        Shielded and bounded: the grace, then a few seconds, and what an engine has for a command.
        """
        await trio.lowlevel.checkpoint()
        if self._spared is None:
            return True
        survivors = ""
        with trio.CancelScope(shield=True):
            survivors = await self._running.end(f"{self._marker}={EXECUTION}", self._spared, self.grace)
        return not survivors

    async def read(self, path: str) -> bytes:
        """The content of a regular file; a relative path is relative to the workspace.

        An `OSError` names the path: `PermissionError` where a path in the workspace leads out of it (by a symbolic link
        or ".."), EFBIG where the file is longer than `read_cap`.
        """
        return await self._running.read(path, self.read_cap)

    async def write(self, path: str, data: bytes | str) -> None:
        """Create or replace a regular file, its folders too; paths are those of `read`."""
        await self._running.write(path, data.encode() if isinstance(data, str) else data)

    def restrict(self, network: NetworkPolicy | None) -> None:
        """Let programs of the execution reach only what this policy allows, too, from `prepare_execution` on; that of
        the task before is over."""
        self._ways.policies = Policies(tuple(policy for policy in (self.network, network) if policy is not None))

    @property
    def restricted(self) -> bool:
        """Whether the execution's network policies keep anything public from programs."""
        return self._ways.policies.restricts

    async def prepare_execution(self, routes: Sequence[Route]) -> None:
        """Begin the execution: programs run from now on are the harness's (L13). Under a policy the network is taken
        away, but for the routes and what the policies allow (L5).
        """
        container = self._running
        if self._ways.held:
            await self._ways.cut(container.client, container.name, routes)
        self._spared = await container.processes()

    def host_url(self, url: str) -> str:
        """The URL of something on the engine's host: under a policy itself, else over the name that the host has."""
        return self._ways.host_url(url)

    def __repr__(self) -> str:
        state = self._lifetime.state(None if self._started is None else self._lease.container)
        return f"<DockerRuntime {self.name!r} {state}>"
