"""How much the tests that try everything try: `dev` takes seconds, `ci` is bounded, `fuzz` is exhaustive where that
ends: of a race that has more, it plays 20,000 schedules.

One choice for property tests and sweeps alike, the one of hypothesis: `pytest --hypothesis-profile=fuzz`. Without it,
`ci` where the environment says `CI`, else `dev`. A sample is the same in every run, and so are the examples in `ci`:
what fails, fails again. What failed in `dev` or `fuzz` is kept in `FOUND` and tried first by the next run of either.
"""

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import hypothesis
from hypothesis import Phase
from hypothesis.database import DirectoryBasedExampleDatabase

Profile = Literal["dev", "ci", "fuzz"]
T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
FOUND = ROOT / ".hypothesis" / "examples"
"""Where hypothesis keeps the examples that failed, whatever folder it is started in."""

KEPT = ROOT / "tests" / "cases" / "found"
"""Scenarios that failed in `fuzz`, shrunk. They are played in every run (tests/simulation/test_any_scenario.py)."""

EXAMPLES: dict[Profile, int] = {"dev": 15, "ci": 100, "fuzz": 1_000}
"""How many examples a property is tried with. `python -m tests.fuzz` tries so many again and again, with new seeds."""

PHASES = [phase for phase in Phase if phase is not Phase.explain]
"""All but the guessing which lines are to blame: it costs time and hides the example."""


def register_profiles() -> None:
    """Make the three profiles known to hypothesis and load the default one."""
    found = DirectoryBasedExampleDatabase(FOUND)
    more: dict[Profile, dict[str, Any]] = {
        "dev": {"database": found, "report_multiple_bugs": False},
        "ci": {"derandomize": True, "print_blob": True, "report_multiple_bugs": False},
        "fuzz": {"database": found, "print_blob": True},
    }
    for name, settings in more.items():
        hypothesis.settings.register_profile(
            name, deadline=None, max_examples=EXAMPLES[name], phases=PHASES, **settings
        )
    hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def profile() -> Profile:
    """The profile of this run. Ask it while tests are collected or run, not on import."""
    return cast(Profile, hypothesis.settings.get_current_profile_name())


def examples(share: float, *, least: int = 1) -> hypothesis.settings:
    """For a property whose examples are dear: this share of the profile's number of them, and at least so many."""
    return hypothesis.settings(max_examples=max(least, round(share * EXAMPLES[profile()])))


def sample(items: Sequence[T], *, dev: int, ci: int) -> list[T]:
    """At most so many of the items in the profile, drawn with a fixed seed and kept in order; all of them in `fuzz`."""
    wanted = {"dev": dev, "ci": ci, "fuzz": len(items)}[profile()]
    if wanted >= len(items):
        return list(items)
    return [items[index] for index in sorted(random.Random(0).sample(range(len(items)), wanted))]
