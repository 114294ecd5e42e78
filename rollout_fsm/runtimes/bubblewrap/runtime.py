"""A runtime that is a box of its own: programs see chosen folders of the machine, their own workspace, no process but
their own, and no network but what is opened for them.

Bubblewrap makes the box, whose namespaces last from start to stop. Its first process, `keeper.py`, starts programs when
the engine says so; the box dies with it, and it dies with the engine. What this promises beyond `LocalRuntime`: nothing
of the engine, of other boxes or of the machine's users is seen, touched or reached, and nothing outlives the box,
whatever programs do.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import trio
from attrs import Factory, define, evolve, field, validators

from rollout_fsm.errors import SandboxError
from rollout_fsm.messages import JSON
from rollout_fsm.network import NetworkPolicy, Policies, is_policy
from rollout_fsm.runtime import ProgramResult, Route, Runtime
from rollout_fsm.runtimes import files, launch
from rollout_fsm.runtimes.bubblewrap import remains
from rollout_fsm.runtimes.bubblewrap.box import Box
from rollout_fsm.runtimes.bubblewrap.command import user_of
from rollout_fsm.runtimes.bubblewrap.folder import TEMPORARY, WORKSPACE, Folder
from rollout_fsm.runtimes.bubblewrap.lease import BoxLease
from rollout_fsm.runtimes.bubblewrap.limits import BoxLimits
from rollout_fsm.runtimes.lifetime import Lifetime
from rollout_fsm.runtimes.local import CAP, GRACE, READ_CAP
from rollout_fsm.runtimes.programs import pids
from rollout_fsm.runtimes.table import Process
from rollout_fsm.runtimes.threads import file_limiter

FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for, after the folder of this interpreter."""


