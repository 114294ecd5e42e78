"""`rollout-fsm score`: traces in, the same traces scored again out, in the order of the file.

What is written is a whole number of lines whatever ends it. Results go to one stream, what there is to say about them
to the other.
"""

import logging
import math
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

import trio
from attrs import define, field
from cyclopts import Parameter

from rollout_fsm.cli.command import Command
from rollout_fsm.cli.config_file import read_settings
from rollout_fsm.cli.faults import EXIT_FAULTS, EXIT_UNWRITTEN, UsageError
from rollout_fsm.cli.harmless import one_line
from rollout_fsm.cli.interruption import Interruption
from rollout_fsm.cli.judges import make_judges, with_prompts
from rollout_fsm.cli.loading import current_folder_importable
from rollout_fsm.cli.logs import logging_to_terminal
from rollout_fsm.cli.parts import make_harness
from rollout_fsm.cli.preparing import CONFIG
from rollout_fsm.cli.screen import Screen
from rollout_fsm.cli.tables import summary_tables
from rollout_fsm.cli.task_rows import task_class
from rollout_fsm.cli.trace_files import traces_in, traces_path
from rollout_fsm.engine import open_engine
from rollout_fsm.exact_json import FormatError
from rollout_fsm.harness import Harness
from rollout_fsm.judge import Judge
from rollout_fsm.limits import RolloutTimeouts
from rollout_fsm.output import TRACES, line_of
from rollout_fsm.reports.summary import Summary
from rollout_fsm.rescoring import Rescored
from rollout_fsm.task import Task
from rollout_fsm.trace import Trace
from rollout_fsm.traces_file import TracesFile

__all__ = ["score"]

log = logging.getLogger("rollout_fsm")

REASON = 160


def score(
    traces: Annotated[Path, Parameter(metavar="TRACES")],
    /,
    *,
    task: Annotated[str, Parameter(metavar="MODULE:CLASS")],
    harness: Annotated[str | None, Parameter(metavar="HARNESS")] = None,
    config: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    judges: Annotated[bool, Parameter(show_default=False)] = True,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), metavar="FILE")] = None,
    max_concurrent: Annotated[int, Parameter(name=("--max-concurrent", "-c"))] = 32,
    timeout: Annotated[float | None, Parameter(name=("--timeout.scoring", "--timeouts.scoring"))] = None,
    fail_on_error: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    verbose: Annotated[int, Parameter(name=("--verbose", "-v"), count=True, show_default=False)] = 0,
) -> Command:
    """Score finished traces again, offline: no runtime, and no model but the judges'.

    Each trace's task is rebuilt from the row that stands on it, and its rewards and metrics are measured anew; a signal
    that takes the runtime is skipped. Asked are the task's own judges and those of the run's configuration. Traces
    whose rollout did not come to scoring pass through unchanged, as do those whose row does not fit the class. Without
    -o the traces are JSON lines on standard output. Exit codes: 0 it went through (signals that failed are data), 1
    where a line was no trace or a row did not fit, and with --fail-on-error if any signal failed, 2 usage, 3 something
    could not be written, 130 and 143 interrupted.

    Parameters
    ----------
    traces
        A file of traces, or the folder of a run.
    task
        The class of the tasks, as it is now.
    harness
        Whose metrics are measured too: a name (chat), or module:Class.
    config
        A run's TOML file, whose judges are asked; else that of the run whose folder the traces are in.
    judges
        Ask these judges; without them, what they gave is gone.
    output
        A file for the traces, which must not exist yet; the summary is then on standard output.
    max_concurrent
        Traces at once, at most.
    timeout
        Seconds for all signals of a trace; else the task's, else 600.
    fail_on_error
        Exit with 1 if any signal failed.
    verbose
        Log more on standard error; twice for everything.
    """

    def command(screen: Screen) -> int:
        source = traces_path(traces)
        bounds = _checked(max_concurrent, timeout)
        with current_folder_importable(), logging_to_terminal(verbose), ExitStack() as files:
            cls, measured = task_class(task), None if harness is None else make_harness(harness)
            asked = _judges(config or _of_the_run(source)) if judges else []
            if output is not None:
                _make(output)
            file = None if output is None else files.enter_context(TracesFile(output))
            job = _Job(
                source=source,
                task=cls,
                harness=measured,
                judges=asked,
                timeouts=bounds,
                max_concurrent=max_concurrent,
                sink=_Sink(screen, file),
                screen=screen,
            )
            try:
                trio.run(job.run)
            finally:
                if output is not None:
                    _withdraw(output)
            return _report(job, output, fail_on_error=fail_on_error)

    return command


