"""The stand-in's place, and boxes in it that are always stopped."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from rollout_fsm.runtimes.docker import DockerRuntime

STAND_IN = Path(__file__).with_name("stand_in.sh")


@frozen
class Stand:
    """Where a stand-in keeps what it has."""

    place: Path

    @property
    def home(self) -> Path:
        return self.place / "containers"

    @property
    def bin(self) -> Path:
        return self.place / "bin"

    @property
    def workspace(self) -> Path:
        return self.place / "workspace"

    def install(self, name: str) -> None:
        """Make it a program of that name."""
        self.bin.mkdir(exist_ok=True)
        program = self.bin / name
        program.write_text(STAND_IN.read_text())
        program.chmod(0o755)
        if not (self.bin / "python3").exists():
            os.symlink(sys.executable, self.bin / "python3")

    def pulled(self, image: str) -> None:
        """Have an image."""
        (self.home / f"image {image.replace('/', '_')}").touch()

    def commands(self) -> list[str]:
        """The verbs that it was given."""
        return (self.home / "log").read_text().split()

    def containers(self) -> list[str]:
        """The names of the containers that there are."""
        return [found.parent.name for found in self.home.glob("*/id")]

    def of_the_container(self, what: str) -> list[str]:
        """What is known of the only one."""
        (name,) = self.containers()
        return (self.home / name / what).read_text().splitlines()


@asynccontextmanager
async def container(
    stand: Stand, name: str = "box", *, grace: float = 0.5, **options: Any
) -> AsyncIterator[DockerRuntime]:
    """A started runtime, stopped in the end."""
    runtime = DockerRuntime(name, workspace=str(stand.workspace), grace=grace, **options)
    try:
        await runtime.start()
        yield runtime
    finally:
        await runtime.stop()
