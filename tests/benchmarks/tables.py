"""Figures as a table of Markdown, which is to be read in a terminal as well."""

import math
from collections.abc import Iterable, Sequence

from tests.benchmarks.instructions import UNIT, Counted
from tests.benchmarks.results import Figure
from tests.benchmarks.works import more_is_better

OURS, PEER = "rollout-fsm", "verifiers"


def figure(value: float | None) -> str:
    """Three digits that count, at least those before the point."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def times(value: float | None) -> str:
    """How many times better."""
    return "" if value is None else f"{figure(value)}×"


def directed(unit: str) -> str:
    """A unit, and which way is better."""
    return f"{unit} {'↑' if more_is_better(unit) else '↓'}"


def figures_table(found: Iterable[Figure], *, peer: bool) -> str:
    """All figures; with the peer's beside them, the ratio, and the target where there is one."""
    if not peer:
        return table(["workload", "unit", OURS], ([one.about, directed(one.unit), figure(one.here)] for one in found))
    rows = (
        [
            one.about,
            directed(one.unit),
            figure(one.here),
            figure(one.peer),
            times(one.times_better),
            "" if one.mark is None else f"≥ {one.mark:g}×",
            "" if one.reached is None else ("no", "yes")[one.reached],
        ]
        for one in found
    )
    return table(["workload", "unit", OURS, PEER, "times better", "target", "reached"], rows)


def counts_table(found: Sequence[Counted], *, peer: bool) -> str:
    """Instructions beside those that were kept and, with a peer, beside its own."""
    rows = [
        [
            one.about,
            directed(UNIT),
            f"{one.ours:,}",
            "" if one.kept is None else f"{one.kept:,.0f}",
            "" if one.change is None else f"{one.change:+.1f} %",
        ]
        for one in found
    ]
    head = ["workload", "unit", OURS, "kept", "change"]
    if not peer:
        return table(head, rows)
    for row, one in zip(rows, found, strict=True):
        row += "" if one.peer is None else f"{one.peer:,}", times(one.ratio)
    return table([*head, PEER, "times better"], rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first two columns are words and the others figures."""
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    told = [
        " | ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    rule = "|".join("-" * (width + 2) if at < 2 else f"{'-' * (width + 1)}:" for at, width in enumerate(widths))
    return "\n".join((f"| {told[0]} |", f"|{rule}|", *(f"| {line} |" for line in told[1:])))