@define(eq=False)
class _Sink:
    """Where the traces go, one whole line after the other: a file, or standard output."""

    screen: Screen
    file: TracesFile | None
    written: int = field(default=0, init=False)
    lost: list[str] = field(factory=list, init=False)
    """What could not be written, by name and reason."""
    closed: bool = field(default=False, init=False)
    """Whether nothing more can be written: the disk is full, or nobody reads on."""

    async def put(self, trace: Trace) -> None:
        """Write a trace. What JSON cannot carry is left out and logged, rather than losing it all."""
        try:
            line = line_of(trace)
            if self.file is not None:
                await trio.to_thread.run_sync(self.file.append, line)
        except FormatError as error:
            self.lost.append(f"the trace of rollout {trace.id} is lost: {error}")
            return
        except OSError as error:
            self.lost.append(f"the trace of rollout {trace.id} could not be written: {error.strerror}")
            self.closed = True
            return
        if self.file is None:
            self.screen.write(f"{line}\n")
            self.closed = self.screen.outlet.broken is not None
        self.written += not self.closed


@define(eq=False, kw_only=True)
class _Job:
    """One run of the command, and what came of it."""

    source: Path
    task: type[Task]
    harness: Harness | None
    judges: list[Judge]
    timeouts: RolloutTimeouts | None
    max_concurrent: int
    sink: _Sink
    screen: Screen
    faults: list[str] = field(factory=list, init=False)
    """Lines of the file that are no traces."""
    ended: Interruption = field(init=False)
    summary: Summary = field(factory=Summary, init=False)
    told: "_Told" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.told = _Told(self.task.__name__)
        self.ended = _Ending(self.screen.complain, lambda: 0)

    async def run(self) -> None:
        """Score again until the file ends, or the first signal comes."""
        refused: UsageError | None = None
        with self.ended.receiving() as watch:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch)
                with self.ended.scope:
                    try:
                        await self._score()
                    except UsageError as error:
                        refused = error
                nursery.cancel_scope.cancel()
        if refused is not None:
            raise refused

    async def _score(self) -> None:
        async with open_engine(gateway=False) as engine:
            try:
                await engine.rescore(
                    self._traces(),
                    self.task,
                    judges=self.judges,
                    harness=self.harness,
                    timeouts=self.timeouts,
                    max_concurrent=self.max_concurrent,
                    deliver=self._deliver,
                )
            except TypeError as error:
                if self.told.traces:
                    raise  # not about what was asked for: a bug
                raise UsageError(str(error)) from error
        if not self.told.traces and not self.faults:
            raise UsageError(f"{self.source}: there are no traces in it")

    def _traces(self) -> Iterator[Trace]:
        for trace in traces_in(self.source, self.screen, self.faults):
            self._say_faults()
            yield trace
        self._say_faults()

    def _say_faults(self) -> None:
        for fault in self.faults[self.told.faults :]:
            self.screen.complain(f"rollout-fsm: {fault}; passed over", "yellow")
        self.told.faults = len(self.faults)

    async def _deliver(self, rescored: Rescored) -> None:
        if self.sink.closed:
            return
        await self.sink.put(rescored.trace)
        if rescored.verdict == "refused":
            self.screen.complain(f"rollout-fsm: trace {rescored.trace.id} was left as it was: {rescored.why}", "yellow")
        self.told.add(rescored)
        self.summary.add(rescored.trace)
        if self.sink.closed:
            self.ended.scope.cancel()


SHOWN = 20
"""Lines of one kind that a summary has; how many more there are is said."""


@define(eq=False)
class _Told:
    """What there is to say about the traces so far, counted."""

    task: str
    traces: int = 0
    scored: int = 0
    refused: int = 0
    failed: int = 0
    faults: int = 0
    """Of the file, how many were said."""
    skipped: Counter[tuple[str, str, str]] = field(factory=Counter)
    dropped: Counter[str] = field(factory=Counter)
    failures: Counter[str] = field(factory=Counter)
    reasons: dict[str, str] = field(factory=dict)
    never: Counter[str] = field(factory=Counter)
    others: Counter[str] = field(factory=Counter)
    """Traces of tasks of another class, which were scored as this one's."""

    def add(self, rescored: Rescored) -> None:
        self.traces += 1
        self.scored += rescored.verdict == "scored"
        self.refused += rescored.verdict == "refused"
        self.failed += bool(rescored.failures)
        self.skipped.update((skipped.kind, skipped.name, skipped.why) for skipped in rescored.skipped)
        self.dropped.update(rescored.dropped)
        for error in rescored.failures:
            self.failures[error.type] += 1
            self.reasons.setdefault(error.type, error.message)
        if rescored.verdict == "never scored":
            self.never[rescored.why] += 1
        if rescored.verdict == "scored" and (kind := rescored.trace.task.type) != self.task:
            self.others[kind] += 1

    def lines(self, damaged: int) -> Iterator[str]:
        """The summary."""
        head = f"{self.scored} of {_traces(self.traces)} scored again as {self.task}"
        for count, what in (
            (sum(self.never.values()), "never scored"),
            (self.refused, "left as they were: the row does not fit"),
            (damaged, "more lines are no traces"),
        ):
            head += f", {count} {what}" if count else ""
        yield head
        yield from _counted(
            "skipped", {f"{kind} {one_line(name, REASON)!r}: {why}": n for (kind, name, why), n in self.skipped.items()}
        )
        yield from _counted(
            "failed", {f"{kind}: {one_line(self.reasons[kind], REASON)}": n for kind, n in self.failures.items()}
        )
        yield from _counted(
            "dropped", {f"{one_line(name, REASON)}: nothing gives it any more": n for name, n in self.dropped.items()}
        )
        yield from _counted("never scored", {one_line(why, REASON): n for why, n in self.never.items()})
        yield from _counted(
            "other class", {f"{one_line(kind, REASON)}, scored as {self.task}": n for kind, n in self.others.items()}
        )


