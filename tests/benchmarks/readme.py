"""What the README shows of the figures: those that answer a mark, in a table that is made of what is kept."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from textwrap import fill

from attrs import evolve

from tests.benchmarks.instructions import COUNTED, DIFFERENCES, UNIT
from tests.benchmarks.results import Figure, Key, Run, newest, write
from tests.benchmarks.surroundings import in_words
from tests.benchmarks.tables import figures_table
from tests.benchmarks.works import ROOT, Measure, works

README = ROOT / "README.md"
BEGIN, END = "<!-- python -m tests.benchmarks --table -->\n", "\n<!-- end of the table -->"
WIDTH = 130
_PLACE = re.compile(f"(?<={re.escape(BEGIN)}).*(?={re.escape(END)})", re.DOTALL)


def table(runs: Iterable[Run]) -> str:
    """Where and when the newest figures were taken, those that answer a mark, and how many marks are reached."""
    found = newest(runs)
    measures = {
        (work.name, sample.about, measure.unit): measure
        for work in works(small=False)
        for sample in work.samples
        for measure in sample.measures
    }
    measures |= {(COUNTED, one.about, UNIT): Measure(UNIT, UNIT, shown=True) for one in DIFFERENCES}
    current = {key: evolve(found[key][1], mark=one.mark) for key, one in measures.items() if key in found}
    shown = list(_shown(measures, current))
    sources = _sources(found[figure.key] for figure in shown)
    return "\n\n".join((*sources, figures_table(shown, peer=True), _reached(measures, current)))


def _shown(measures: Mapping[Key, Measure], found: Mapping[Key, Figure]) -> Iterator[Figure]:
    """Each figure that is to be shown; of a group, only the one that compares worst."""
    groups: dict[object, list[Figure]] = defaultdict(list)
    for key, measure in measures.items():
        if key in found and (measure.shown or measure.mark is not None):
            groups[measure.group or key].append(found[key])
    for figures in groups.values():
        yield min(figures, key=lambda one: float("inf") if one.times_better is None else one.times_better)


def _sources(found: Iterable[tuple[Run, Figure]]) -> Iterator[str]:
    """A paragraph for each day and surroundings, which names its works where there are several."""
    works_of: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for run, figure in found:
        works_of[run.date[:10], _surroundings(run)][figure.work] = None
    for (date, surroundings), names in works_of.items():
        these = "" if len(works_of) == 1 else f" ({', '.join(names)})"
        yield fill(f"{date}{these}: {surroundings}", WIDTH, break_on_hyphens=False)


def _surroundings(run: Run) -> str:
    peer = "" if run.peer is None else f" Peer: {in_words(run.peer)}."
    taken = "One run" if run.runs == 1 else f"Medians of {run.runs} runs"
    return (
        f"{taken} on {run.machine['cpu']}, {run.machine['cores']} cores, {run.machine['os']}. "
        f"Here: {in_words(run.versions)}.{peer}"
    )


def _reached(measures: Mapping[Key, Measure], found: Mapping[Key, Figure]) -> str:
    """How many marks are."""
    marked = [found.get(key) for key, measure in measures.items() if measure.mark is not None]
    told = [None if figure is None else figure.reached for figure in marked]
    missing = f", {told.count(None)} are not measured" if None in told else ""
    return f"Of {len(told)} figures with a mark, {told.count(True)} reach it, {told.count(False)} do not{missing}."


def put(runs: Iterable[Run]) -> None:
    """Put the table into the README, in the place of the one that is there."""
    text, number = _PLACE.subn(lambda _: table(runs), README.read_text(encoding="utf-8"))
    assert number == 1, "the README has one place for the table"
    write(README, text)
