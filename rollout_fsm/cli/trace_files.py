"""Files of traces as arguments: where they are, and what is said when they cannot be read."""

from collections.abc import Iterator
from pathlib import Path

from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.screen import Screen
from rollout_fsm.exact_json import FormatError
from rollout_fsm.output import TRACES
from rollout_fsm.trace import Trace
from rollout_fsm.traces_file import read_traces

__all__ = ["find_trace", "traces_in", "traces_path"]


def traces_path(path: Path) -> Path:
    """The file of traces: the path itself, or the one in a run's folder. Raises `UsageError` if there is none."""
    try:
        found = path / TRACES if path.is_dir() else path
        there = found.exists()
    except OSError as error:  # a name that is too long, say
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if not there:
        where = f"the folder {path} holds no {TRACES}" if path.is_dir() else f"there is no file {path}"
        raise UsageError(f"{where}; name a file of traces or the folder of a run")
    return found


def traces_in(path: Path, screen: Screen, faults: list[str] | None = None) -> Iterator[Trace]:
    """The traces of a file. A line that is none is said on standard error and added to `faults`, and passed over."""

    def fault(number: int, error: FormatError) -> None:
        text = f"{path}: line {number}: {error}"
        if faults is None:
            screen.complain(f"rollout-fsm: {text}; passed over", "yellow")
        else:
            faults.append(text)

    try:
        yield from read_traces(path, on_fault=fault)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def find_trace(path: Path, prefix: str, screen: Screen) -> Trace:
    """The trace whose id begins so. Raises `UsageError` for none and for several; a whole id is always unique
    enough."""
    found: list[Trace] = []
    for trace in traces_in(path, screen):
        if trace.id == prefix:
            return trace
        if trace.id.startswith(prefix):
            found.append(trace)
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"{path}: no trace's id begins with {prefix!r}; `rollout-fsm show {path}` lists them")
    some = ", ".join(trace.id for trace in found[:5])
    raise UsageError(
        f"{path}: {len(found)} traces have an id that begins with {prefix!r}: {some}{', …' if found[5:] else ''}"
    )
