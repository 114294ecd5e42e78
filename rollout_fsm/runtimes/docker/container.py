"""One container as its shell is asked: its files, its processes."""

import math
from collections.abc import Sequence
from posixpath import isabs, join, normpath, relpath

from attrs import frozen

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtimes.docker import scripts
from rollout_fsm.runtimes.docker.client import PATIENCE, Client, Said

INSIDE = "ROLLOUT_FSM_CONTAINER"
"""The variable by which a container's first process shows that it is no machine's."""


@frozen
class Container:
    """A container that runs. `name` is the engine's name for it."""

    client: Client
    name: str
    token: str
    workspace: str

    async def shell(
        self, script: str, *words: str, user: str | None = None, data: bytes = b"", patience: float = PATIENCE
    ) -> Said:
        """Run one of the scripts."""
        options = ["-i"] if user is None else ["-i", f"--user={user}"]
        command = ("exec", *options, self.name, "sh", "-c", script, "sh", *words)
        return await self.client.attempt(*command, data=data, patience=patience)

    async def prepare(self) -> None:
        """Make the workspace. Raises `SandboxError` with what was complained of."""
        self._require(await self.shell(scripts.PREPARE, self.workspace, user="0"))

    async def lives(self) -> bool:
        """Whether it runs."""
        said = await self.client.attempt("inspect", "-f", "{{.State.Running}}", self.name)
        return said.code == 0 and said.text == "true"

    async def processes(self) -> list[str]:
        """What runs in it, each process by its id and start. Raises `SandboxError`."""
        said = await self.shell(scripts.LIST)
        self._require(said)
        return said.text.split()

    async def end(self, pattern: str, spared: Sequence[str], grace: float) -> str:
        """End the processes that have the pattern in their environment, and, where there are any to be spared, all
        others but these; returns who survived. Bounded by the grace, in seconds, and what an engine has for a command.
        Raises `SandboxError`.
        """
        words = (pattern, f"{INSIDE}={self.token}", str(math.ceil(10 * grace)), *spared)
        said = await self.shell(scripts.END, *words, patience=PATIENCE + grace)
        if said.code not in (0, scripts.SURVIVORS) and await self.lives():
            raise self.client.complaint(said, "exec")
        return said.text

    async def read(self, path: str, cap: int) -> bytes:
        """The content of a file of at most `cap` bytes. Raises `OSError`."""
        said = await self.shell(scripts.READ, self._within(path), self.workspace, str(cap))
        self._require_file(said, path)
        return said.out

    async def write(self, path: str, content: bytes) -> None:
        """Create or replace a file, its folders too. Raises `OSError`."""
        self._require_file(await self.shell(scripts.WRITE, self._within(path), self.workspace, data=content), path)

    def _within(self, path: str) -> str:
        """The path as the scripts take it: relative if it is in the workspace."""
        whole = normpath(join(self.workspace, path))
        if whole == self.workspace or whole.startswith(f"{self.workspace}/"):
            return f"./{relpath(whole, self.workspace)}"
        if not isabs(path):
            raise self._error(scripts.OUTSIDE, path)
        return whole

    def _require(self, said: Said) -> None:
        if said.code:
            raise self.client.complaint(said, "exec")

    def _require_file(self, said: Said, path: str) -> None:
        if said.code in scripts.STATUSES:
            raise self._error(said.code, path, said.err)
        self._require(said)

    def _error(self, status: int, path: str, more: str = "") -> OSError:
        number, meaning = scripts.STATUSES[status]
        why = f"{meaning} ({more})" if more else meaning
        return OSError(number, f"{why}, in the container of runtime {self.client.runtime}", join(self.workspace, path))


async def remove(client: Client, bearing: str) -> None:
    """Remove the containers that a filter finds, with everything in them. Raises `SandboxError` naming what is left."""
    words = ("ps", "-a", "-q", "--no-trunc", "--filter", bearing)
    if found := (await client.ask(*words)).split():
        said = await client.attempt("rm", "-f", "-v", *found)
        if left := said.code and await client.ask(*words):
            raise SandboxError(f"runtime {client.runtime} was not stopped wholly: container {left} is left: {said.err}")