def _paths(given: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TypeError(f"read_only is a list of paths, not one path: write [{given!r}]")
    return tuple(os.fspath(path) for path in given)


@define(eq=False, repr=False)
class BubblewrapRuntime(Runtime):
    """Programs in a box of bubblewrap's. A factory too: `runtime=BubblewrapRuntime`.

    Programs begin in /workspace, which is their HOME; that, /tmp and /dev/shm can be written. They see the system's
    programs and libraries, this interpreter with its packages, and the absolute paths in `read_only`.

    `network`: what the execution may reach, nothing unless it is said, beside the framework's own routes;
    `setup_network`: what setup may reach, everything public unless it is said. Both are reached through an HTTP proxy
    in the box, of which programs are told by HTTP_PROXY, HTTPS_PROXY and the like. There are no names to be looked up,
    and no other connections. A route that is not on the loopback interface is reached through the proxy, too.

    `limits`: what programs may use. `cap`, `grace` and `read_cap` are those of `LocalRuntime`.

    Where the engine is an ordinary user the box is a user namespace, in which programs have the engine's user id; on
    kernels before 5.14 `limits.processes` then counts all processes of that user. Where it is root each box has a user
    id of its own. One rollout at a time uses a box: `prepare_execution` replaces the routes of the one before.
    """

    name: str
    limits: BoxLimits = field(factory=BoxLimits, kw_only=True, validator=validators.instance_of(BoxLimits))
    network: NetworkPolicy = field(factory=lambda: NetworkPolicy(allow=()), kw_only=True, validator=is_policy)
    setup_network: NetworkPolicy = field(factory=NetworkPolicy, kw_only=True, validator=is_policy)
    read_only: tuple[str, ...] = field(default=(), kw_only=True, converter=_paths)
    cap: int = field(default=CAP, kw_only=True, validator=validators.ge(0))
    grace: float = field(default=GRACE, kw_only=True, validator=validators.ge(0))
    read_cap: int = field(default=READ_CAP, kw_only=True, validator=validators.ge(0))
    _lease: BoxLease = field(init=False)
    _folder: Folder = field(init=False)
    _box: Box | None = field(init=False, default=None)
    _execution: bool = field(init=False, default=False)
    """Whether the execution has begun."""
    _lifetime: Lifetime = field(init=False, default=Factory(lambda self: Lifetime(self.name), takes_self=True))

    def __attrs_post_init__(self) -> None:
        try:
            lease = BoxLease.new(
                self.name,
                cap=self.cap,
                grace=self.grace,
                read_cap=self.read_cap,
                limits=self.limits,
                read_only=self.read_only,
                network=self.network,
                setup_network=self.setup_network,
            )
        except OSError as error:
            raise SandboxError(f"runtime {self.name} has no place for its folder: {error}") from error
        self._bear(lease)

    def _bear(self, lease: BoxLease) -> None:
        self._lease = lease
        self._folder = Folder(Path(lease.workspace), user_of(lease))

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called (L3)."""
        return self._lifetime.stopped

    async def start(self) -> None:
        """Make the folder and bring the box up (L8). Raises `SandboxError` that says what to install or to allow."""
        await trio.lowlevel.checkpoint()
        self._lifetime.require_new(begun=self._box is not None)
        try:
            self._folder.make()
        except OSError as error:
            raise SandboxError(f"runtime {self.name} could not make its folder: {error}") from error
        await self._bring_up()

    async def _bring_up(self) -> None:
        try:
            self._box = Box(self.name, self._lease, self._folder)
        except OSError as error:
            raise SandboxError(f"runtime {self.name} could not make its box: {error}") from error
        await self._box.start()

    @property
    def lease(self) -> dict[str, JSON]:
        """The folder that it has or will have, what marks its processes, how its box is made, on which machine."""
        return self._lease.to_json()

    @classmethod
    async def reclaim(cls, lease: Mapping[str, JSON]) -> None:
        """End the box and remove the folder of a runtime whose own process has died. Any number of times.

        A box of another machine is not touched. Shielded, and bounded as `stop` is. Raises `SandboxError` naming what
        is left, also for what is no lease.
        """
        await trio.lowlevel.checkpoint()
        known = BoxLease.from_json(lease)
        known.require_here()
        left = cls._of(os.path.basename(known.workspace), known)
        await left.stop()

    @classmethod
    async def adopt(cls, name: str, lease: Mapping[str, JSON]) -> "BubblewrapRuntime | None":
        """Take over the files of a runtime whose process has died: they are put into a new box, made like the old one.

        The processes of the old one died with its engine. So None where there were any, which somebody may have wanted
        to ask something, as well as where the folder is gone, on another machine, or from before a restart.
        """
        await trio.lowlevel.checkpoint()
        known = BoxLease.from_json(lease)
        if not known.same_boot:
            return None
        living = await remains.living(known.marker)
        if living.programs:
            return None
        runtime = cls._of(name, known)
        if not runtime._folder.find():
            return None
        try:
            if not living.all and runtime._folder.left() != 0:
                runtime._folder.close()
                return None
            if survivors := await remains.end(known.marker):
                raise SandboxError(f"runtime {name}: the box that it was is not dead: {pids(survivors)} would not die")
            await runtime._bring_up()
            await runtime._open_execution(())
        except BaseException:
            with trio.CancelScope(shield=True):
                await runtime._end("was given up")
            runtime._folder.close()
            raise
        return runtime

    @classmethod
    def _of(cls, name: str, lease: BoxLease) -> "BubblewrapRuntime":
        runtime = cls(
            name,
            limits=lease.limits,
            network=lease.network,
            setup_network=lease.setup_network,
            read_only=lease.read_only,
            cap=lease.cap,
            grace=lease.grace,
            read_cap=lease.read_cap,
        )
        runtime._bear(lease)
        return runtime

    async def stop(self) -> None:
        """End everything in the box and remove the folder. Any number of times; after a start that failed or never came
        too (L8).

        Shielded: bounded by how long a box takes to die, and by the size of the folder. Raises `SandboxError` naming
        what is left; a further call tries again.
        """
        await self._lifetime.end(self._tear_down)

    async def _tear_down(self) -> None:
        survivors = await self._end("was stopped")
        left = await self._folder.remove()
        trouble = [f"{pids(survivors)} would not die"] if survivors else []
        trouble += [f"its folder {self._folder.path} could not be removed: {left}"] if left else []
        if trouble:
            raise SandboxError(f"runtime {self.name} was not stopped wholly: {'; '.join(trouble)}")

    async def _end(self, why: str) -> list[Process]:
        """End the box: this one's own, or the one that its lease tells of."""
        if self._box is not None:
            return await self._box.end(why)
        return await remains.end(self._lease.marker) if self._lease.same_boot else []

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        """Run a program in the workspace to its end; many may run at once.

        Variables: PATH, HOME, LANG, TMPDIR, those of the proxy where there is one, then `env`. Returns soon after the
        program's own exit, also if what it started holds its output open, and leaves that alone (L13). Raises
        `TimeoutError` after `timeout` seconds, with the program and all that it started killed; `FileNotFoundError` and
        `PermissionError` that say which program and where; `SandboxError` where the box is not running, stops
        meanwhile, or is ended by its limits. A cancellation kills as a timeout does.
        """
        argv, box = launch.command(argv), self._started
        variables = {
            "PATH": f"{os.path.dirname(sys.executable)}:{FOLDERS}",
            "HOME": str(WORKSPACE),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "TMPDIR": str(TEMPORARY),
        }
        return await box.programs.run(
            argv,
            env={**variables, **box.ways.variables, **(env or {})},
            data=input.encode() if isinstance(input, str) else input,
            timeout=timeout,
        )

    @property
    def _started(self) -> Box:
        return self._lifetime.require(self._box, "box")

    async def alive(self) -> bool:
        """Whether it is started, not stopped, and its first process answers (L41). Raises `SandboxError` where its
        limits ended it.
        """
        await trio.lowlevel.checkpoint()
        return not self._lifetime.stopped and self._box is not None and await self._box.answers()

    async def kill(self) -> bool:
        """End every process that was started since `prepare_execution`, and wait for it; False if some survive.

        What setup started lives on. Shielded and bounded: the grace, then a few seconds.
        """
        await trio.lowlevel.checkpoint()
        if self._box is None or not self._execution:
            return True
        return not await self._box.kill()

    async def read(self, path: str) -> bytes:
        """The content of a regular file in /workspace or /tmp; a relative path is relative to /workspace.

        An `OSError` names the path: `PermissionError` for any other path, and where one leads out of these (by a
        symbolic link or ".."), EFBIG where the file is longer than `read_cap`.
        """
        with self._area() as area:
            return await trio.to_thread.run_sync(files.read, area, path, self.read_cap, limiter=file_limiter())

    async def write(self, path: str, data: bytes | str) -> None:
        """Create or replace a regular file, its folders too; paths are those of `read`."""
        content = data.encode() if isinstance(data, str) else data
        with self._area() as area:
            await trio.to_thread.run_sync(files.write, area, path, content, limiter=file_limiter())

    @contextmanager
    def _area(self) -> Iterator[files.Area]:
        if not self._started.folder.made:
            raise SandboxError(f"runtime {self.name} has no folder: its start failed")
        with self._folder.area() as area:
            yield area

    def restrict(self, network: NetworkPolicy | None) -> None:
        """Let programs of the execution reach only what this policy allows, too, from `prepare_execution` on; that of
        the task before is over."""
        self._lease = evolve(self._lease, task_network=network)

    @property
    def restricted(self) -> bool:
        """Whether the execution's network policies keep anything public from programs."""
        return self._lease.policies.restricts

    async def prepare_setup(self) -> None:
        """Open the way to what setup may reach (L2)."""
        await self._started.ways.for_setup(Policies((self._lease.setup_network,)))

    async def prepare_execution(self, routes: Sequence[Route]) -> None:
        """Begin the execution: programs started from now on are the harness's (L13), and reach the routes and what the
        policies allow (L5). What setup had reached and they do not allow is cut.
        """
        await self._started.programs.begin()
        self._execution = True
        await self._open_execution(routes)

    async def _open_execution(self, routes: Sequence[Route]) -> None:
        await self._started.ways.for_execution(self._lease.policies, routes)

    def __repr__(self) -> str:
        state = self._lifetime.state(None if self._box is None else self._folder.path)
        running = 0 if self._box is None else self._box.programs.running
        return f"<BubblewrapRuntime {self.name!r} {state}, {running} programs>"
