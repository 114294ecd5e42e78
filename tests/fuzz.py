"""`python -m tests.fuzz [--minutes N] [--rounds N] [arguments of pytest]`: look for failures until one is found.

First all that is no property test once, in the profile `fuzz`, in which sweeps are exhaustive; then the property tests,
round after round, each with another seed. Each round is a process of its own and says one line. It ends with a failure,
after so many minutes or rounds, or by Ctrl-C, and says what it did. What fails is told as pytest tells it and kept:
examples in `profiles.FOUND`, where the next run tries them first, scenarios in `profiles.KEPT`, which every run plays.

Exits with 0 if nothing failed, 1 if something did, 2 for a wrong argument, 130 after Ctrl-C.
"""

import argparse
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from attrs import define, field

from tests.profiles import FOUND, KEPT, ROOT

SWEEPS = "all else, once"
WRONG_ARGUMENT, NOTHING_SELECTED = 4, 5
"""Exit codes of pytest."""
GOING = 20.0
"""Seconds that an interrupted round has to go, before it is killed."""


class TimeIsUp(Exception):  # noqa: N818
    """The minutes are over."""


@define(eq=False)
class Fuzz:
    """A run of rounds."""

    arguments: Sequence[str]
    deadline: float
    """On the monotonic clock."""
    done: int = field(default=0, init=False)
    """How many rounds of property tests went well."""
    began: float = field(factory=time.monotonic, init=False)
    kept_before: frozenset[Path] = field(factory=lambda: frozenset(KEPT.glob("*.json")), init=False)

    def run(self, rounds: int | None) -> int:
        """Run rounds until one fails; returns an exit code. Raises `TimeIsUp` and `KeyboardInterrupt`."""
        if code := self._round(SWEEPS, "-m", "not hypothesis"):
            return code
        while rounds is None or self.done < rounds:
            seed = random.SystemRandom().getrandbits(32)
            name = f"round {self.done + 1}, seed {seed}"
            if code := self._round(name, "-m", "hypothesis", f"--hypothesis-seed={seed}"):
                return code
            self.done += 1
        return 0

    def summary(self) -> str:
        """What was done."""
        rounds = f"{self.done} round{'' if self.done == 1 else 's'} of property tests"
        return f"{rounds} without a failure, {time.monotonic() - self.began:.0f} s in all"

    def _round(self, name: str, *arguments: str) -> int:
        """Run one round and say its line; if it fails, say all that it said, and what is kept."""
        code, output = self._pytest(*arguments)
        said = [line for line in output.splitlines() if line.strip()]
        say(f"{name}: {said[-1].strip('= ') if said else 'not a word'}")
        if code == NOTHING_SELECTED:
            return 0 if name == SWEEPS else 2
        if code:
            say(output)
            if code == WRONG_ARGUMENT:
                return 2
            say(f"examples that fail are kept in {FOUND}; the next run tries them first")
            for path in sorted({*KEPT.glob("*.json")} - self.kept_before):
                say(f"a scenario that fails is kept in {path}")
            return 1
        return 0

    def _pytest(self, *arguments: str) -> tuple[int, str]:
        """Run pytest in a session of its own: Ctrl-C strikes here alone, and the round is told from here."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeIsUp
        command = [sys.executable, "-m", "pytest", "-q", "--hypothesis-profile=fuzz", *self.arguments, *arguments]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        ) as pytest:
            try:
                output, _ = pytest.communicate(timeout=None if math.isinf(left) else left)
            except BaseException as interrupted:
                _end(pytest)
                if isinstance(interrupted, subprocess.TimeoutExpired):
                    raise TimeIsUp from None
                raise
        return pytest.returncode, output


def say(line: str) -> None:
    """A line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _end(pytest: "subprocess.Popen[str]") -> None:
    """Interrupt a round, so that its tests release what they hold; kill what is left of it."""
    pytest.send_signal(signal.SIGINT)
    try:
        pytest.communicate(timeout=GOING)
    except subprocess.TimeoutExpired:
        os.killpg(pytest.pid, signal.SIGKILL)
        pytest.communicate()


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after so many minutes")
    parser.add_argument("--rounds", type=int, help="end after so many rounds of property tests")
    own, others = parser.parse_known_args(arguments)
    fuzz = Fuzz(others, time.monotonic() + 60 * own.minutes)
    try:
        code = fuzz.run(own.rounds)
    except TimeIsUp:
        code = 0
    except KeyboardInterrupt:
        code = 130
    say(fuzz.summary())
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
