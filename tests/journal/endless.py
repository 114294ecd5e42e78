"""A program that records for ever, from several tasks, and says what is durable."""

import os
import sys
from pathlib import Path

import trio

from tests.journal.journals import begin, moved, running, trace


async def record(path: Path) -> None:
    async with running(path) as journal, trio.open_nursery() as nursery:

        async def rollouts(task: int) -> None:
            index = 0
            while True:
                name = f"{task}-{index}"
                entry = begin(journal, name, index=index)
                entry.acquiring("runtime", name, "mine:Box", {"task": task})
                entry.transition(moved("booting"))
                await entry.durable()
                os.write(1, f"acquiring {name}\n".encode())
                entry.snapshot(trace(name, state="releasing", text="x" * 5_000))
                entry.transition(moved("releasing", source="booting"))
                await entry.durable()
                os.write(1, f"scored {name}\n".encode())
                index += 1

        for task in range(4):
            nursery.start_soon(rollouts, task)


if __name__ == "__main__":
    trio.run(record, Path(sys.argv[1]))
