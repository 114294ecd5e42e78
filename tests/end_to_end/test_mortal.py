"""A program that is killed again and again, whenever, and started again each time, ends as if nothing had happened:
nothing that it yielded is lost, nothing is missing or doubled, nothing is left standing (L73).

A moment is drawn from a seed as a number of events: lines that the program has said, or operations on files that it has
begun. Only the program itself is killed; what it had started lives on.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define, field, frozen

from rollout_fsm import Trace, check_trace, read_traces
from rollout_fsm.batch import jobs
from rollout_fsm.identity import Identity, identity_of
from rollout_fsm.journal import read_journal
from rollout_fsm.output import JOURNAL, SUPERSEDED, TORN, TRACES
from tests.end_to_end.leftovers import Place
from tests.end_to_end.mortal import MAX_CONCURRENT, ROLLOUTS_PER_TASK, answer, digest, tasks
from tests.profiles import ROOT, profile
from tests.runtimes.bubblewrap.conftest import require_bubblewrap

pytestmark = pytest.mark.whole_process

SEED = "KILLED_SEED"
"""Name of the variable that says which moments are tried in `fuzz`; drawn where it is not set."""
HANG = 120.0
"""Seconds after which a life of the program is taken for hung."""
EDITIONS = 3
"""How many contents the revised tasks have, one after the other."""
EVENTS = 12
"""About how many events a rollout is, of either kind."""
EXPECTED = re.compile(r"WARNING the last line of \S+ was torn off, by a crash it seems")
"""All that the program may warn of."""


@frozen(kw_only=True)
class Size:
    """How much is killed how often."""

    tasks: int
    kills: int

    @property
    def rollouts(self) -> int:
        return self.tasks * ROLLOUTS_PER_TASK


SIZES = {"dev": Size(tasks=4, kills=2), "ci": Size(tasks=5, kills=4), "fuzz": Size(tasks=100, kills=100)}


@define
class Run:
    """A run over all the lives of its program."""

    where: Path
    size: Size
    draw: random.Random
    runtime: str
    said: list[tuple[str, str, str]] = field(factory=list)
    """What, of which trace, and what else was said of it."""
    deaths: Counter[str] = field(factory=Counter)
    """What was said last before each."""
    over: bool = False
    """Whether it came to its end; what comes then is asked for tasks as they are in the last edition."""

    @property
    def folder(self) -> Path:
        return self.where / "run"

    @property
    def log(self) -> Path:
        return self.where / "log"

    @property
    def kills(self) -> int:
        return self.deaths.total()

    @property
    def edition(self) -> int:
        return EDITIONS - 1 if self.over else min(EDITIONS - 1, EDITIONS * self.kills // (self.size.kills + 1))

    def about(self, what: str) -> list[str]:
        """The traces of which this was said."""
        return [name for said, name, _ in self.said if said == what]

    def live(self) -> bool:
        """One life of the program; whether it ended by itself."""
        kills_left = self.size.kills - self.kills
        owed = self.size.rollouts - len(self.about("yielded"))
        most = EVENTS * (MAX_CONCURRENT + 2 * owed // (kills_left + 1))
        moment = self.draw.randint(1, most) if kills_left else 0
        listens = self.draw.random() < 0.5
        with self.program(0 if listens else moment) as program:
            assert program.stdout is not None
            yields, last = 0, ""
            for number, line in enumerate(program.stdout, start=1):
                last, name, of = json.loads(line)
                self.said.append((last, name, of))
                yields += last == "yielded"
                if (listens and number == moment) or (kills_left and yields > max(0, owed - kills_left)):
                    program.kill()
        if last == "ended":
            return True
        assert program.returncode == -signal.SIGKILL, f"it ended with {program.returncode}: {self.log.read_text()}"
        self.deaths[last] += 1
        return False

    @contextmanager
    def program(self, last: int) -> "Iterator[subprocess.Popen[bytes]]":
        """The program, ended when the block is."""
        argv = [sys.executable, "-m", "tests.end_to_end.mortal", self.folder, self.size.tasks, self.edition, last]
        argv.append(self.runtime)
        with (
            open(self.log, "a") as log,
            subprocess.Popen([*map(str, argv)], cwd=ROOT, stdout=subprocess.PIPE, stderr=log) as program,
        ):
            hangs = threading.Timer(HANG, program.terminate)
            hangs.start()
            try:
                yield program
            except BaseException:
                program.kill()
                raise
            finally:
                program.wait()
                hangs.cancel()

    # ---- what is wrong with it, once it has ended

    def faults(self) -> list[str]:
        return [*self.of_traces(), *self.of_yielded(), *self.of_attempts(), *self.of_files()]

    def of_traces(self) -> Iterator[str]:
        """Each rollout is there once, and as it should be."""
        found = traces(self.folder / TRACES)
        times = Counter(identity_of(trace) for trace in found)
        owed = {job.identity: job.task for job in jobs(tasks(self.size.tasks, EDITIONS - 1), ROLLOUTS_PER_TASK)}
        yield from (f"{identity} is there {count} times" for identity, count in times.items() if count != 1)
        yield from (f"{identity} is missing" for identity in owed.keys() - times.keys())
        yield from (f"{identity} was never owed" for identity in times.keys() - owed.keys())
        for trace in found:
            yield from (f"{trace.id}: {fault}" for fault in check_trace(trace))
            task = owed[identity_of(trace) or Identity("", 1, 0)]
            if trace.task.hash != task.hash:
                yield f"{trace.id} is of a task as it was"
            if "hopeless" in str(task.prompt):
                if trace.ok or trace.reward is not None or trace.errors[0].type != "HarnessError":
                    yield f"{trace.id} ended {trace!r} without an error"
            elif not trace.ok or trace.reward != 1.0 or trace.info["collected"] != answer(task.prompt):
                yield f"{trace.id} ended {trace!r}: {trace.errors}"

    def of_yielded(self) -> Iterator[str]:
        """Each trace that was yielded is there, byte for byte, or is kept beside."""
        lines = (self.folder / TRACES).read_bytes().splitlines()
        there = {json.loads(line)["id"]: digest(line) for line in lines}
        beside = Counter(trace.id for trace in self.superseded())
        yield from (f"{name} was superseded {count} times" for name, count in beside.items() if count != 1)
        yield from (f"{name} was superseded and is there" for name in beside.keys() & there.keys())
        for name, count in Counter(self.about("yielded")).items():
            if count != 1:
                yield f"{name} was yielded {count} times"
        for what, name, of in self.said:
            if what == "yielded" and name not in beside and there.get(name) != of:
                yield f"{name} is not there as it was yielded"

    def of_attempts(self) -> Iterator[str]:
        """Every attempt at a task as it is now whose box was durable is told of by the trace of its rollout, once."""
        current = {task.hash for task in tasks(self.size.tasks, EDITIONS - 1)}
        owed = {name for what, name, of in self.said if what == "minted" and of in current}
        found = traces(self.folder / TRACES)
        told = Counter(str(attempt["id"]) for trace in found for attempt in attempts(trace))
        yield from (f"attempt {name} is told of {count} times" for name, count in told.items() if count != 1)
        ended = {trace.id for trace in (*found, *self.superseded())}
        yield from (f"attempt {name} is told of, and is there" for name in told.keys() & ended)
        yield from (f"nobody tells of attempt {name}" for name in owed & set(self.about("setup")) - ended - told.keys())

    def of_files(self) -> Iterator[str]:
        """Nothing is held, and nobody complained."""
        journal = read_journal(self.folder / JOURNAL)
        yield from (f"{lease} is open" for attempt in journal.attempts for lease in attempt.leases)
        files = {path.name for path in self.folder.iterdir()}
        yield from (f"{name} is left" for name in sorted(files - {TRACES, JOURNAL, SUPERSEDED, TORN}))
        log = self.log.read_text().splitlines()
        yield from (f"it said: {line}" for line in log if not EXPECTED.match(line))

    def superseded(self) -> list[Trace]:
        path = self.folder / SUPERSEDED
        return traces(path) if path.exists() else []


def traces(path: Path) -> list[Trace]:
    return list(read_traces(path, on_fault=lambda line, fault: pytest.fail(f"{path}, line {line}: {fault}")))


def attempts(trace: Trace) -> list[dict[str, object]]:
    found: list[dict[str, object]] = trace.info.get("attempts", [])  # type: ignore[assignment]
    return found


def a_seed() -> int:
    if profile() != "fuzz":
        return 0
    return int(os.environ[SEED]) if SEED in os.environ else random.randrange(1 << 32)


@pytest.mark.parametrize("runtime", ["local", "bubblewrap"])
def test_a_run_that_is_killed_at_any_moment_is_brought_to_its_end(runtime: str, tmp_path: Path, place: Place) -> None:
    if runtime == "bubblewrap":
        require_bubblewrap()
    size, seed = SIZES[profile()], a_seed()
    sys.stdout.write(f"{SEED}={seed}\n")
    run = Run(tmp_path, size, random.Random(seed), runtime)
    for over in (False, True):  # it may have run to its end before a kill that was to meet it, and so too early
        run.over = over
        while not run.live():
            pass
    sys.stdout.write(f"{run.kills} kills, after {dict(run.deaths)}; {len(run.superseded())} traces superseded\n")
    assert run.kills >= size.kills / 2
    assert run.faults() == []
    assert place.processes() == []
    assert place.files() == []
