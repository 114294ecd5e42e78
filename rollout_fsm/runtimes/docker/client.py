"""The command line of Docker or Podman: one command after the other, its answer or what it complained of.

Each command is bounded, and ends with whoever waits for it. The invariant: what a command was told beside its options
is an argument of its own; no shell of this machine reads it.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping

import trio
from attrs import frozen

from rollout_fsm.errors import SandboxError

PATIENCE = 60.0
"""Seconds that an engine has for a command."""
LONGEST = 2000
"""Characters of a complaint."""


@frozen(kw_only=True)
class Said:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """What it answered, as text without its line's end."""
        return self.out.decode(errors="replace").strip()


@frozen
class Client:
    """A command line. `runtime` is the box that it is asked for, in messages."""

    runtime: str
    program: str
    """Its path."""
    address: Mapping[str, str]
    """Variables that tell it which engine."""

    @classmethod
    def find(cls, runtime: str, engine: str, address: Mapping[str, str]) -> "Client":
        """The command line of that name. Raises `SandboxError` where there is none."""
        program = shutil.which(engine)
        if program is None:
            raise SandboxError(
                f"runtime {runtime} needs the program {engine!r}, which is not in PATH: install Docker, or Podman with "
                f'engine="podman"; without either, BubblewrapRuntime isolates on Linux'
            )
        return cls(runtime, program, address)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its processes."""
        return {**os.environ, **self.address}

    async def attempt(self, *words: str, data: bytes = b"", patience: float = PATIENCE) -> Said:
        """Give a command. Raises `SandboxError` where the engine does not answer within `patience` seconds, or the
        program does not start."""
        with trio.move_on_after(patience):
            try:
                done = await trio.run_process(
                    [self.program, *words],
                    stdin=data,
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                    env=self.environment,
                )
            except OSError as error:
                raise SandboxError(f"runtime {self.runtime} could not run {self.program}: {error}") from error
            return Said(
                code=done.returncode, out=done.stdout, err=done.stderr.decode(errors="replace").strip()[-LONGEST:]
            )
        raise SandboxError(f"runtime {self.runtime}: {self.shown(*words)} did not answer within {patience:g} s")

    async def open(self, *words: str) -> trio.Process:
        """Give a command that goes on, over pipes. Raises `SandboxError` where the program does not start."""
        try:
            return await trio.lowlevel.open_process(
                [self.program, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment,
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"runtime {self.runtime} could not run {self.program}: {error}") from error

    async def ask(self, *words: str, data: bytes = b"", patience: float = PATIENCE) -> str:
        """Give a command that has to succeed; returns its answer. Raises `SandboxError` with what it complained of."""
        said = await self.attempt(*words, data=data, patience=patience)
        if said.code:
            raise self.complaint(said, *words)
        return said.text

    def complaint(self, said: Said, *words: str) -> SandboxError:
        """The error that a command's own complaint is."""
        return SandboxError(
            f"runtime {self.runtime}: {self.shown(*words)} failed: {said.err or f'exit status {said.code}'}"
        )

    def shown(self, *words: str) -> str:
        """A command for a message: its verb, without what may be secret in its arguments."""
        return f"{os.path.basename(self.program)} {words[0]}"
