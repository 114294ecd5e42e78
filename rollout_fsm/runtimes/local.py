"""A runtime that is a folder and the processes started in it, on this machine, under this user.

It isolates nothing but names: programs see the machine's files and network. What it promises is that nothing stays:
after `stop` neither a process nor a file of it is left, whatever became of `start` and `run` (L8), and no variable of
the engine's environment reaches a program. A box in which no program ran is made and unmade without a thread.
"""

import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import trio
from attrs import Factory, define, field, validators

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtime import ProgramResult, Runtime
from rollout_fsm.runtimes import launch
from rollout_fsm.runtimes.programs import Programs, ending_limiter, pids
from rollout_fsm.runtimes.removal import remove

CAP = 1 << 20
"""Bytes kept of each output stream of a program, unless said otherwise."""
GRACE = 2.0
"""Seconds between asking processes to end and killing them, unless said otherwise."""


@define(eq=False, repr=False)
class LocalRuntime(Runtime):
    """Programs as child processes in a workspace folder of their own. A factory too: `runtime=LocalRuntime`.

    `cap`: bytes kept of each output stream of a program, the first and the last half. `grace`: seconds between TERM
    and KILL.
    """

    name: str
    cap: int = field(default=CAP, kw_only=True, validator=validators.ge(0))
    grace: float = field(default=GRACE, kw_only=True, validator=validators.ge(0))
    _workspace: Path | None = field(init=False, default=None)
    _stopped: bool = field(init=False, default=False)
    _gone: bool = field(init=False, default=False)
    _execution: int | None = field(init=False, default=None)
    """The number of the first program of the execution, once that has begun."""
    _stopping: trio.Lock = field(init=False, factory=trio.Lock)
    _programs: Programs = field(
        init=False,
        default=Factory(lambda self: Programs(runtime=self.name, cap=self.cap, grace=self.grace), takes_self=True),
    )

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called (L3)."""
        return self._stopped

    @property
    def workspace(self) -> Path:
        """The folder in which programs run; `SandboxError` before `start` and after `stop`."""
        if self._stopped:
            raise SandboxError(f"runtime {self.name} was stopped: it has no workspace any more")
        if self._workspace is None:
            raise SandboxError(f"runtime {self.name} was not started: call start() first")
        return self._workspace

    async def start(self) -> None:
        """Make the workspace, with a folder for temporary files in it. Nothing can come between making and knowing it
        (L8).
        """
        await trio.lowlevel.checkpoint()
        if self._stopped or self._workspace is not None:
            state = "was stopped" if self._stopped else "is started already"
            raise SandboxError(f"runtime {self.name} {state}: a runtime is started once; make a new one")
        try:
            self._make()
        except OSError as error:
            raise SandboxError(f"runtime {self.name} could not make its workspace: {error}") from error

    @trio.lowlevel.enable_ki_protection
    def _make(self) -> None:
        prefix = re.sub(r"[^A-Za-z0-9_-]+", "-", self.name)[:48]
        self._workspace = Path(tempfile.mkdtemp(prefix=f"{prefix}-")).resolve()
        (self._workspace / launch.TEMPORARY).mkdir(mode=0o700)

    async def stop(self) -> None:
        """End every process and remove the workspace. Any number of times; after a start that failed or never came
        too (L8).

        Shielded: bounded by the grace, by how long killed processes are waited for, and by the size of the workspace.
        Raises `SandboxError` naming what is left; a further call tries again.
        """
        self._stopped = self._programs.closed = True
        with trio.CancelScope(shield=True):
            async with self._stopping:
                if not self._gone:
                    await self._tear_down()

    async def _tear_down(self) -> None:
        survivors = await self._programs.end()
        left = await self._remove()
        trouble = [f"{pids(survivors)} would not die"] if survivors else []
        trouble += [f"its workspace {self._workspace} could not be removed: {left}"] if left else []
        if trouble:
            raise SandboxError(f"runtime {self.name} was not stopped wholly: {'; '.join(trouble)}")
        self._gone = True

    async def _remove(self) -> str | None:
        if self._workspace is None:
            return None
        try:
            os.rmdir(self._workspace / launch.TEMPORARY)
            os.rmdir(self._workspace)
        except OSError:  # something is in it
            return await trio.to_thread.run_sync(remove, self._workspace, limiter=ending_limiter())
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
        return not self._stopped and self._workspace is not None and self._workspace.is_dir()

    async def kill(self) -> bool:
        """End every process that comes from programs run since `prepare_execution`, and wait for them; False if some
        survive.

        Shielded and bounded: the grace, then a few seconds.
        """
        await trio.lowlevel.checkpoint()
        return self._execution is None or not await self._programs.end(self._execution)

    async def read(self, path: str) -> bytes:
        """The content of a regular file; a relative path is relative to the workspace. An `OSError` names the path."""
        return await trio.to_thread.run_sync(_read, self.workspace / path)

    async def write(self, path: str, data: bytes | str) -> None:
        """Create or replace a regular file, its folders too; a relative path is relative to the workspace."""
        content = data.encode() if isinstance(data, str) else data
        await trio.to_thread.run_sync(partial(_write, self.workspace / path, content))

    async def prepare_execution(self, routes: Sequence[str]) -> None:
        """Begin the execution: programs run from now on are the harness's (L13). No network policy is applied."""
        await trio.lowlevel.checkpoint()
        self._execution = self._programs.next_serial

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else "not started" if self._workspace is None else f"in {self._workspace}"
        return f"<LocalRuntime {self.name!r} {state}, {self._programs.running} programs>"


def _read(path: Path) -> bytes:
    with os.fdopen(_open(path, os.O_RDONLY), "rb") as file:
        return file.read()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with os.fdopen(_open(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
            file.truncate()
            file.write(content)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _open(path: Path, flags: int) -> int:
    """Open a regular file. A named pipe that a program left in its place would block for ever, a device never end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(f"is a folder, not a file: {path}")
        raise OSError(f"is not a regular file but a pipe, a socket or a device: {path}")
    return descriptor
