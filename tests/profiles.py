"""How much the tests that try everything try: `dev` takes seconds, `ci` is bounded, `fuzz` is exhaustive.

One choice for property tests and sweeps alike, the one of hypothesis: `pytest --hypothesis-profile=fuzz`. Without it,
`ci` where the environment says `CI`, else `dev`. A sample is the same in every run, so that what fails, fails again.
"""

import os
import random
from collections.abc import Sequence
from typing import Literal, TypeVar, cast

import hypothesis

Profile = Literal["dev", "ci", "fuzz"]
T = TypeVar("T")


def register_profiles() -> None:
    """Make the three profiles known to hypothesis and load the default one."""
    hypothesis.settings.register_profile("dev", deadline=None, max_examples=50)
    hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=100)
    hypothesis.settings.register_profile("fuzz", deadline=None, print_blob=True, max_examples=5_000)
    hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def profile() -> Profile:
    """The profile of this run. Ask it while tests are collected or run, not on import."""
    return cast(Profile, hypothesis.settings.get_current_profile_name())


def sample(items: Sequence[T], *, dev: int, ci: int) -> list[T]:
    """At most so many of the items in the profile, drawn with a fixed seed and kept in order; all of them in `fuzz`."""
    wanted = {"dev": dev, "ci": ci, "fuzz": len(items)}[profile()]
    if wanted >= len(items):
        return list(items)
    return [items[index] for index in sorted(random.Random(0).sample(range(len(items)), wanted))]
