"""`rollout-fsm diagram`: the declared machine as pictures, and one rollout's path over it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rollout_fsm.cli.command import Command
from rollout_fsm.cli.faults import EXIT_FAULTS, UsageError
from rollout_fsm.cli.harmless import one_line
from rollout_fsm.cli.screen import Screen
from rollout_fsm.cli.trace_files import find_trace, traces_path
from rollout_fsm.machine import load_machine
from rollout_fsm.machine.dot import render_dot
from rollout_fsm.machine.export import render_svg, stale_diagrams, write_diagrams
from rollout_fsm.machine.mermaid import render_mermaid
from rollout_fsm.machine.picture import Hop, Picture, draw
from rollout_fsm.trace import Trace

__all__ = ["diagram"]

FOLDER = Path("diagrams")
_RENDERERS: Mapping[str, Callable[[Picture], str]] = {
    ".mmd": render_mermaid,
    ".dot": render_dot,
    ".svg": lambda picture: render_svg(render_dot(picture)),
}


def diagram(
    *,
    check: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    trace: Annotated[str | None, Parameter(metavar="TRACES#ID")] = None,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), metavar="PATH")] = None,
) -> Command:
    """Draw the declared machine into diagrams/, or one rollout's path over it.

    Parameters
    ----------
    check
        Write nothing; show what is stale and exit with 1 if anything is.
    trace
        A file of traces and the id of one, or the beginning of it: its path is drawn over the machine, numbered, with
        times.
    output
        The folder of the diagrams (diagrams); with --trace the file to write, .mmd, .dot or .svg; else Mermaid text
        is printed.
    """

    def command(screen: Screen) -> int:
        if trace is not None:
            if check:
                raise UsageError("--check compares the files in diagrams/ and --trace draws one rollout; choose one")
            return _path(trace, output, screen)
        return _check(output or FOLDER, screen) if check else _write(output or FOLDER, screen)

    return command


def _write(folder: Path, screen: Screen) -> int:
    try:
        written = write_diagrams(folder)
    except RuntimeError as error:
        raise UsageError(f"{error}; the texts in {folder} are up to date") from error
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: cannot be written: {error.strerror}") from error
    for name in written:
        screen.say(f"written: {folder / name}")
    if not written:
        screen.say(f"{folder}: everything is fresh")
    return 0


def _check(folder: Path, screen: Screen) -> int:
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; --check compares the drawings of a checkout with its states")
    try:
        stale = stale_diagrams(folder)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: cannot be read: {error.strerror}") from error
    for name, difference in stale:
        screen.say(f"{folder / name} is stale", "bold red")
        screen.say(difference)
    screen.say(f"{len(stale)} stale; run `rollout-fsm diagram`" if stale else f"{folder}: everything is fresh")
    return EXIT_FAULTS if stale else 0


def _path(reference: str, output: Path | None, screen: Screen) -> int:
    file, _, prefix = reference.rpartition("#")
    if not file or not prefix:
        raise UsageError(f"--trace: {reference!r} names no trace; write TRACES#ID, as in traces.jsonl#3f2a")
    render = _RENDERERS.get(output.suffix) if output is not None else render_mermaid
    if render is None:
        raise UsageError(f"--output: {output} is no kind of picture; there are {', '.join(_RENDERERS)}")
    trace = find_trace(traces_path(Path(file)), prefix, screen)
    if not trace.transitions:
        raise UsageError(f"--trace: the trace {one_line(trace.id, 60)} has no transitions; there is no path to draw")
    try:
        text = render(draw(load_machine(), _hops(trace), title=_title(trace)))
    except ValueError as error:
        raise UsageError(f"--trace: the trace {one_line(trace.id, 60)} cannot be drawn: {error}") from error
    except RuntimeError as error:
        raise UsageError(str(error)) from error
    if output is None:
        screen.write(text)
        return 0
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: cannot be written: {error.strerror}") from error
    screen.say(f"written: {output}")
    return 0


def _title(trace: Trace) -> str:
    """Whose path it is and how it ended, in one line."""
    error = trace.errors[0].type if trace.errors else None
    ended = [trace.transitions[-1].target, f"stop condition {trace.stop_condition or 'none'}", error]
    return one_line(f"rollout {trace.id}: {', '.join(part for part in ended if part)}", 160)


def _hops(trace: Trace) -> list[Hop]:
    start = trace.transitions[0].time
    return [
        Hop(trigger=taken.trigger, source=taken.source, target=taken.target, at=taken.time - start)
        for taken in trace.transitions
    ]
