"""What a rollout costs in memory that waits in `run_all`, and one that runs; on trio, and inside asyncio.

`python -m tests.benchmarks.waiting [ROLLOUTS]`: 10,000 unless said otherwise, and a tenth of them for those that run.
Each number is measured in a process of its own, twice: as what Python's objects take (`tracemalloc`), and as what the
process takes (RSS). The tasks are made before, so they are not in it; the boxes are nowhere, so it is the engine's.
"""

import asyncio
import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import trio
from attrs import define

from rollout_fsm import (
    AssistantMessage,
    ChatHarness,
    Model,
    Request,
    Response,
    Sampling,
    Task,
    Usage,
    aio,
    open_engine,
)
from tests.benchmarks.metering import resident
from tests.benchmarks.scripted import Nowhere

BEFORE = 4
"""How many rollouts run while the others wait."""
ROOT = Path(__file__).resolve().parents[2]
MOST = 12
"""How many of the places are shown that hold most."""


@define(eq=False)
class Held(Model):
    """Answers nobody until it is let go, and tells when as many ask as are to."""

    awaited: int
    full: trio.Event | asyncio.Event
    released: trio.Event | asyncio.Event
    name: str = "held"

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        self.awaited -= 1
        if not self.awaited:
            self.full.set()
        await self.released.wait()
        return Response(message=AssistantMessage("yes"), usage=Usage(prompt_tokens=1, completion_tokens=1))


@define
class Scales:
    """Weighs what was made since it was set to nothing."""

    traced: bool
    _before: int = 0
    _snapshot: tracemalloc.Snapshot | None = None

    def zero(self) -> None:
        gc.collect()
        if self.traced:
            tracemalloc.start(1)
            self._snapshot = tracemalloc.take_snapshot()
        else:
            self._before = resident()

    def weigh(self, number: int) -> Iterator[str]:
        """Bytes for each of so many, and where they are."""
        gc.collect()
        if self._snapshot is None:
            yield f"{(resident() - self._before) / number:,.0f}"
            return
        found = tracemalloc.take_snapshot().compare_to(self._snapshot, "lineno")
        yield f"{sum(line.size_diff for line in found) / number:,.0f}"
        for line in found[:MOST]:
            frame = line.traceback[0]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            yield f"{line.size_diff / number:9,.0f} B {line.count_diff / number:6.1f} objects  {place}"


Settings: TypeAlias = dict[str, Any]


def settings(model: Model, running: int | None) -> Settings:
    return {"harness": ChatHarness(), "model": model, "runtime": Nowhere, "max_concurrent": running}


async def on_trio(tasks: Sequence[Task], running: int | None, scales: Scales) -> list[str]:
    model = Held(running or len(tasks), trio.Event(), trio.Event())
    async with open_engine(gateway=False) as engine:
        scales.zero()
        async with engine.run_all(tasks, **settings(model, running)):
            await model.full.wait()
            return list(scales.weigh(len(tasks)))


async def on_asyncio(tasks: Sequence[Task], running: int | None, scales: Scales) -> list[str]:
    model = Held(running or len(tasks), asyncio.Event(), asyncio.Event())
    async with aio.open_engine(gateway=False) as engine:
        scales.zero()
        async with engine.run_all(tasks, **settings(model, running)):
            await model.full.wait()
            return list(scales.weigh(len(tasks)))


HOSTS: dict[str, Callable[[Sequence[Task], int | None, Scales], list[str]]] = {
    "trio": partial(trio.run, on_trio),
    "asyncio": lambda *args: asyncio.run(on_asyncio(*args)),
}


def measure(host: str, kind: str, number: int, how: str) -> None:
    """One measurement, said on standard output."""
    tasks = [Task(prompt=f"number {place}") for place in range(number)]
    for task in tasks:
        assert task.hash
    said = HOSTS[host](tasks, BEFORE if kind == "waiting" else None, Scales(traced=how == "traced"))
    sys.stdout.writelines(f"{line}\n" for line in said)


def main(arguments: Sequence[str]) -> None:
    """The command."""
    if len(arguments) > 1:
        host, kind, number, how = arguments
        measure(host, kind, int(number), how)
        return
    number = int(arguments[0]) if arguments else 10_000
    for kind, many in (("waiting", number), ("running", number // 10)):
        for host in HOSTS:
            command = [sys.executable, "-m", "tests.benchmarks.waiting", host, kind, str(many)]
            (traced, *places), (taken,) = (
                subprocess.run([*command, how], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
                .stdout.strip()
                .split("\n")
                for how in ("traced", "taken")
            )
            say(f"{kind} on {host}, {many:,} rollouts: {traced} B each by tracemalloc, {taken} B by RSS")
            if host == "trio":
                sys.stdout.writelines(f"    {place}\n" for place in places)


def say(line: str) -> None:
    """A line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
