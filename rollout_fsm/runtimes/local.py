"""A runtime that is a folder and the processes started in it, on this machine, under this user.

It isolates nothing but names: programs see the machine's files and network. What it promises is that nothing stays:
after `stop` neither a process nor a file of it is left, whatever became of `start` and `run` (L8), and no variable of
the engine's environment reaches a program. A box in which no program ran is made and unmade without a thread.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import trio
from attrs import Factory, define, field, validators

from rollout_fsm.errors import SandboxError
from rollout_fsm.messages import JSON
from rollout_fsm.runtime import ProgramResult, Runtime
from rollout_fsm.runtimes import files, launch
from rollout_fsm.runtimes.leases import LocalLease
from rollout_fsm.runtimes.lifetime import Lifetime
from rollout_fsm.runtimes.programs import Programs, pids
from rollout_fsm.runtimes.removal import remove, remove_moved
from rollout_fsm.runtimes.threads import ending_limiter, file_limiter

CAP = 1 << 20
"""Bytes kept of each output stream of a program, unless said otherwise."""
GRACE = 2.0
"""Seconds between asking processes to end and killing them, unless said otherwise."""

READ_CAP = 1 << 26
"""Bytes of the longest file that `read` reads, unless said otherwise."""


@define(eq=False, repr=False)
class LocalRuntime(Runtime):
    """Programs as child processes in a workspace folder of their own. A factory too: `runtime=LocalRuntime`.

    `cap`: bytes kept of each output stream of a program, the first and the last half. `grace`: seconds between TERM
    and KILL. `read_cap`: bytes of the longest file that `read` reads.
    """

    name: str
    cap: int = field(default=CAP, kw_only=True, validator=validators.ge(0))
    grace: float = field(default=GRACE, kw_only=True, validator=validators.ge(0))
    read_cap: int = field(default=READ_CAP, kw_only=True, validator=validators.ge(0))
    _lease: LocalLease = field(init=False)
    _workspace: Path | None = field(init=False, default=None)
    _root: int | None = field(init=False, default=None)
    """A descriptor of the workspace from start to stop: programs may put something else in the place of its path."""
    _lifetime: Lifetime = field(init=False, default=Factory(lambda self: Lifetime(self.name), takes_self=True))
    _execution: int | None = field(init=False, default=None)
    """The number of the first program of the execution, once that has begun."""
    _programs: Programs = field(init=False)

    def __attrs_post_init__(self) -> None:
        try:
            self._bear(LocalLease.new(self.name, cap=self.cap, grace=self.grace, read_cap=self.read_cap))
        except OSError as error:
            raise SandboxError(f"runtime {self.name} has no place for its workspace: {error}") from error

    def _bear(self, lease: LocalLease) -> None:
        self._lease = lease
        self._programs = Programs(runtime=self.name, marker=lease.marker, cap=self.cap, grace=self.grace)

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called (L3)."""
        return self._lifetime.stopped

    @property
    def workspace(self) -> Path:
        """The folder in which programs run; `SandboxError` before `start` and after `stop`."""
        return self._lifetime.require(self._workspace, "workspace")

    async def start(self) -> None:
        """Make the workspace, with a folder for temporary files in it. Nothing can come between making and knowing it
        (L8).
        """
        await trio.lowlevel.checkpoint()
        self._lifetime.require_new(begun=self._workspace is not None)
        try:
            self._make()
        except OSError as error:
            raise SandboxError(f"runtime {self.name} could not make its workspace: {error}") from error

    @trio.lowlevel.enable_ki_protection
    def _make(self) -> None:
        workspace = Path(self._lease.workspace)
        workspace.mkdir(mode=0o700)
        self._workspace = workspace
        self._root = os.open(self._workspace, files.FOLDER)
        os.mkdir(launch.TEMPORARY, mode=0o700, dir_fd=self._root)

    @property
    def lease(self) -> dict[str, JSON]:
        """The workspace that it has or will have, and what marks its programs, on which machine."""
        return self._lease.to_json()

    @classmethod
    async def reclaim(cls, lease: Mapping[str, JSON]) -> None:
        """End the processes and remove the workspace of a box whose own process has died. Any number of times.

        A box of another machine is not touched. Shielded, and bounded as `stop` is. Raises `SandboxError` naming what
        is left, also for what is no lease.
        """
        await trio.lowlevel.checkpoint()
        known = LocalLease.from_json(lease)
        known.require_here()
        left = cls._of(os.path.basename(known.workspace), known)
        left._find()
        with trio.CancelScope(shield=True):
            if known.same_boot:
                await left._programs.take_over()
        await left.stop()

    @classmethod
    async def adopt(cls, name: str, lease: Mapping[str, JSON]) -> "LocalRuntime | None":
        """Take over the box of a process that has died: its files are there, its programs run on, `stop` takes it down
        with them. None if its workspace is gone, is on another machine, or its processes ended with a restart.
        """
        await trio.lowlevel.checkpoint()
        known = LocalLease.from_json(lease)
        if not known.same_boot:
            return None
        runtime = cls._of(name, known)
        if not runtime._find():
            return None
        with suppress(FileExistsError):
            os.mkdir(launch.TEMPORARY, mode=0o700, dir_fd=runtime._root)
        await runtime._programs.take_over()
        return runtime

    @classmethod
    def _of(cls, name: str, lease: LocalLease) -> "LocalRuntime":
        runtime = cls(name, cap=lease.cap, grace=lease.grace, read_cap=lease.read_cap)
        runtime._bear(lease)
        return runtime

    def _find(self) -> bool:
        """Open the workspace that an earlier process made; whether it is there."""
        self._workspace = Path(self._lease.workspace)
        try:
            self._root = os.open(self._workspace, files.FOLDER)
        except OSError:  # gone, or a program put something else in its place
            return False
        return True

    async def stop(self) -> None:
        """End every process and remove the workspace. Any number of times; after a start that failed or never came
        too (L8).

        Shielded: bounded by the grace, by how long killed processes are waited for, and by the size of the workspace.
        Raises `SandboxError` naming what is left; a further call tries again.
        """
        self._programs.closed = True
        await self._lifetime.end(self._tear_down)

    async def _tear_down(self) -> None:
        survivors = await self._programs.end()
        left = await self._remove()
        trouble = [f"{pids(survivors)} would not die"] if survivors else []
        trouble += [f"its workspace {self._workspace} could not be removed: {left}"] if left else []
        if trouble:
            raise SandboxError(f"runtime {self.name} was not stopped wholly: {'; '.join(trouble)}")

    async def _remove(self) -> str | None:
        if self._workspace is None:
            return None
        try:
            if self._root is not None:
                os.rmdir(launch.TEMPORARY, dir_fd=self._root)  # not by its path, which may be a link by now
            os.rmdir(self._workspace)
        except OSError:  # something is in it
            left = await trio.to_thread.run_sync(remove, self._workspace, limiter=ending_limiter())
            if left:
                return left
        return await self._remove_moved(self._workspace)

    async def _remove_moved(self, workspace: Path) -> str | None:
        if self._root is None:
            return None
        if os.fstat(self._root).st_nlink:  # it is not what was at its path
            left = await trio.to_thread.run_sync(remove_moved, self._root, workspace, limiter=ending_limiter())
            if left:
                return left
        os.close(self._root)
        self._root = None
        return None

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        """Run a program in the workspace to its end; many may run at once.

        Variables: PATH, HOME (the workspace), LANG and TMPDIR, then `env`. Returns soon after the program's own exit,
        also if what it started holds its output open, and leaves that alone (L13). Raises `TimeoutError` after
        `timeout` seconds, with the program and all that it started killed; `FileNotFoundError` and `PermissionError`
        that say which program and where; `SandboxError` where the runtime is not running or stops meanwhile. A
        cancellation kills as a timeout does.
        """
        argv = launch.command(argv)
        workspace = self.workspace
        return await self._programs.run(
            argv,
            workspace=workspace,
            env=launch.environment(workspace, env),
            data=input.encode() if isinstance(input, str) else input,
            timeout=timeout,
        )

    async def alive(self) -> bool:
        """Whether it is started, not stopped, and its workspace still exists (L41)."""
        await trio.lowlevel.checkpoint()
        return not self._lifetime.stopped and self._workspace is not None and self._workspace.is_dir()

    async def kill(self) -> bool:
        """End every process that comes from programs run since `prepare_execution`, and wait for them; False if some
        survive.

        Shielded and bounded: the grace, then a few seconds.
        """
        await trio.lowlevel.checkpoint()
        return self._execution is None or not await self._programs.end(self._execution)

    async def read(self, path: str) -> bytes:
        """The content of a regular file; a relative path is relative to the workspace.

        An `OSError` names the path: `PermissionError` where a path in the workspace leads out of it (by a symbolic
        link or ".."), EFBIG where the file is longer than `read_cap`. What is outside has to be named by its own
        absolute path.
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
        """The workspace, opened for one use: a stop that comes meanwhile closes another descriptor."""
        workspace = self.workspace
        if self._root is None:
            raise SandboxError(f"runtime {self.name} has no workspace: its start failed")
        root = os.dup(self._root)
        try:
            yield files.Area(workspace=workspace, folders={workspace: root}, outside=True)
        finally:
            os.close(root)

    async def prepare_execution(self, routes: Sequence[str]) -> None:
        """Begin the execution: programs run from now on are the harness's (L13). No network policy is applied."""
        await trio.lowlevel.checkpoint()
        self._execution = self._programs.next_serial

    def __repr__(self) -> str:
        state = self._lifetime.state(self._workspace)
        return f"<LocalRuntime {self.name!r} {state}, {self._programs.running} programs>"
