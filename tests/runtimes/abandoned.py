"""A program that makes a box, starts things in it, says its lease and what it started, and waits to be killed."""

import json
import os
import sys
import tempfile

import trio

from rollout_fsm.runtimes import LocalRuntime


async def main() -> None:
    runtime = LocalRuntime("abandoned", cap=100, grace=0.2)
    await runtime.start()
    await runtime.write("answer", "42")
    script = "mkfifo up; sleep 1000 & (setsid sh -c 'trap : TERM; echo $$ > up; while :; do sleep 1000; done' &) ; "
    server = await runtime.run(["sh", "-c", script + "cat up; echo $!"])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run, ["sh", "-c", "echo $$ > up; while :; do sleep 1000; done"])
        running = await runtime.run(["cat", "up"])
        pids = [int(pid) for pid in (server.stdout + running.stdout).split()]
        os.write(1, json.dumps([runtime.lease, pids]).encode() + b"\n")
        await trio.sleep_forever()


if __name__ == "__main__":
    tempfile.tempdir = sys.argv[1]
    trio.run(main)
