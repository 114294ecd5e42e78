"""What the races have in common when pytest runs them; with `-v`, how many schedules each had and whether they are
all."""

import logging
import os
from collections.abc import Hashable
from typing import Protocol, TypeVar

import pytest

from tests.schedules.every_schedule import AGAIN, Case, Explored, explore, most, retell

T = TypeVar("T", bound=Hashable)
PROPERTY = "schedules"
FUZZ = 20_000
"""Where there are more schedules than that, `fuzz` does not visit all either; races of two never have so many."""


class Every(Protocol):
    """Runs a case under every schedule, or under as many as the profile allows."""

    def __call__(self, case: Case[T], *, dev: int = 6, ci: int = 110, fuzz: int | None = FUZZ) -> Explored[T]: ...


@pytest.fixture
def every(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Every:
    """Explores, within the limits of the profile, and notes how far that went."""
    caplog.set_level(logging.CRITICAL, "rollout_fsm")  # thousands of rollouts

    def run(case: Case[T], *, dev: int = 6, ci: int = 110, fuzz: int | None = FUZZ) -> Explored[T]:
        if schedule := os.environ.get(AGAIN):
            told = retell(case, [int(pick) for pick in schedule.split(",")])
            pytest.fail("\n".join(["it did not fail, and came to:", str(told.outcome), *told.account]))
        explored = explore(case, limit=most(dev=dev, ci=ci, fuzz=fuzz))
        request.node.user_properties.append((PROPERTY, str(explored)))
        return explored

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.get_verbosity() < 1:
        return
    for report in terminalreporter.stats.get("passed", []):
        for name, said in getattr(report, "user_properties", ()):
            if name == PROPERTY and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid}: {said}")
