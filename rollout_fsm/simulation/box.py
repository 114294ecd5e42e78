"""The scripted runtime: a box that starts and stops as the scenario says, holds files in memory and runs no programs.

The scripted harness does not need it to run anything. What it knows of the harness's processes is what can be killed:
those that a segment left behind, and whether a running one would die.
"""

from collections.abc import Mapping, Sequence

import trio
from attrs import define, field

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtime import ProgramResult, Runtime
from rollout_fsm.simulation.stage import Stage


@define(eq=False)
class Process:
    """A process that a segment left behind."""

    unkillable: bool
    scope: trio.CancelScope = field(factory=trio.CancelScope)


class ScriptedRuntime(Runtime):
    """The box of a scenario."""

    def __init__(self, name: str, stage: Stage) -> None:
        self.name = name
        self.files: dict[str, bytes] = {}
        self.unkillable = False
        """Whether the program that runs survives being killed."""
        self._stage = stage
        self._stopped = False
        self._left_behind: list[Process] = []

    @property
    def stopped(self) -> bool:
        """Whether the box was stopped, by the rollout that owns it or by its owner."""
        return self._stopped

    async def start(self) -> None:
        """Start, as the scenario says."""
        await self._stage.play(self._stage.scenario.runtime.start, "runtime.start", "boot")

    async def stop(self) -> None:
        """Stop, as the scenario says."""
        self.go_down()
        await self._stage.play(self._stage.scenario.runtime.stop, "runtime.stop", "runtime_stop")

    def go_down(self) -> None:
        """Be stopped, with every process in it; what the owner of a borrowed box does is no call of the rollout's."""
        self._stopped = True
        self._end(self._left_behind)

    def leave_behind(self, *, unkillable: bool) -> Process:
        """A process that outlives the program which started it."""
        process = Process(unkillable)
        self._left_behind.append(process)
        if self._stopped:
            process.scope.cancel()
        return process

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        """There are no programs in a simulated box."""
        raise SandboxError(f"a simulated runtime runs no programs, so {list(argv)!r} cannot be run")

    async def alive(self) -> bool:
        """Whether the box answers, as the scenario says."""
        return self._stage.scenario.runtime.alive

    async def kill(self) -> bool:
        """End what can be ended; the program itself is interrupted by the engine."""
        self._end([process for process in self._left_behind if not process.unkillable])
        return not self.unkillable

    async def read(self, path: str) -> bytes:
        """A file that was written before."""
        if path not in self.files:
            raise FileNotFoundError(f"the simulated runtime has no file {path!r}")
        return self.files[path]

    async def write(self, path: str, data: bytes | str) -> None:
        """Keep a file in memory."""
        self.files[path] = data.encode() if isinstance(data, str) else data

    def _end(self, processes: list[Process]) -> None:
        for process in processes:
            process.scope.cancel()
        self._left_behind = [process for process in self._left_behind if process not in processes]
