"""How many instructions a rollout and a turn take: the figure that does not depend on the machine's mood.

Counted by `perf` where it may, else by valgrind's callgrind, which takes fifty times as long. Each work is done in two
sizes, and the difference divided, so that start and import are not in it. A count is compared to one that was kept in
`instructions.json` with the versions it was taken with; it is exact to a few in a thousand, and nothing fails by it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import frozen

from tests.benchmarks.sampling import SampleError, run
from tests.benchmarks.works import both

KEPT = Path(__file__).with_name("instructions.json")
CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
PERF = ("perf", "stat", "-x,", "-e", "instructions:u")


@frozen(kw_only=True)
class Difference:
    """Two sizes of a work."""

    about: str
    work: str
    sizes: tuple[int, int]
    further: tuple[int, ...] = ()
    also_there: bool = True
    """Whether it is counted on the peer's side, too: not what would take an hour."""

    def command(self, python: str, side: str, size: int) -> Sequence[str]:
        """The program that does so much of it."""
        return python, *both(self.work, size, *self.further)[side]


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
    kept: int | None
    peer: int | None

    @property
    def change(self) -> float | None:
        """In percent of what was kept."""
        return None if self.kept is None else (self.ours / self.kept - 1) * 100


def counter() -> tuple[str, ...] | None:
    """The tool that counts, before the command that it counts; None where there is none."""
    if shutil.which(PERF[0]):
        tried = subprocess.run([*PERF, "true"], capture_output=True, text=True)
        if tried.returncode == 0 and _told(tried.stderr) is not None:
            return PERF
    return CALLGRIND if shutil.which(CALLGRIND[0]) else None


def count(
    tool: Sequence[str],
    differences: Sequence[Difference],
    *,
    peer: str | None,
    kept: Mapping[str, int],
    progress: Callable[[str], None],
) -> Iterator[Counted]:
    """Count all, as many at once as there are cores: a count is the same on a busy machine. Raises `SampleError`."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def ask(difference: Difference, python: str, side: str) -> Callable[[], int]:
            ends = [
                pool.submit(_count, tool, difference.command(python, side, size), progress) for size in difference.sizes
            ]
            few, many = difference.sizes
            return lambda: round((ends[1].result() - ends[0].result()) / (many - few))

        asked = [
            (
                one.about,
                ask(one, sys.executable, "ours"),
                ask(one, peer, "peer") if peer is not None and one.also_there else None,
            )
            for one in differences
        ]
        for about, ours, theirs in asked:
            yield Counted(about=about, ours=ours(), kept=kept.get(about), peer=None if theirs is None else theirs())


def _count(tool: Sequence[str], command: Sequence[str], progress: Callable[[str], None]) -> int:
    progress(f"counting {' '.join(command[1:])}")
    told = _told(run([*tool, *command], PYTHONHASHSEED="0").stderr)
    if told is None:
        raise SampleError(f"{tool[0]} told no number of instructions")
    return told


def _told(stderr: str) -> int | None:
    found = re.search(r"^(\d+),,instructions:u|Collected : (\d+)", stderr, re.MULTILINE)
    return int(found[1] or found[2]) if found else None


@frozen(kw_only=True)
class Kept:
    """Counts as they were kept, with the tool and the versions."""

    tool: str
    versions: Mapping[str, str]
    figures: Mapping[str, int]

    @classmethod
    def read(cls) -> "Kept | None":
        """What was kept last; None if nothing was."""
        return cls(**json.loads(KEPT.read_text())) if KEPT.exists() else None

    def write(self) -> None:
        """Keep this instead."""
        KEPT.write_text(
            json.dumps({"tool": self.tool, "versions": dict(self.versions), "figures": dict(self.figures)}, indent=1)
            + "\n"
        )
