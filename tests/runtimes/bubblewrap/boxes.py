"""What the tests of the isolated runtime share: whether it can be had here, a box that is always stopped, looks from
outside at what there is of a box, and cancellations at every step.
"""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

from rollout_fsm.runtimes.bubblewrap import BubblewrapRuntime
from rollout_fsm.runtimes.table import stat_fields
from tests.runtimes.boxes import Bell


def unavailable() -> str | None:
    """Why there can be no box here, None if there can."""
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "bubblewrap is not installed"
    return None if tried.returncode == 0 else f"bubblewrap is not permitted here: {tried.stderr.strip()}"


@asynccontextmanager
async def box(name: str = "box", *, grace: float = 0.1, **settings: Any) -> AsyncIterator[BubblewrapRuntime]:
    """A started runtime, stopped in the end."""
    runtime = BubblewrapRuntime(name, grace=grace, **settings)
    try:
        await runtime.start()
        yield runtime
    finally:
        await runtime.stop()


def folder(runtime: BubblewrapRuntime) -> Path:
    """Where on the host a runtime's folder is."""
    return Path(str(runtime.lease["workspace"]))


def descendants(pid: int | None = None) -> list[int]:
    """The processes that descend from a process, this one unless it is said, and have not been waited for."""
    parents = {int(name): _parent(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found = [os.getpid() if pid is None else pid]
    for parent in found:
        found += [child for child, above in parents.items() if above == parent]
    return found[1:]


def with_argument(argument: str) -> list[int]:
    """The processes that have this argument on their command line, whoever's they are."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and argument.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                found.append(int(name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _parent(pid: int) -> int | None:
    fields = stat_fields(pid)
    return None if fields is None else int(fields[1])


def bell(runtime: BubblewrapRuntime) -> Bell:
    """A bell in the workspace of a box, which its programs can ring."""
    workspace = folder(runtime) / "workspace"
    made = Bell(workspace)
    (workspace / "bell").chmod(0o666)
    return made


RING = "exec 9>bell; echo up >&9; "
"""Opens the bell, for this process and all that it starts, and rings it."""


@frozen(eq=False)
class _CancelAt(trio.abc.Instrument):
    steps: Iterator[int]
    point: int
    scope: trio.CancelScope

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if next(self.steps) == self.point:
            self.scope.cancel()


@contextmanager
def cancelling_at(point: int, scope: trio.CancelScope) -> Iterator[None]:
    """A block whose scope is cancelled right after so many steps of tasks in it."""
    instrument = _CancelAt(count(1), point, scope)
    trio.lowlevel.add_instrument(instrument)
    try:
        yield
    finally:
        trio.lowlevel.remove_instrument(instrument)
