"""A cancellation at every scheduling point of a box's life leaves neither a process nor a folder."""

import itertools
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from rollout_fsm.runtimes import LocalRuntime
from tests.runtimes.boxes import children, with_argument

ENOUGH = 10
"""How many points in a row have to lie beyond the end of the case: how long it waits for dying processes varies."""

Case = Callable[[LocalRuntime, str], Awaitable[None]]


class CancelAt(trio.abc.Instrument):
    """Cancels a scope right after the k-th time that a task has yielded."""

    def __init__(self, point: int, scope: trio.CancelScope) -> None:
        self.point = point
        self.scope = scope
        self.seen = 0
        self.fired = False
        self.where = ""

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.seen += 1
        if self.seen == self.point:
            self.fired = True
            self.where = " > ".join(frame.f_code.co_name for frame, _ in task.iter_await_frames())
            self.scope.cancel()


async def whole_life(runtime: LocalRuntime, tag: str) -> None:
    try:
        await runtime.start()
        await runtime.write("folder/file", "x")
        await runtime.run(["sh", "-c", "sleep $0 & setsid sleep $0 & cat; chmod 555 folder", tag], input=b"x" * 100_000)
    finally:
        await runtime.stop()


async def killed(runtime: LocalRuntime, tag: str) -> None:
    try:
        await runtime.start()
        await runtime.prepare_execution([])
        await runtime.run(["sh", "-c", "sleep $0 & setsid sleep $0 & :", tag])
        await runtime.kill()
        assert with_argument(tag) == []
    finally:
        await runtime.stop()


async def timed_out(runtime: LocalRuntime, tag: str) -> None:
    try:
        await runtime.start()
        with pytest.raises(TimeoutError):
            await runtime.run(["sh", "-c", "trap '' TERM; sleep $0 & setsid sleep $0 & wait", tag], timeout=0)
        assert with_argument(tag) == []
    finally:
        await runtime.stop()


async def not_found(runtime: LocalRuntime, tag: str) -> None:
    try:
        await runtime.start()
        with pytest.raises(FileNotFoundError):
            await runtime.run(["no-such-program", tag])
    finally:
        await runtime.stop()


async def parallel(runtime: LocalRuntime, tag: str) -> None:
    try:
        await runtime.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run, ["sh", "-c", "sleep $0 & :", tag])
            nursery.start_soon(runtime.run, ["sh", "-c", "setsid sleep $0 & cat", tag])
    finally:
        await runtime.stop()


async def cancelled_at(case: Case, point: int, tag: str) -> CancelAt:
    with trio.fail_after(60), trio.CancelScope() as scope:
        injector = CancelAt(point, scope)
        trio.lowlevel.add_instrument(injector)
        try:
            await case(LocalRuntime("box", grace=0.02), tag)
        finally:
            trio.lowlevel.remove_instrument(injector)
    return injector


@pytest.mark.parametrize("case", [whole_life, killed, timed_out, not_found, parallel])
def test_a_cancellation_at_any_point_leaves_nothing(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("rollout_fsm.runtimes.programs.DRAIN", 0.01)
    places: set[str] = set()
    before = children()  # of tests that ran in this process
    points, missed = itertools.count(1), 0
    while missed < ENOUGH:
        point = next(points)
        tag = f"1000.{os.getpid():08}{point:05}"
        injector = trio.run(cancelled_at, case, point, tag)
        missed = 0 if injector.fired else missed + 1
        message = f"cancelled at point {point} in {injector.where}"
        assert with_argument(tag) == [], message
        assert children(but=before) == [], message
        assert list(tmp_path.iterdir()) == [], message
        places.update(injector.where.split(" > "))
    assert {"start", "run", "stop"} <= places
