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

from tests.benchmarks.results import Figure
from tests.benchmarks.works import ROOT, Measure, Sample, Work

LEFT_TO_THE_USER = ("PYTHONHOME", "PYTHONPYCACHEPREFIX")
"""Of the variables that change what an interpreter does: those that change nothing about what its work costs."""


class SampleError(Exception):
    """A sample failed; its text says which, and why."""


class NotStartedError(SampleError):
    """There is no program of this name that can be run."""


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

    def figure(self) -> Figure:
        """As it is kept."""
        return Figure(
            work=self.work,
            about=self.about,
            unit=self.measure.unit,
            here=self.here,
            peer=self.there,
            times_better=self.ratio,
            mark=self.measure.mark,
            samples={"here": self.ours, "peer": self.peer},
        )


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
                if sample.warmed:
                    progress(f"{sample.about}: once before, not counted")
                    _once(sample, peer)
                for number in range(runs):
                    progress(f"{sample.about}: run {number + 1} of {runs}")
                    ours, theirs = _once(sample, peer)
                    for one in found:
                        one.add(ours, theirs)
            except SampleError as error:
                failed(str(error))
            else:
                yield from found


def _once(sample: Sample, peer: str | None) -> tuple[Mapping[str, float], Mapping[str, float]]:
    keys = [measure.key for measure in sample.measures]
    ours = figures(sys.executable, sample.ours, keys)
    return ours, {} if peer is None or sample.peer is None else figures(peer, sample.peer, keys)


def figures(python: str, arguments: Sequence[str], keys: Iterable[str] = ()) -> Mapping[str, Any]:
    """What a sample prints: one JSON object that has these keys. Raises `SampleError`."""
    told = run(python, arguments).stdout
    try:
        found = json.loads(told)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found.keys() >= set(keys):
        raise SampleError(f"{shlex.join((python, *arguments))} printed no figures: {told[:80]!r}")
    return found


def run(
    python: str, arguments: Sequence[str], *, under: Sequence[str] = (), **variables: str
) -> "subprocess.CompletedProcess[str]":
    """A program that came through, run in the project's folder, by a tool if one is named. Raises `SampleError`."""
    command = [*under, python, *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(python) | variables, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        raise NotStartedError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise SampleError(f"{shlex.join(command)} failed (exit code {done.returncode}): {last}")
    return done


def environment(python: str) -> dict[str, str]:
    """What both sides run with: nothing that makes Python write no bytecode, check more or less, or find other modules.

    Only this side finds this checkout, whatever is installed.
    """
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON") or name in LEFT_TO_THE_USER
    }
    if python == sys.executable:
        path = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
        kept["PYTHONPATH"] = os.pathsep.join(path)
    return kept
