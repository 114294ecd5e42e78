"""What the engine costs: a table on standard output, and all of it as JSON."""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from attrs import evolve

from tests.benchmarks import readme
from tests.benchmarks.instructions import DIFFERENCES, SMALL, UNIT, count, counter, version_of
from tests.benchmarks.options import parser, understood
from tests.benchmarks.results import Figure, ResultError, Run, keep, kept, newest, read, write_run
from tests.benchmarks.sampling import SampleError, figures, take
from tests.benchmarks.surroundings import OURS, PEERS, in_words, machine, versions
from tests.benchmarks.tables import counts_table, figures_table
from tests.benchmarks.works import HERE, works

INTERRUPTED = "interrupted; what is printed had been found before"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns an exit code."""
    made = parser()
    given = understood(made, arguments)
    try:
        if given.table is not None:
            return tabled(given.table, to_be_kept=given.keep)
        peer = None if given.peer is None else figures(given.peer, (str(HERE / "surroundings.py"), *PEERS), PEERS)
        run = found(given, peer)
    except SampleError as error:
        made.error(f"--peer: {error}")
    except ResultError as error:
        made.error(str(error))
    except PackageNotFoundError as error:
        made.error(f"{error.name} is not installed here; pip install -e '.[dev]'")
    except KeyboardInterrupt:
        complain(f"{made.prog}: interrupted")
        return 130
    for problem in run.failed:
        complain(f"{made.prog}: {problem}")
    return 130 if INTERRUPTED in run.failed else 1 if run.failed else 0


def tabled(files: Sequence[Path], *, to_be_kept: bool) -> int:
    """Print the README's table of these files, or of what is kept. Raises `ResultError`."""
    runs = [run for file in files for run in read(file)]
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
    say(f"here: {in_words(run.versions)}")
    if peer is not None:
        say(f"peer: {in_words(peer)}")
    run = (counted if given.instructions else measured)(given, run)
    if given.json is not None:
        write_run(given.json, run)
    if given.keep and INTERRUPTED not in run.failed:
        keep([run])
        readme.put(kept())
    return run


def measured(given: Namespace, run: Run) -> Run:
    """Take the figures and print them."""
    chosen = [work for work in works(small=given.small) if not given.only or work.name in given.only]
    found: list[Figure] = []
    failed: list[str] = []
    try:
        taken = take(chosen, peer=given.peer, runs=given.runs, progress=complain, failed=failed.append)
        found.extend(one.figure() for one in taken)
    except KeyboardInterrupt:
        failed.append(INTERRUPTED)
    printed = [one for one in found if one.mark is not None] if given.marks else found
    say(f"medians of {given.runs}\n\n{figures_table(printed, peer=given.peer is not None)}")
    return run.having(found, failed)


def counted(given: Namespace, run: Run) -> Run:
    """Count the instructions and print them. Raises `ResultError`."""
    tool = counter()
    if tool is None:
        say("instructions: neither perf nor valgrind can count them here; installing valgrind helps")
        return run
    run = evolve(run, versions={**run.versions, **version_of(tool)})
    before = {key[1]: one for key, one in newest(kept()).items() if key[2] == UNIT and tool[0] in one[0].versions}
    try:
        found = list(
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
    for then in {in_words(then.versions): None for then, _ in before.values() if then.versions != run.versions}:
        say(f"kept: {then}")
    say(f"instructions, by {tool[0]}\n\n{counts_table(found, peer=given.peer is not None)}")
    return run.having(one.figure() for one in found)


def say(line: str) -> None:
    """Lines on standard output, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    """What is being done, and what went wrong, on standard error."""
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
