"""What a gateway costs that carries agents' calls to a canned upstream, whoever's gateway it is.

Three processes: the upstream, the agents, and the gateway, in which this is called (from a thread: it waits, and costs
next to nothing). The agents ask the upstream itself, too, so that what is left of a call's time is the gateway's. Both
sides are given the same shape: each connection is one agent with rollouts one after the other, each with a slot and a
secret of its own, and in a rollout so many turns that send the whole conversation again. Standard library only.
"""

import json
import resource
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __package__:
    from tests.benchmarks.load import Load
else:
    from load import Load  # type: ignore[import-not-found, no-redef]

HERE = Path(__file__).resolve().parent
WAYS = ("plain", "streaming")


@dataclass(frozen=True)
class Case:
    """One load. `rollouts` is how many each agent has one after the other, the first one to warm up."""

    connections: int
    kilobytes: int
    way: str
    turns: int
    rollouts: int
    pieces: int

    @property
    def name(self) -> str:
        """What its figures are called."""
        many = "connection" if self.connections == 1 else "connections"
        return f"gateway/{self.connections} {many}/{self.kilobytes} kB/{self.way}"


def cases(arguments: Sequence[str], description: str | None) -> list[Case]:
    """What the command line asks for."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--kilobytes", type=int, nargs="+", default=[1, 100], help="that a conversation begins with")
    parser.add_argument("--ways", choices=WAYS, nargs="+", default=list(WAYS))
    parser.add_argument("--calls", type=int, default=640, help="that are measured in each case, or a few more")
    parser.add_argument("--turns", type=int, default=10, help="of a rollout")
    parser.add_argument("--pieces", type=int, default=20, help="of text in a streamed answer")
    given = parser.parse_args(arguments)
    return [
        Case(
            connections=connections,
            kilobytes=kilobytes,
            way=way,
            turns=given.turns,
            rollouts=1 + -(-given.calls // (connections * given.turns)),
            pieces=given.pieces if way == "streaming" else 0,
        )
        for way in given.ways
        for kilobytes in given.kilobytes
        for connections in given.connections
    ]


@contextmanager
def upstream(pieces: int) -> Iterator[str]:
    """A canned upstream in a process of its own, by its base URL."""
    with _process("upstream.py", str(pieces)) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"


def measured(case: Case, url: str, gateway: str, secrets: Sequence[str]) -> dict[str, float]:
    """Put the case's load on the upstream itself, and on the gateway before it; the gateway is in this process.

    `secrets` has one for each rollout of each connection.
    """
    each = case.rollouts
    given = [list(secrets[start : start + each]) for start in range(0, len(secrets), each)]
    assert len(given) == case.connections
    with _process("load.py") as process:
        direct, _ = _loaded(process, case, url, given)
        through, spent = _loaded(process, case, gateway, given)
    return {
        f"{case.name}/calls_per_second": through["calls"] / through["seconds"],
        f"{case.name}/cpu_ms_per_call": spent / through["calls"] * 1e3,
        f"{case.name}/added_p50_ms": (through["p50"] - direct["p50"]) * 1e3,
        f"{case.name}/added_p99_ms": (through["p99"] - direct["p99"]) * 1e3,
        f"{case.name}/p99_ms": through["p99"] * 1e3,
        f"{case.name}/failed_calls": through["failed"],
        f"{case.name}/direct_calls_per_second": direct["calls"] / direct["seconds"],
    }


def _loaded(
    process: "subprocess.Popen[str]", case: Case, url: str, secrets: list[list[str]]
) -> tuple[dict[str, float], float]:
    """What came of a load, and the seconds of processor that this process spent on it."""
    address, _, path = url.removeprefix("http://").partition("/")
    load = Load(
        port=int(address.rpartition(":")[2]),
        path=f"/{path}",
        secrets=secrets,
        size=case.kilobytes * 1000,
        turns=case.turns,
        streaming=case.way == "streaming",
    )
    assert process.stdin is not None
    process.stdin.write(f"{json.dumps(asdict(load))}\n")
    process.stdin.flush()
    _said(process)
    before = _spent()
    process.stdin.write("\n")
    process.stdin.flush()
    found: dict[str, float] = _said(process)
    return found, _spent() - before


def _said(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the load broke off")
    return json.loads(line)


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def _process(program: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A program of this folder; it ends with its standard input."""
    command = [sys.executable, str(HERE / program), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


def say(figures: dict[str, float]) -> None:
    """Print the figures as one JSON object."""
    sys.stdout.write(f"{json.dumps({name: round(value, 4) for name, value in figures.items()}, indent=1)}\n")
