"""What a property test found: said in so few words that a person reads it, and, in `fuzz`, kept as an example.

A failure is the faults, what happened, and the example in a form that can be pasted: a scenario as the JSON that
`rollout-fsm simulate` plays, a plan as the Python that `@example` takes. No stack of the test's own code is in it.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from rollout_fsm.errors import leaves
from tests.profiles import KEPT, profile

WIDTH = 120

P = ParamSpec("P")


class Found(pytest.fail.Exception):  # type: ignore[misc, name-defined]
    """An example that fails."""

    def __init__(self, faults: Sequence[str], *, example: str, story: Sequence[str] = (), scenario: Any = None) -> None:
        self.faults, self.scenario = tuple(faults), scenario
        told = [*faults, "", "in this example:", example, *(["", "what happened:"] if story else []), *story]
        super().__init__("\n".join(told), pytrace=False)


def found_in_scenario(faults: Sequence[str], scenario: Any) -> Found:
    """A scenario that fails, as JSON that a file may hold."""
    return Found(
        faults, example=f"{written(scenario)}\n\n(in a file, rollout-fsm simulate plays it)", scenario=scenario
    )


def written(scenario: Any) -> str:
    """A scenario as JSON, on one line if that is not too long."""
    line = json.dumps(scenario, allow_nan=False)
    return line if len(line) <= WIDTH else json.dumps(scenario, allow_nan=False, indent=2)


def kept_in_fuzz(test: Callable[P, None], folder: Path = KEPT) -> Callable[P, None]:
    """Around a property test: scenarios that it fails with, shrunk, are kept as files when the profile is `fuzz`."""

    @wraps(test)
    def keeping(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            test(*args, **kwargs)
        except BaseException as failed:
            if profile() == "fuzz":
                for found in leaves(failed):
                    if isinstance(found, Found) and found.scenario is not None:
                        keep(found, folder)
            raise

    return keeping


def keep(found: Found, folder: Path) -> Path:
    """Write a scenario down, as a case that expects only what every outcome must be."""
    case = {"about": f"Found by chance: {found.faults[0]}", "rules": [], "scenario": found.scenario, "expect": {}}
    digest = hashlib.sha256(json.dumps(found.scenario, sort_keys=True).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"found_{digest}.json"
    path.write_text(json.dumps(case, indent=2, allow_nan=False) + "\n")
    return path