def _counted(title: str, found: dict[str, int]) -> Iterator[str]:
    most = sorted(found.items(), key=lambda item: -item[1])
    for what, count in most[:SHOWN]:
        yield f"  {title:<13} {what} ({_traces(count)})"
    if len(most) > SHOWN:
        yield f"  {title:<13} and {len(most) - SHOWN} more"


def _traces(count: int) -> str:
    return f"{count} trace{'' if count == 1 else 's'}"


@define(eq=False)
class _Ending(Interruption):
    """Ctrl-C and its relatives: the first ends the scoring; the signals that run are interrupted."""

    def _received(self, which: signal.Signals) -> None:
        if self.by is None:
            self.by = which
            self.say("rollout-fsm: interrupted; what has been written is whole")
            self.scope.cancel()
        else:
            self.say("rollout-fsm: still ending: what is being asked has not let go yet")


def _checked(max_concurrent: int, timeout: float | None) -> RolloutTimeouts | None:
    wrong = []
    if max_concurrent < 1:
        wrong.append(f"--max-concurrent: must be a whole number of at least 1, not {max_concurrent}")
    if timeout is not None and not (timeout >= 0 and math.isfinite(timeout)):
        wrong.append(f"--timeout.scoring: must be a finite number of seconds of at least 0, not {timeout:g}")
    if wrong:
        raise UsageError(*wrong)
    return None if timeout is None else RolloutTimeouts(scoring=timeout)


def _of_the_run(traces: Path) -> Path | None:
    """The configuration of the run that wrote the traces, if they are where it put them."""
    config = traces.parent / CONFIG
    return config if traces.name == TRACES and config.exists() else None


def _judges(config: Path | None) -> list[Judge]:
    if config is None:
        return []
    settings = read_settings(config)
    try:
        settings = with_prompts(settings)
        return make_judges(settings.judges or (), model=settings.model)
    except UsageError as error:
        raise UsageError(*(f"{config}: {line}" for line in error.lines)) from error


def _make(output: Path) -> None:
    """Make the file, so that it is known to be writable before anything is spent on judges."""
    try:
        os.close(os.open(output, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    except FileExistsError:
        raise UsageError(f"--output: {output} exists already; name another file, or move that one away") from None
    except OSError as error:
        raise UsageError(f"--output: {output} cannot be written: {error.strerror}") from None


def _withdraw(output: Path) -> None:
    """Remove the file if nothing came to be in it, so that its name can be used again."""
    with suppress(OSError):
        if not output.stat().st_size:
            output.unlink()


def _report(job: _Job, output: Path | None, *, fail_on_error: bool) -> int:
    """Say what came of it; returns the exit code."""
    screen, told, sink = job.screen, job.told, job.sink
    say: Callable[[str], None] = screen.complain if output is None else screen.say
    for line in told.lines(len(job.faults)):
        say(line)
    if output is not None and told.traces:
        screen.show(summary_tables(job.summary))
    for lost in sink.lost:
        screen.complain(f"rollout-fsm: {lost}")
    if sink.closed and sink.lost:
        screen.complain(f"rollout-fsm: it ended there; what is in the file is whole ({_traces(sink.written)})")
    if job.ended.by is not None:
        return job.ended.exit_code
    if sink.lost:
        return EXIT_UNWRITTEN
    if sink.closed:
        return 0  # of standard output; whether that is an error is said by whoever wrote there
    wrong = bool(job.faults) or told.refused > 0
    return EXIT_FAULTS if wrong or (fail_on_error and told.failed) else 0
