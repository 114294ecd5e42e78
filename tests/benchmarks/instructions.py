"""How many instructions a rollout and a turn take: the figure that does not depend on how busy the machine is.

Counted by `perf` where it may, else by valgrind's callgrind, which takes fifty times as long. Each work is done in two
sizes, and the difference divided, so that start and import are not in it. A count is compared to one that was kept with
its versions; it is exact to a few in a thousand, and nothing fails by it.
"""

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeAlias

from attrs import frozen

from tests.benchmarks.results import Figure
from tests.benchmarks.sampling import SampleError, run
from tests.benchmarks.works import both

COUNTED = UNIT = "instructions"
CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
PERF = ("perf", "stat", "-x,", "-e", "instructions:u")

Side: TypeAlias = Literal["ours", "peer"]


@frozen(kw_only=True)
class Difference:
    """Two sizes of a work."""

    about: str
    work: str
    sizes: tuple[int, int]
    further: tuple[int, ...] = ()
    also_there: bool = True
    """Whether it is counted on the peer's side, too: not what would take an hour."""

    def program(self, side: Side, size: int) -> Sequence[str]:
        """What follows the interpreter, to do so much of it."""
        return both(self.work, size, *self.further)[side]


DIFFERENCES = (
    Difference(about="a rollout, one after another", work="rollouts", sizes=(20, 120), further=(1,)),
    Difference(about="a rollout, 100 at once", work="rollouts", sizes=(100, 200), further=(100,)),
    Difference(about="a turn, the 101st to the 200th", work="turns", sizes=(100, 200)),
    Difference(about="a turn, the 901st to the 1,000th", work="turns", sizes=(900, 1000), also_there=False),
)
SMALL = (Difference(about="a turn, the 1st and the 2nd", work="turns", sizes=(1, 2)),)


@frozen(kw_only=True)
class Counted:
    """How many instructions one rollout or turn takes, and took when that was last kept."""

    about: str
    ours: int
    kept: float | None
    peer: int | None

    @property
    def change(self) -> float | None:
        """In percent of what was kept."""
        return None if self.kept is None else (self.ours / self.kept - 1) * 100

    @property
    def ratio(self) -> float | None:
        """How many times fewer they are here."""
        return None if self.peer is None else self.peer / self.ours

    def figure(self) -> Figure:
        """As it is kept."""
        return Figure(
            work=COUNTED,
            about=self.about,
            unit=UNIT,
            here=self.ours,
            peer=self.peer,
            times_better=self.ratio,
            mark=None,
            samples={"here": [self.ours], "peer": [] if self.peer is None else [self.peer]},
        )


def counter() -> tuple[str, ...] | None:
    """The tool that counts, before the command that it counts; None where there is none."""
    if shutil.which(PERF[0]):
        tried = subprocess.run([*PERF, "true"], capture_output=True, text=True)
        if tried.returncode == 0 and _told(tried.stderr) is not None:
            return PERF
    return CALLGRIND if shutil.which(CALLGRIND[0]) else None


def version_of(tool: Sequence[str]) -> Mapping[str, str]:
    """The version of a tool, by its name."""
    told = subprocess.run([tool[0], "--version"], capture_output=True, text=True).stdout
    return {tool[0]: re.split(r"[\s-]", told.strip())[-1]}


def count(
    tool: Sequence[str],
    differences: Sequence[Difference],
    *,
    peer: str | None,
    kept: Mapping[str, float],
    progress: Callable[[str], None],
) -> Iterator[Counted]:
    """Count all, as many at once as there are cores: a count is the same on a busy machine. Raises `SampleError`."""
    total = sum(2 if peer is None or not one.also_there else 4 for one in differences)
    numbers = itertools.count(1)

    def begun(command: str) -> None:
        progress(f"count {next(numbers)} of {total}: {command}")

    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def ask(difference: Difference, python: str, side: Side) -> Callable[[], int]:
            few, many = (
                pool.submit(_count, tool, python, difference.program(side, size), begun) for size in difference.sizes
            )
            size = difference.sizes[1] - difference.sizes[0]
            return lambda: round((many.result() - few.result()) / size)

        asked = [
            (
                one.about,
                ask(one, sys.executable, "ours"),
                ask(one, peer, "peer") if peer is not None and one.also_there else None,
            )
            for one in differences
        ]
        try:
            for about, ours, theirs in asked:
                yield Counted(about=about, ours=ours(), kept=kept.get(about), peer=None if theirs is None else theirs())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # after a failure or Ctrl-C, begin no further one


def _count(tool: Sequence[str], python: str, program: Sequence[str], begun: Callable[[str], None]) -> int:
    begun(shlex.join((python, *program)))
    told = _told(run(python, program, under=tool, PYTHONHASHSEED="0").stderr)
    if told is None:
        raise SampleError(f"{tool[0]} told no number of instructions")
    return told


def _told(stderr: str) -> int | None:
    found = re.search(r"^(\d+),,instructions:u|Collected : (\d+)", stderr, re.MULTILINE)
    return int(found[1] or found[2]) if found else None
