"""What the README shows of the figures: those that answer a target, in a table that is made of what is kept."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill

from attrs import evolve

from tests.benchmarks.instructions import COUNTED, DIFFERENCES, UNIT
from tests.benchmarks.options import RUNS
from tests.benchmarks.results import Figure, Key, Run, newest, write
from tests.benchmarks.surroundings import in_words
from tests.benchmarks.tables import figures_table
from tests.benchmarks.works import ROOT, Measure, works

README = ROOT / "README.md"
BEGIN, END = "<!-- python -m tests.benchmarks --table -->\n", "\n<!-- end of the table -->"
WIDTH = 130
FEW = " ¹"
"""After what was measured in few runs. A count is as good once."""
_PLACE = re.compile(f"(?<={re.escape(BEGIN)}).*(?={re.escape(END)})", re.DOTALL)


def table(runs: Iterable[Run]) -> str:
    """The newest figures that answer a target; below them what is to be known of them, and how many are reached."""
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
    sources = [found[one.key] for one in shown]
    few = [run.runs < RUNS and one.unit != UNIT for run, one in sources]
    rows = [evolve(one, about=f"{one.about}{FEW}") if mark else one for one, mark in zip(shown, few, strict=True)]
    told = [one.reached for one in shown if one.mark is not None]
    asked = [current.get(key) for key, measure in measures.items() if measure.mark is not None]
    return "\n\n".join(
        (
            figures_table(rows, peer=True),
            f"↑ higher is better, ↓ lower is better.{f'{FEW} Fewer than {RUNS} runs.' if any(few) else ''}",
            _filled(_reached(told, [None if one is None else one.reached for one in asked])),
            "\n".join(_filled(line, "- ", "  ") for line in _sources(sources)),
        )
    )


def _shown(measures: Mapping[Key, Measure], found: Mapping[Key, Figure]) -> Iterator[Figure]:
    """Each figure that is to be shown; of a group, only the one that compares worst."""
    groups: dict[object, list[Figure]] = defaultdict(list)
    for key, measure in measures.items():
        if key in found and (measure.shown or measure.mark is not None):
            groups[measure.group or key].append(found[key])
    for figures in groups.values():
        yield min(figures, key=lambda one: float("inf") if one.times_better is None else one.times_better)


def _reached(shown: Sequence[bool | None], asked: Sequence[bool | None]) -> str:
    """How many targets are, of those in the table and then, if there are more, of all."""
    told = f"Of the {len(shown)} {'target' if len(shown) == 1 else 'targets'} in the table {_counts(shown)}."
    if len(asked) == len(shown):
        return told
    hidden = len(asked) - asked.count(None) > len(shown) - shown.count(None)
    loads = ", with the gateway's loads that are not shown," if hidden else ""
    return f"{told} Of all {len(asked)}{loads} {_counts(asked)}."


def _counts(told: Sequence[bool | None]) -> str:
    reached, missed, missing = map(told.count, (True, False, None))
    is_not = f"{reached} {_is(reached)} reached, {missed} {_is(missed)} not"
    return f"{is_not}, {missing} {_is(missing)} not measured" if missing else is_not


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _sources(found: Iterable[tuple[Run, Figure]]) -> Iterator[str]:
    """Which works were measured when and how often; then where and with which versions the newest of them were.

    Where that was different for a work, it stands beside it.
    """
    found = list(found)
    runs = [run for run, _ in sorted(found, key=lambda one: one[0].date, reverse=True)]
    common: dict[str, dict[str, object]] = {name: {} for name in ("on", "with", "verifiers with")}
    for run in runs:
        for name, facts in _surroundings(run).items():
            common[name] = {**facts, **common[name]}
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for run, figure in found:
        other = {
            name: {fact: value for fact, value in facts.items() if common[name][fact] != value}
            for name, facts in _surroundings(run).items()
        }
        often = "counted once" if figure.unit == UNIT else "1 run" if run.runs == 1 else f"medians of {run.runs} runs"
        differently = "".join(f", {name} {in_words(facts)}" for name, facts in other.items() if facts)
        names[f"{often}, {run.date[:10]}{differently}"][figure.work] = None
    for how, these in names.items():
        yield f"{', '.join(these)}: {how}."
    if runs:
        on, ours, peer = common.values()
        baseline = f" Baseline: {in_words(peer)}." if peer else ""
        yield f"On {', '.join(map(str, on.values()))}. Versions: {in_words(ours)}.{baseline}"


def _surroundings(run: Run) -> Mapping[str, Mapping[str, object]]:
    return {
        "on": {
            "processor": run.machine["cpu"],
            "cores": f"{run.machine['cores']} cores",
            "system": run.machine["os"],
        },
        "with": run.versions,
        "verifiers with": run.peer or {},
    }


def _filled(line: str, first: str = "", other: str = "") -> str:
    return fill(line, WIDTH, initial_indent=first, subsequent_indent=other, break_on_hyphens=False)


def put(runs: Iterable[Run]) -> None:
    """Put the table into the README, in the place of the one that is there."""
    text, number = _PLACE.subn(lambda _: table(runs), README.read_text(encoding="utf-8"))
    assert number == 1, "the README has one place for the table"
    write(README, text)
