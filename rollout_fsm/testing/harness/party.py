"""What a harness under test meets beside a model: a task, its tool server, and a box in which nothing works."""

from collections.abc import Mapping, Sequence
from typing import NoReturn

import trio
from attrs import frozen

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtime import ProgramResult, Runtime
from rollout_fsm.task import Task
from rollout_fsm.toolset import Toolset, tool

__all__ = ["TOOL", "Barren", "KitTask", "echoed"]

TOOL = "kit_echo"


def echoed(word: str) -> str:
    """What the kit's tool makes of a word."""
    return f"the echo of {word}"


class KitTools(Toolset):
    """A tool server with one tool."""

    @tool(name=TOOL)
    def echo(self, word: str) -> str:
        """Echo a word."""
        return echoed(word)


@frozen(kw_only=True)
class KitTask(Task):
    """A task, with the kit's tool server if it is to have one."""

    with_tools: bool = False

    def toolsets(self) -> Sequence[Toolset]:
        """The tool server."""
        return [KitTools()] if self.with_tools else []


class Barren(Runtime):
    """A box that starts and stops, and in which nothing works."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    async def start(self) -> None:
        """Nothing is started."""

    async def stop(self) -> None:
        """Nothing is to be stopped."""
        self._stopped = True

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        """Raises `SandboxError`."""
        return await _nothing_works()

    async def read(self, path: str) -> bytes:
        """Raises `SandboxError`."""
        return await _nothing_works()

    async def write(self, path: str, data: bytes | str) -> None:
        """Raises `SandboxError`."""
        await _nothing_works()


async def _nothing_works() -> NoReturn:
    await trio.lowlevel.checkpoint()
    raise SandboxError("nothing works in this box")
