"""A box under test: a runtime, called as the engine calls it, and the questions that the tests ask of it."""

from collections.abc import Mapping, Sequence

import trio
from attrs import define, field

from rollout_fsm.errors import text
from rollout_fsm.foreign import call
from rollout_fsm.runtime import ProgramResult, Route, Runtime
from rollout_fsm.testing.expecting import ContractError, expect
from rollout_fsm.testing.runtime import scripts

__all__ = ["Box"]


@define(eq=False)
class Box:
    """A runtime, with the shell that its programs are given to."""

    runtime: Runtime
    shell: Sequence[str]
    patience: float
    fetcher: Sequence[str] | None = None
    stopped: bool = field(default=False, init=False)
    """Whether `stop` was called here and returned."""
    _names: int = field(default=0, init=False)

    def name(self) -> str:
        """A name that no file of this box has yet."""
        self._names += 1
        return f"kit-{self._names}"

    def command(self, script: str, *arguments: str) -> list[str]:
        """The command line of a script."""
        return [*self.shell, script, "kit", *arguments]

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        """Run a program. Raises a `ContractError` where what comes is no result."""
        result: object = await call(self.runtime.run, argv, env=env, input=input, timeout=timeout)
        if not isinstance(result, ProgramResult):
            raise ContractError(f"run() returned {type(result).__name__}", "return a ProgramResult")
        return result

    async def sh(self, script: str, *arguments: str, input: bytes | str | None = None) -> ProgramResult:
        """Run a script that has to end soon, and well."""
        argv = self.command(script, *arguments)
        with trio.move_on_after(self.patience) as bound:
            result = await self.run(argv, input=input)
        if bound.cancelled_caught:
            raise ContractError(f"{argv!r} had not ended after {self.patience:g} s", "let programs run")
        said = result.stderr.strip() or result.stdout.strip()
        expect(
            result.exit_code == 0,
            f"{argv!r} ended with {result.exit_code}: {said}",
            "let programs run in the workspace, with a PATH; `shell` of the test class names another shell",
        )
        return result

    async def read(self, path: str) -> bytes:
        """Read a file."""
        return await call(self.runtime.read, path)

    async def write(self, path: str, data: bytes | str) -> None:
        """Write a file."""
        await call(self.runtime.write, path, data)

    async def kill(self) -> bool:
        """Kill the harness's processes."""
        return await call(self.runtime.kill)

    async def execute(self, *routes: Route) -> None:
        """Begin the execution, with these routes."""
        await call(self.runtime.prepare_execution, routes)

    async def stop(self) -> None:
        """Stop the box."""
        await call(self.runtime.stop)
        self.stopped = True

    async def pipes(self) -> tuple[str, str]:
        """Make two named pipes."""
        made = self.name(), self.name()
        await self.sh(scripts.PIPES, *made)
        return made

    async def leave(self) -> str:
        """Leave a process behind; returns the pipe that tells whether it lives."""
        pipe, _ = await self.pipes()
        await self.sh(scripts.LEAVE, pipe)
        return pipe

    async def silent(self, pipe: str) -> bool:
        """Whether nobody holds a pipe. That somebody does takes `patience` to see."""
        with trio.move_on_after(self.patience) as bound:
            await self.run(self.command(scripts.SILENT, pipe))
        return not bound.cancelled_caught

    async def serve(self) -> tuple[str, str]:
        """Leave a server behind; returns its two pipes."""
        server = await self.pipes()
        await self.sh(scripts.SERVE, *server)
        return server

    async def answers(self, server: tuple[str, str]) -> bool:
        """Whether that server answers. That it does not takes `patience` to see."""
        with trio.move_on_after(self.patience):
            return (await self.run(self.command(scripts.ASK, *server, "hello"))).stdout == "hello\n"
        return False

    def fetching(self, url: str) -> list[str]:
        """The command line that asks for a URL."""
        return self.command(scripts.FETCH, url) if self.fetcher is None else [*self.fetcher, url]

    async def fetch(self, url: str) -> ProgramResult:
        """Ask for a URL from inside; a failure is a result, too."""
        argv = self.fetching(url)
        try:
            return await self.run(argv, timeout=self.patience)
        except TimeoutError as error:
            return ProgramResult(exit_code=-1, stderr=text(error))
