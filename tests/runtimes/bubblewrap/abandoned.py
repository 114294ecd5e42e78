"""A program that makes a box, starts things in it, says its lease, and waits to be killed."""

import json
import os
import sys
import tempfile

import trio

from rollout_fsm.runtimes.bubblewrap import BubblewrapRuntime

LEAVES = {
    "nothing": "true",
    "a server": "sleep $0 & setsid sleep $0 & :",
    "what would not die": "trap '' TERM HUP; mkfifo up; (trap '' TERM; echo > up; while :; do sleep $0; done) & cat up",
    "an unreadable mess": "mkdir -p a/b; touch a/b/c; chmod 0 a/b a; chmod 0 .",
}


async def main(tag: str, left: str) -> None:
    boxes = [BubblewrapRuntime(name, cap=100, grace=0.1) for name in ("abandoned", "another")]
    async with trio.open_nursery() as nursery:
        for runtime in boxes:
            await runtime.start()
            await runtime.write("answer", "42")
            await runtime.write("/tmp/answer", "43")
            await runtime.prepare_execution([])
            await runtime.run(["sh", "-c", LEAVES.get(left, "true"), tag])
            if left == "a program that runs":
                nursery.start_soon(runtime.run, ["sh", "-c", "echo up > up; exec sleep $0", tag])
                while b"up" not in await read(runtime, "up"):
                    await trio.lowlevel.checkpoint()
        os.write(1, json.dumps([runtime.lease for runtime in boxes]).encode() + b"\n")
        await trio.sleep_forever()


async def read(runtime: BubblewrapRuntime, path: str) -> bytes:
    """The content of a file; empty where there is none."""
    try:
        return await runtime.read(path)
    except FileNotFoundError:
        return b""


if __name__ == "__main__":
    tempfile.tempdir = sys.argv[1]
    trio.run(main, *sys.argv[2:])
