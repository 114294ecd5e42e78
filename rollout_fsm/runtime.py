"""The contract of a runtime: the box that a rollout's programs run in.

A runtime is owned by one rollout, which starts and stops it, or borrowed, and then its owner does (L2, L3). Every
method may be cancelled at any checkpoint; `stop` follows every `start` that began, also one that failed or was
cancelled half-way (L8).

What dies with its process leaves its box standing. A runtime that can be found again has a `lease`, which the engine
keeps on disk (L73), and `reclaim` or `adopt` it in the process that goes on with the run.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Self, TypeAlias

import trio
from attrs import frozen

from rollout_fsm.errors import SandboxError, text
from rollout_fsm.foreign import optional
from rollout_fsm.messages import JSON
from rollout_fsm.network import NetworkPolicy

Answer: TypeAlias = Callable[[trio.SocketStream], Awaitable[None]]
"""Serves one client's connection to its end; the caller closes it. Raises nothing for what the client does."""


class Route(str):
    """A URL of the framework's own, which stays reachable from a box, whatever its network policy (L5).

    `answer` serves a connection that was made in a box without going through the machine's network; None where the
    URL has to be dialled.
    """

    answer: Answer | None

    def __new__(cls, url: str, answer: Answer | None = None) -> Self:
        """A URL, with who answers its connections."""
        route = super().__new__(cls, url)
        route.answer = answer
        return route


@frozen(kw_only=True)
class ProgramResult:
    """How a program ended. `stdout` and `stderr` are capped, head and tail, and say in the text what was cut."""

    exit_code: int
    """The exit status; a program that a signal ended has minus the signal's number."""
    stdout: str = ""
    stderr: str = ""


class Runtime(ABC):
    """A box for programs and files. `name` says which one; an owned runtime bears the trace's id."""

    name: str

    @property
    @abstractmethod
    def stopped(self) -> bool:
        """Whether `stop` was called. Asked of a borrowed runtime to tell its owner's bug from a failure (L3)."""

    @property
    def lease(self) -> Mapping[str, JSON] | None:
        """What another process needs to find and remove the box, should this one die: a JSON object, known before
        `start` and the same until `stop` (L73). None where nothing could be found again, or nothing stays.
        """
        return None

    @classmethod
    async def reclaim(cls, lease: Mapping[str, JSON]) -> None:
        """Stop and remove what is left of a box whose own process has died, from its lease.

        Called any number of times, also for a box that was never started or is gone, and touches nothing but that box.
        Raises `SandboxError` naming what would not go.
        """
        raise SandboxError(f"{cls.__name__} cannot remove a box that a dead process left behind; its lease is {lease}")

    @classmethod
    async def adopt(cls, name: str, lease: Mapping[str, JSON]) -> "Runtime | None":
        """Take over the box of a process that has died, as it stands: a started runtime, whose files are those of that
        box, and whose `stop` removes it with all that was left in it. None where it does not stand any more.
        """
        return None

    @abstractmethod
    async def start(self) -> None:
        """Bring the box up. Shield only the step between asking for a handle and storing it (L8)."""

    @abstractmethod
    async def stop(self) -> None:
        """Take the box down with everything in it, and copes with a start that failed, was cancelled or never came
        (L8)."""

    @abstractmethod
    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        """Run a program to its end and return how it ended.

        `env` is added to the runtime's own few variables, `input` is its standard input, `timeout` in seconds raises
        `TimeoutError` after the program was killed. A cancellation kills the program and its group and waits for them.
        Raises `SandboxError` where the box cannot run it, `FileNotFoundError` where there is no such program.
        """

    async def alive(self) -> bool:
        """Whether the box still answers. Asked after a program failed (L41)."""
        return not self.stopped

    @optional
    async def kill(self) -> bool:
        """End every process that the harness started and wait for them; False if some survive (L13).

        What was started before `prepare_execution` is the task's and stays until `stop`.
        """
        return True

    @abstractmethod
    async def read(self, path: str) -> bytes:
        """The content of a file. A relative path is relative to the workspace."""

    @abstractmethod
    async def write(self, path: str, data: bytes | str) -> None:
        """Create or replace a file, its folders too. A relative path is relative to the workspace."""

    def restrict(self, network: NetworkPolicy | None) -> None:
        """Let programs of the execution that comes reach only what this policy allows, too: a task's policy joins the
        runtime's own, in the place of that of the task before. Asked before `start`, and of a borrowed runtime before
        each use, with None for a task without one. Raises `SandboxError` where the runtime cannot hold programs to a
        policy: one that is ignored would be worse than none.
        """
        if network is None:
            return
        raise SandboxError(
            f"{type(self).__name__} cannot hold programs to a network policy; run the task in an isolated runtime "
            f"(BubblewrapRuntime), or take the policy away"
        )

    @property
    def restricted(self) -> bool:
        """Whether programs of the execution are held to a network policy that keeps anything from them."""
        return False

    @optional
    async def prepare_setup(self) -> None:
        """Make ready for setup, called once at the end of booting (L2): setup has its network."""

    @optional
    async def prepare_execution(self, routes: Sequence[Route]) -> None:
        """Apply the network policy of the execution; `routes` are the framework's own URLs, which stay open (L5)."""

    def host_url(self, url: str) -> str:
        """The URL under which programs in the box reach a URL of the engine's host."""
        return url


RuntimeFactory: TypeAlias = Callable[[str], Runtime]
"""Makes an owned runtime from its name; a `Runtime` class is one."""


def class_path(runtime: type[Runtime]) -> str:
    """Where a class is found, for another process: `module:Qualname`."""
    return f"{runtime.__module__}:{runtime.__qualname__}"


def runtime_class(path: str) -> type[Runtime]:
    """The class that `class_path` told of. Raises `SandboxError` where there is none such."""
    module, _, qualname = path.partition(":")
    try:
        found: object = importlib.import_module(module)
        for name in qualname.split("."):
            found = getattr(found, name)
    except Exception as error:
        raise SandboxError(f"the runtime {path} cannot be found: {text(error)}") from error
    if not isinstance(found, type) or not issubclass(found, Runtime):
        raise SandboxError(f"{path} is no runtime any more")
    return found
