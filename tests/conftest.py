"""Async tests run under trio: on a virtual clock and one fixed schedule, or, where marked `real_time`, on the real one.

`real_time` is for tests with processes, sockets of other processes, or threads, which a virtual clock would run past.
Such a test waits for events, never for time.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import hypothesis  # noqa: F401  loads trio's plugin, which makes its scheduling deterministic
import pytest
import trio
from trio.testing import MockClock

from tests.profiles import register_profiles

register_profiles()

HANG = 3600.0
"""Seconds after which a test is taken for hung: virtual ones, so that a test in which all sleep fails at once."""


def under_trio(function: Callable[..., Awaitable[None]], *, real_time: bool) -> Callable[..., None]:
    def test(**kwargs: Any) -> None:
        async def main() -> None:
            with trio.fail_after(120 if real_time else HANG):
                await function(**kwargs)

        trio._core._run._r.seed(0)  # type: ignore[attr-defined]
        trio.run(main, clock=None if real_time else MockClock(autojump_threshold=0))

    return test


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_time: an async test on the real clock, with real processes or sockets")
    config.addinivalue_line("markers", "whole_process: runs the program as a user does")


@pytest.fixture(scope="module")
def no_log() -> Iterator[None]:
    """Nothing of the engine's log: for properties, whose report would have that of every example."""
    log = logging.getLogger("rollout_fsm")
    before, log.disabled = log.disabled, True
    yield
    log.disabled = before


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    real_time = pyfuncitem.get_closest_marker("real_time") is not None
    inner = getattr(getattr(pyfuncitem.obj, "hypothesis", None), "inner_test", None)
    if inspect.iscoroutinefunction(inner):
        pyfuncitem.obj.hypothesis.inner_test = under_trio(inner, real_time=real_time)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = under_trio(pyfuncitem.obj, real_time=real_time)
