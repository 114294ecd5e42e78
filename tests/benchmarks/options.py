"""What can be asked of the benchmarks."""

import argparse
import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from tests.benchmarks.results import refusal
from tests.benchmarks.surroundings import VERIFIERS
from tests.benchmarks.works import works

RUNS = 5
"""Samples of each figure; fewer are not kept."""
NAMES = [work.name for work in works(small=True)]
ABOUT = f"""\
Measures what the engine costs, with a scripted box, harness and model that never wait. Each figure is the median of
several runs, each in a process of its own. All of it takes about five minutes.

With --peer, the same is done by a baseline, verifiers, in turn. That takes about half an hour: its long rollouts are
long. The table then says how many times better the figure of rollout-fsm is (↑ higher is better, ↓ lower is better),
and the target: how many times better it is to be. A target that is not reached fails nothing.

benchmarks:
  rollouts    whole rollouts of one turn, one reward and one metric: one after another, and 100 at once
  turns       one rollout of 10 to 2,000 turns, each re-sending the whole conversation, all four limits set
  memory      what an open idle rollout adds to the process (RSS), with 1,000 and 10,000 open
  cancelling  1,000 rollouts in flight, until the last one is released
  gateway     calls over loopback to a canned upstream in another process, plain and streaming
  import      time and memory (RSS) of an import in a fresh interpreter: the package alone, and an embedder's names
  simulation  simulated rollouts, in virtual time

how to:
  a first try, half a minute:    python -m tests.benchmarks --small --runs 1
  a baseline to compare with:    PYTHON -m pip install {VERIFIERS}
  the table of the README:       python -m tests.benchmarks --peer PYTHON --keep
  the same, of files of --json:  python -m tests.benchmarks --table FILE … --keep

Ctrl-C ends it: the figures that are complete are printed and written to the file of --json, which then says "partial";
nothing is kept. The columns of the table have older names in JSON: "here" is rollout-fsm, "peer" is verifiers, "mark"
is the target.
"""
LOOK = "; --help says what there is"


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with an option."""

    def error(self, message: str) -> NoReturn:
        look = LOOK if message.startswith("unrecognized arguments: ") else ""
        self.exit(2, f"{self.prog}: {message}{look}\n")


def number_of_runs(text: str) -> int:
    """At least one."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of runs; 1 is the least")
    return int(text)


def benchmark(text: str) -> str:
    """The name of one."""
    if text not in NAMES:
        near = get_close_matches(text, NAMES, 1)
        raise argparse.ArgumentTypeError(
            f"there is no benchmark {text!r}{f'; did you mean {near[0]!r}?' if near else LOOK}"
        )
    return text


def parser() -> Parser:
    """The options."""
    made = Parser(
        prog="python -m tests.benchmarks",
        description=ABOUT,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--peer", metavar="PYTHON", help="the baseline: an interpreter with verifiers, to compare with")
    made.add_argument("--runs", type=number_of_runs, metavar="N", help=f"samples of each figure (default {RUNS})")
    made.add_argument(
        "--only",
        nargs="+",
        action="extend",
        type=benchmark,
        metavar="BENCHMARK",
        help="these benchmarks, instead of all",
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write every sample there, with machine and versions")
    made.add_argument("--targets", action="store_true", help="print only the figures that have one (JSON has all)")
    made.add_argument("--small", action="store_true", help="do next to nothing, to see that everything runs")
    made.add_argument(
        "--instructions",
        action="store_true",
        help="count instructions of rollouts and turns instead, beside the counts kept last: by perf in less than a "
        "minute, or by valgrind in about 4 minutes on two free cores, about 15 with --peer",
    )
    made.add_argument(
        "--table",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="measure nothing: print the README's table of these files of --json, or of what is kept",
    )
    made.add_argument(
        "--keep",
        action="store_true",
        help="keep what was found, each figure in place of an older one, and put the table into the README; "
        "refused for an interrupted run",
    )
    return made


def understood(made: Parser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """What is asked for; leaves with one line about what cannot be."""
    given = made.parse_args(arguments)
    if given.table is not None:
        for name in ("peer", "runs", "only", "json", "targets", "small", "instructions"):
            if getattr(given, name):
                made.error(f"--table measures nothing; leave --{name}")
    elif given.instructions:
        for name in ("only", "runs", "targets"):
            if getattr(given, name):
                made.error(f"--instructions counts rollouts and turns, once; leave --{name}")
    given.runs = given.runs or RUNS
    if given.keep and given.table is None:
        if given.small:
            made.error("--keep keeps figures that say something; leave --small")
        if given.runs < RUNS:
            made.error(f"--keep keeps medians of at least {RUNS} runs; leave --runs")
        if not given.peer and not given.instructions:
            made.error("--keep keeps figures that stand beside a baseline's; give --peer")
    if given.json is not None:
        if not given.json.parent.is_dir():
            made.error(f"--json: there is no folder {given.json.parent}")
        if (reason := refusal(given.json)) is not None:
            made.error(f"--json: {given.json} {reason}")
    if given.peer and os.sep in given.peer:
        given.peer = os.path.abspath(given.peer)  # a link is not followed: a virtual environment is found by its name
    return given
