"""What is measured: the works, the samples of each, and the figures that a sample yields.

A sample is one process that does the work once and prints one JSON object of figures, in this interpreter or in the
peer's. A mark, called a target in what is printed, says how many times better than the peer's a figure is to be.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import TypedDict

from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
HERE = Path("tests", "benchmarks")

EMBEDDERS = (
    "open_engine",
    "Task",
    "Trace",
    "Harness",
    "HarnessSession",
    "Model",
    "Runtime",
    "Request",
    "Response",
    "AssistantMessage",
    "UserMessage",
    "RolloutLimits",
    "RolloutTimeouts",
    "reward",
    "metric",
)
"""The names that a program imports which brings its own task, harness, model and runtime."""


@frozen
class Measure:
    """One figure of a sample."""

    key: str
    """Its name in what the sample prints."""
    unit: str
    mark: float | None = None
    """How many times better than the peer's it is to be."""
    shown: bool = False
    """The README shows it, as it does those with a mark."""
    group: str | None = None
    """Of those with the same word here, the README shows the one that compares worst."""

    @property
    def more_is_better(self) -> bool:
        """Whether it is a rate; all others are costs."""
        return more_is_better(self.unit)


def more_is_better(unit: str) -> bool:
    """Whether what has this unit is a rate; all others are costs."""
    return unit.endswith("/s")


@frozen(kw_only=True)
class Sample:
    """A process that does the work once, on this side and, unless there is nothing like it, on the peer's."""

    about: str
    ours: tuple[str, ...]
    """What follows the interpreter."""
    peer: tuple[str, ...] | None
    measures: tuple[Measure, ...]
    warmed: bool = False
    """Whether each side does it once before, uncounted: bytecode is then written, and files are in memory."""


@frozen(kw_only=True)
class Work:
    """Samples of one kind."""

    name: str
    samples: tuple[Sample, ...]


def works(*, small: bool) -> Sequence[Work]:
    """All works. `small`: as little of each as shows that it runs; the figures then say nothing."""
    return (
        Work(name="rollouts", samples=tuple(_rollouts(small))),
        Work(name="turns", samples=tuple(_turns(small))),
        Work(name="memory", samples=tuple(_memory(small))),
        Work(name="cancelling", samples=tuple(_cancelling(small))),
        Work(name="gateway", samples=tuple(_gateway(small))),
        Work(name="import", samples=tuple(_import())),
        Work(name="simulation", samples=tuple(_simulation(small))),
    )


class Sides(TypedDict):
    """What follows the interpreter, on either side."""

    ours: tuple[str, ...]
    peer: tuple[str, ...]


def both(work: str, *numbers: int) -> Sides:
    """How the same work is done on either side."""
    arguments = work, *map(str, numbers)
    return {"ours": ("-m", "tests.benchmarks.ours", *arguments), "peer": (str(HERE / "peer.py"), *arguments)}


def _rollouts(small: bool) -> Iterable[Sample]:
    number = 4 if small else 1000
    for at_once, about in ((1, "one after another"), (2 if small else 100, "100 at once")):
        yield Sample(
            about=f"whole rollouts, {about}",
            **both("rollouts", number, at_once),
            measures=(Measure("rate", "rollouts/s", mark=2), Measure("cpu_us", "µs of CPU each")),
        )


def _turns(small: bool) -> Iterable[Sample]:
    for number in (10, 100, 500, 1000, 2000):
        yield Sample(
            about=f"a rollout of {number:,} turns",
            **both("turns", number // 10 if small else number),
            measures=(
                Measure("total_s", "s", mark=50 if number == 2000 else None),
                Measure("total_cpu_s", "s of CPU"),
                Measure("last_us", "µs the last turn"),
                Measure("last_cpu_us", "µs of CPU the last turn", shown=number != 500),
            ),
        )


def _memory(small: bool) -> Iterable[Sample]:
    for number in (1000, 10_000):
        yield Sample(
            about=f"{number:,} open idle rollouts",
            **both("memory", number // 100 if small else number),
            measures=(Measure("kib", "KiB each", mark=2),),
        )


def _cancelling(small: bool) -> Iterable[Sample]:
    yield Sample(
        about="cancelling 1,000 in flight",
        **both("cancelling", 10 if small else 1000),
        measures=(Measure("ms", "ms", mark=0.5), Measure("cpu_ms", "ms of CPU")),
    )


def _gateway(small: bool) -> Iterable[Sample]:
    few = ("--calls", "4", "--turns", "2", "--pieces", "2") if small else ()
    for way, kilobytes, connections in product(("plain", "streaming"), (1, 100), (1, 64)):
        at_once = min(connections, 2) if small else connections
        arguments = "--ways", way, "--kilobytes", str(kilobytes), "--connections", str(at_once), *few
        case = f"gateway/{_connections(at_once)}/{kilobytes} kB/{way}"
        yield Sample(
            about=f"gateway, {_connections(connections)}, {kilobytes} kB, {way}",
            ours=("-m", "tests.benchmarks.gateway", *arguments),
            peer=(str(HERE / "peer_gateway.py"), *arguments),
            measures=(
                Measure(
                    f"{case}/calls_per_second",
                    "calls/s",
                    mark=1.5 if connections == 1 else 3.5,
                    group=f"calls/s, {connections}",
                ),
                Measure(f"{case}/cpu_ms_per_call", "ms of CPU a call"),
                Measure(f"{case}/added_p50_ms", "ms added, p50"),
                Measure(f"{case}/added_p99_ms", "ms added, p99"),
                Measure(f"{case}/p99_ms", "ms, p99", mark=None if connections == 1 else 10, group="p99"),
                Measure(f"{case}/failed_calls", "calls that failed"),
            ),
        )


def _connections(number: int) -> str:
    return "1 connection" if number == 1 else f"{number} connections"


def _import() -> Iterable[Sample]:
    program = str(HERE / "importing.py")
    for about, names in (("import rollout_fsm", ()), ("from rollout_fsm import …", EMBEDDERS)):
        yield Sample(
            about=about,
            ours=(program, "rollout_fsm", *names),
            peer=(program, "verifiers.v1"),
            measures=(
                Measure("ms", "ms", mark=10),
                Measure("cpu_ms", "ms of CPU"),
                Measure("mib", "MiB", mark=4),
            ),
            warmed=True,
        )


def _simulation(small: bool) -> Iterable[Sample]:
    yield Sample(
        about="simulated rollouts",
        ours=both("simulation", 2 if small else 200)["ours"],
        peer=None,
        measures=(Measure("rate", "rollouts/s", shown=True), Measure("cpu_us", "µs of CPU each")),
    )
