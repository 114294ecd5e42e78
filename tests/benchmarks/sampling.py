"""Taking samples: each in a process of its own, this side's and the peer's in turn, so that both meet one machine."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from attrs import define, field

from tests.benchmarks.works import ROOT, Measure, Work


class SampleError(Exception):
    """A sample came to nothing; its text says which, and why."""


@define(kw_only=True)
class Found:
    """What was found of one figure, run by run."""

    work: str
    about: str
    measure: Measure
    ours: list[float] = field(factory=list)
    peer: list[float] = field(factory=list)

    def add(self, ours: Mapping[str, float], theirs: Mapping[str, float]) -> None:
        """One more run; `theirs` is empty where there is no peer."""
        key = self.measure.key
        self.ours.append(ours[key])
        if theirs:
            self.peer.append(theirs[key])

    @property
    def here(self) -> float:
        """The median of this side."""
        return median(self.ours)

    @property
    def there(self) -> float | None:
        """The median of the peer's side."""
        return median(self.peer) if self.peer else None

    @property
    def ratio(self) -> float | None:
        """How many times better this side is; None where it cannot be said."""
        if self.there is None or min(self.here, self.there) <= 0:
            return None
        return self.here / self.there if self.measure.more_is_better else self.there / self.here


def take(
    given: Iterable[Work],
    *,
    peer: str | None,
    runs: int,
    progress: Callable[[str], None],
    failed: Callable[[str], None],
) -> Iterator[Found]:
    """Take all samples so many times; yields the figures of each once it is through, and tells of those that failed."""
    for work in given:
        for sample in work.samples:
            found = [Found(work=work.name, about=sample.about, measure=measure) for measure in sample.measures]
            try:
                for number in range(runs):
                    progress(f"{sample.about}: run {number + 1} of {runs}")
                    ours = figures(sys.executable, sample.ours)
                    theirs = {} if peer is None or sample.peer is None else figures(peer, sample.peer)
                    for one in found:
                        one.add(ours, theirs)
            except SampleError as error:
                failed(str(error))
            else:
                yield from found


def figures(python: str, arguments: Sequence[str]) -> Mapping[str, Any]:
    """What a sample prints. Raises `SampleError`."""
    found: dict[str, Any] = json.loads(run([python, *arguments]).stdout)
    return found


def run(command: Sequence[str], **variables: str) -> "subprocess.CompletedProcess[str]":
    """A program that came through, run in the project's folder. Raises `SampleError`."""
    try:
        done = subprocess.run(command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True)
    except OSError as error:
        raise SampleError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise SampleError(f"{shlex.join(command)} came to nothing (exit code {done.returncode}): {last}")
    return done
