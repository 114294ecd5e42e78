"""Figures in files: those of a run, and those of several, of which the newest of each figure counts.

A file holds one run or a list of them, each with its machine and versions. It is written whole or not at all.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from attrs import evolve, field, frozen
from cattrs import BaseValidationError, transform_error
from cattrs.preconf.json import make_converter

MEASURED = Path(__file__).with_name("measured.json")
"""What is kept: the README shows it, and later counts are compared with it."""

_CONVERTER = make_converter(detailed_validation=True)


class ResultError(Exception):
    """A file that has no figures; its text says which, and why."""


@frozen(kw_only=True)
class Figure:
    """One figure of a run: medians, and all that they are the medians of."""

    work: str
    about: str
    unit: str
    here: float
    peer: float | None
    times_better: float | None
    """How many times better it is here; None where it cannot be said."""
    mark: float | None
    samples: Mapping[str, Sequence[float]]

    @property
    def key(self) -> "Key":
        """What it is the figure of."""
        return self.work, self.about, self.unit

    @property
    def reached(self) -> bool | None:
        """Whether the mark is; None where there is no mark or nothing to compare with."""
        return None if None in (self.mark, self.times_better) else self.times_better >= self.mark  # type: ignore[operator]


Key: TypeAlias = tuple[str, str, str]


@frozen(kw_only=True)
class Run:
    """What one call of the tool found, and where."""

    date: str
    """ISO 8601, in UTC."""
    machine: Mapping[str, str | int]
    versions: Mapping[str, str]
    peer: Mapping[str, str] | None
    """Its versions."""
    runs: int
    figures: Sequence[Figure] = field(factory=tuple)
    failed: Sequence[str] = ()
    partial: bool = False
    """Whether it was interrupted: each figure is whole, but not all are there."""

    def having(self, figures: Iterable[Figure], failed: Iterable[str] = (), *, partial: bool = False) -> "Run":
        """With these figures."""
        return evolve(self, figures=tuple(figures), failed=tuple(failed), partial=partial)


def newest(runs: Iterable[Run]) -> Mapping[Key, tuple[Run, Figure]]:
    """Each figure as it was found last, with the run in which that was. Of two of one date the later one counts."""
    return {figure.key: (run, figure) for run in sorted(runs, key=lambda run: run.date) for figure in run.figures}


def joined(runs: Iterable[Run]) -> list[Run]:
    """The runs by date, each with those of its figures that are the newest; without those that have none."""
    ordered = sorted(runs, key=lambda run: run.date)
    last = {figure.key: place for place, run in enumerate(ordered) for figure in run.figures}
    left = [
        run.having(figure for figure in run.figures if last[figure.key] == place) for place, run in enumerate(ordered)
    ]
    return [run for run in left if run.figures]


def read(file: Path) -> list[Run]:
    """The runs of a file. Raises `ResultError`."""
    try:
        told = json.loads(file.read_bytes())
        return _CONVERTER.structure(told if isinstance(told, list) else [told], list[Run])
    except OSError as error:
        raise ResultError(f"{file} cannot be read: {error.strerror}") from error
    except BaseValidationError as error:
        raise ResultError(f"{file} has no figures: {'; '.join(transform_error(error, path='it'))}") from error
    except ValueError as error:
        raise ResultError(f"{file} has no figures: {error}") from error


def kept() -> list[Run]:
    """The runs whose figures are kept; none if nothing was."""
    return read(MEASURED) if MEASURED.exists() else []


def keep(runs: Iterable[Run]) -> None:
    """Keep these beside what is kept, in place of what is older."""
    told = _CONVERTER.unstructure(joined([*kept(), *runs]))
    write(MEASURED, f"{json.dumps(told, indent=1)}\n")


def write_run(file: Path, run: Run) -> None:
    """Write one run. Raises `ResultError`."""
    try:
        write(file, f"{json.dumps(_CONVERTER.unstructure(run), indent=1)}\n")
    except OSError as error:
        raise ResultError(f"{file} cannot be written: {error.strerror}") from error


def refusal(file: Path) -> str | None:
    """Why `write` cannot write this file, found by trying a file beside it; None if it can."""
    try:
        if file.is_dir():
            return "is a folder"
        if file.is_file() or not file.exists():
            with tempfile.NamedTemporaryFile(dir=file.resolve().parent):
                return None
        return None if os.access(file, os.W_OK) else "cannot be written: Permission denied"
    except OSError as error:
        return f"cannot be written: {error.strerror}"


def write(file: Path, text: str) -> None:
    """Write a file whole or not at all; what is no file, such as a pipe, is written to as it is."""
    if file.exists() and not file.is_file():
        file.write_text(text, encoding="utf-8")
        return
    file = file.resolve()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as made:
        try:
            made.write(text)
            made.flush()
            os.fchmod(made.fileno(), file.stat().st_mode & 0o777 if file.exists() else 0o644)
            os.replace(made.name, file)
        except BaseException:
            os.unlink(made.name)
            raise
