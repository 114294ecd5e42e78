"""What the engine costs: a table on standard output, and all of it as JSON."""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from attrs import evolve

from tests.benchmarks import readme
from tests.benchmarks.baseline import versions_of
from tests.benchmarks.instructions import DIFFERENCES, SMALL, UNIT, Counted, count, counter, version_of
from tests.benchmarks.options import parser, understood
from tests.benchmarks.results import Figure, ResultError, Run, keep, kept, newest, read, write_run
from tests.benchmarks.sampling import SampleError, take
from tests.benchmarks.surroundings import OURS, in_words, machine, versions
from tests.benchmarks.tables import counts_table, figures_table
from tests.benchmarks.works import works

INTERRUPTED = "interrupted; what is printed was measured before"
NOTHING = "interrupted; nothing had been measured yet"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns an exit code."""
    made = parser()
    given = understood(made, arguments)
    try:
        if given.table is not None:
            return tabled(given.table, to_be_kept=given.keep)
        run = found(given, None if given.peer is None else versions_of(given.peer))
    except SampleError as error:
        made.error(f"--peer: {error}")
    except ResultError as error:
        made.error(str(error))
    except PackageNotFoundError as error:
        made.error(f"{error.name} is not installed here; pip install -e '.[dev]'")
    problems = [*run.failed]
    if run.partial:
        problems.append(NOTHING if not run.figures else f"{INTERRUPTED}, and not kept" if given.keep else INTERRUPTED)
    for problem in problems:
        complain(f"{made.prog}: {problem}")
    return 130 if run.partial else 1 if run.failed else 0


def tabled(files: Sequence[Path], *, to_be_kept: bool) -> int:
    """Print the README's table of these files, or of what is kept. Raises `ResultError`."""
    runs: list[Run] = []
    for file in files:
        read_now = read(file)
        if any(run.partial for run in read_now):
            if to_be_kept:
                raise ResultError(f"{file} is of an interrupted run; --keep keeps whole ones")
            complain(f"{file} is of an interrupted run and holds a part of the figures")
        runs += read_now
    if to_be_kept:
        keep(runs)
        readme.put(kept())
    say(readme.table(runs if files else kept()))
    return 0


def found(given: Namespace, peer: Mapping[str, str] | None) -> Run:
    """Measure or count, print what was found, and write it where it is asked for. Raises `ResultError`."""
    run = Run(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        versions=versions(OURS),
        peer=peer,
        runs=1 if given.instructions else given.runs,
    )
    say(f"{run.date[:10]}, {in_words(run.machine)}")
    say(f"versions: {in_words(run.versions)}")
    if peer is not None:
        say(f"baseline: {in_words(peer)}")
    run = (counted if given.instructions else measured)(given, run)
    if run.partial and not run.figures:
        return run
    if given.json is not None:
        write_run(given.json, run)
    if given.keep and not run.partial:
        keep([run])
        readme.put(kept())
    return run


def measured(given: Namespace, run: Run) -> Run:
    """Take the figures and print them."""
    chosen = [work for work in works(small=given.small) if not given.only or work.name in given.only]
    found: list[Figure] = []
    failed: list[str] = []
    partial = False
    try:
        taken = take(chosen, peer=given.peer, runs=given.runs, progress=complain, failed=failed.append)
        found.extend(one.figure() for one in taken)
    except KeyboardInterrupt:
        partial = True
    printed = [one for one in found if one.mark is not None] if given.targets else found
    if printed:
        hardly = "; with --small hardly anything is done, so these figures say nothing" if given.small else ""
        say(f"medians of {given.runs}{hardly}\n\n{figures_table(printed, peer=given.peer is not None)}")
    elif found:
        say("none of these figures has a target")
    return run.having(found, failed, partial=partial)


def counted(given: Namespace, run: Run) -> Run:
    """Count the instructions and print them. Raises `ResultError`."""
    tool = counter()
    if tool is None:
        say("instructions: neither perf nor valgrind can count them here; installing valgrind helps")
        return run
    run = evolve(run, versions={**run.versions, **version_of(tool)})
    before = {key[1]: one for key, one in newest(kept()).items() if key[2] == UNIT and tool[0] in one[0].versions}
    found: list[Counted] = []
    partial = False
    try:
        found.extend(
            count(
                tool,
                SMALL if given.small else DIFFERENCES,
                peer=given.peer,
                kept={about: figure.here for about, (_, figure) in before.items()},
                progress=complain,
            )
        )
    except SampleError as error:
        return run.having((), [str(error)])
    except KeyboardInterrupt:
        partial = True
    if found:
        for then in {in_words(then.versions): None for then, _ in before.values() if then.versions != run.versions}:
            say(f"kept: {then}")
        say(f"instructions, by {tool[0]}\n\n{counts_table(found, peer=given.peer is not None)}")
    return run.having((one.figure() for one in found), partial=partial)


def say(line: str) -> None:
    """Lines on standard output, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    """What is being done, and what went wrong, on standard error."""
    sys.stderr.write(f"{line}\n")
