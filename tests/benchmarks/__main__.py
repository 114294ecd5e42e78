"""What the engine costs: a table on standard output, and all of it as JSON."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from attrs import asdict

from tests.benchmarks.instructions import DIFFERENCES, SMALL, Kept, count, counter
from tests.benchmarks.sampling import Found, SampleError, figures, take
from tests.benchmarks.surroundings import OURS, PEERS, in_words, machine, versions
from tests.benchmarks.tables import counts_table, figures_table
from tests.benchmarks.works import HERE, works

NAMES = [work.name for work in works(small=True)]
ABOUT = """\
Measures what the engine costs, with a scripted box, harness and model that never wait. Each figure is the median of
several runs, each in a process of its own. With a peer, the same work is done there in turn, and it is said how many
times better the figure is here (a rate higher, a cost lower), beside the mark that is to be reached. No figure is a
failure. A run with a peer takes an hour: its long rollouts are long.

works:
  rollouts    whole rollouts of one turn, one reward and one metric: one after another, and 100 at once
  turns       one rollout of 10 to 2,000 turns, each re-sending the whole conversation, all four limits set
  memory      what an open idle rollout adds to the process (RSS), with 1,000 and 10,000 open
  cancelling  1,000 rollouts in flight, until the last one is released
  gateway     calls over loopback to a canned upstream in another process, plain and streaming
  import      time and memory (RSS) of an import in a fresh interpreter: the package alone, and an embedder's names
  simulation  simulated rollouts, in virtual time
"""


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with an option."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; --help says what there is\n")


def number_of_runs(text: str) -> int:
    """At least one."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of runs; 1 is the least")
    return int(text)


def parser() -> Parser:
    """The options."""
    made = Parser(
        prog="python -m tests.benchmarks",
        description=ABOUT,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--peer", metavar="PYTHON", help="an interpreter with verifiers: do the same work there, in turn")
    made.add_argument("--runs", type=number_of_runs, default=5, metavar="N", help="samples of each figure (default 5)")
    made.add_argument("--only", nargs="+", choices=NAMES, metavar="WORK", help="these works, instead of all")
    made.add_argument("--json", type=Path, metavar="FILE", help="write every sample there, with machine and versions")
    made.add_argument("--marks", action="store_true", help="print only the figures that have a mark (JSON has all)")
    made.add_argument("--small", action="store_true", help="do next to nothing, to see that everything runs")
    made.add_argument(
        "--instructions",
        action="store_true",
        help="count instructions of rollouts and turns instead, by perf or callgrind, beside the counts kept last",
    )
    made.add_argument("--keep", action="store_true", help="with --instructions: keep these counts for the next time")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns an exit code."""
    made = parser()
    given = made.parse_args(arguments)
    if given.keep and not given.instructions:
        made.error("--keep keeps what --instructions counts")
    if given.instructions and given.only:
        made.error("--instructions counts rollouts and turns; leave --only")
    if given.keep and given.small:
        made.error("--keep keeps counts that say something; leave --small")
    if given.json is not None and not given.json.parent.is_dir():
        made.error(f"--json: there is no folder {given.json.parent}")
    try:
        theirs = None if given.peer is None else figures(given.peer, (str(HERE / "surroundings.py"), *PEERS))
    except SampleError as error:
        made.error(f"--peer: {error}")
    facts: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(OURS),
        "peer": theirs,
    }
    say(f"{facts['date']}, {in_words(facts['machine'])}")
    say(f"here: {in_words(facts['versions'])}")
    if theirs is not None:
        say(f"peer: {in_words(theirs)}")
    failed: list[str] = []
    facts |= (counted if given.instructions else measured)(given, failed.append)
    if given.json is not None:
        given.json.write_text(json.dumps(facts | {"failed": failed}, indent=1) + "\n")
    for problem in failed:
        complain(f"{made.prog}: {problem}")
    return 1 if failed else 0


def measured(given: argparse.Namespace, failed: Callable[[str], None]) -> dict[str, Any]:
    """Take the figures and print them."""
    chosen = [work for work in works(small=given.small) if not given.only or work.name in given.only]
    found = list(take(chosen, peer=given.peer, runs=given.runs, progress=complain, failed=failed))
    printed = [one for one in found if one.measure.mark is not None] if given.marks else found
    say(f"medians of {given.runs}\n\n{figures_table(printed, peer=given.peer is not None)}")
    return {"runs": given.runs, "figures": [as_json(one) for one in found]}


def as_json(found: Found) -> dict[str, Any]:
    """A figure with every sample."""
    return {
        "work": found.work,
        "about": found.about,
        "unit": found.measure.unit,
        "here": found.here,
        "peer": found.there,
        "times_better": found.ratio,
        "mark": found.measure.mark,
        "samples": {"here": found.ours, "peer": found.peer},
    }


def counted(given: argparse.Namespace, failed: Callable[[str], None]) -> dict[str, Any]:
    """Count the instructions and print them."""
    tool = counter()
    if tool is None:
        say("instructions: neither perf nor valgrind counts them here")
        return {"instructions": []}
    kept = Kept.read()
    before = {} if kept is None or kept.tool != tool[0] else kept.figures
    try:
        differences = SMALL if given.small else DIFFERENCES
        found = list(count(tool, differences, peer=given.peer, kept=before, progress=complain))
    except SampleError as error:
        failed(str(error))
        return {"instructions": []}
    if kept is not None and (kept.tool, kept.versions) != (tool[0], versions(OURS)):
        say(f"kept by {kept.tool}: {in_words(kept.versions)}")
    say(f"instructions, by {tool[0]}\n\n{counts_table(found, peer=given.peer is not None)}")
    if given.keep:
        Kept(tool=tool[0], versions=versions(OURS), figures={one.about: one.ours for one in found}).write()
    return {"instructions": [asdict(one) | {"change": one.change} for one in found]}


def say(line: str) -> None:
    """Lines on standard output, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    """What is being done, and what went wrong, on standard error."""
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
