"""The check of leases finds nothing wrong with a runtime that keeps the contract, and each breach of it."""

import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from rollout_fsm.errors import SandboxError
from rollout_fsm.messages import JSON
from rollout_fsm.runtime import Runtime, class_path, runtime_class
from rollout_fsm.runtimes import LocalRuntime
from rollout_fsm.testing import check_leases

pytestmark = pytest.mark.real_time


class NoLease(LocalRuntime):
    """Forgets to say how it is found."""

    lease = None  # type: ignore[assignment]


class Failing(LocalRuntime):
    """Cannot say how it is found."""

    @property
    def lease(self) -> dict[str, JSON]:
        raise KeyError("workspace")


class NotJson(LocalRuntime):
    """Says it in a way that cannot be written down."""

    @property
    def lease(self) -> dict[str, JSON]:
        return {"path": Path("/x")}  # type: ignore[dict-item]


class Late(LocalRuntime):
    """Knows only after `start` where it is."""

    @property
    def lease(self) -> dict[str, JSON]:
        return {**super().lease, "boot": "later" if self._workspace is None else "now"}


class Standing(LocalRuntime):
    """Reclaims nothing."""

    @classmethod
    async def reclaim(cls, lease: Mapping[str, JSON]) -> None:
        """Nothing."""


class Once(LocalRuntime):
    """Can be reclaimed once."""

    @classmethod
    async def reclaim(cls, lease: Mapping[str, JSON]) -> None:
        shutil.rmtree(str(lease["workspace"]))


class NeverAdopted(LocalRuntime):
    """Gives up every box."""

    @classmethod
    async def adopt(cls, name: str, lease: Mapping[str, JSON]) -> None:
        """Nothing."""


class Elsewhere(LocalRuntime):
    """Adopts another box than the one that stands."""

    @classmethod
    async def adopt(cls, name: str, lease: Mapping[str, JSON]) -> LocalRuntime:
        adopted = cls(name)
        await adopted.start()
        return adopted


def hidden() -> type[Runtime]:
    class Hidden(LocalRuntime):
        """Where no other process finds it."""

    return Hidden


async def test_a_local_runtime_conforms_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert await check_leases(LocalRuntime) == []
    assert await check_leases(partial(LocalRuntime, cap=10)) == []
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (NoLease, "lease is None before start: it must be known before anything is made"),
        (Failing, "lease raises before start: KeyError: 'workspace'"),
        (NotJson, "lease is no JSON: path: PosixPath('/x') (PosixPath) is not JSON"),
        (Late, "lease is another one after start"),
        (Standing, "adopt gives a box after reclaim: it is still there"),
        (Standing, "a box is alive after it was reclaimed"),
        (
            Standing,
            "reclaim raises no SandboxError for what is no lease of this runtime: it would be taken for removed",
        ),
        (Once, "reclaiming a box that was never started raised FileNotFoundError"),
        (NeverAdopted, "adopt gives None for a box that stands"),
        (Elsewhere, "adopt gives a box that was never started"),
        (Elsewhere, "adopting a box raised FileNotFoundError"),
        (hidden(), "cannot be found: AttributeError"),
    ],
)
async def test_each_breach_is_found(
    kind: Callable[[str], Runtime], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert any(fault in found for found in await check_leases(kind))


async def test_a_program_that_does_not_run_is_a_fault() -> None:
    assert await check_leases(LocalRuntime, program=["false"]) == ["['false'] ended with 1 in an adopted box"]


async def test_a_runtime_without_leases_refuses_and_adopts_nothing() -> None:
    assert Runtime.lease.fget(LocalRuntime("x")) is None  # type: ignore[attr-defined]
    assert await Runtime.adopt("x", {}) is None
    with pytest.raises(SandboxError, match="Runtime cannot remove a box that a dead process left behind"):
        await Runtime.reclaim({})


def test_a_class_is_found_by_its_path_and_what_is_none_is_refused() -> None:
    assert runtime_class(class_path(LocalRuntime)) is LocalRuntime
    for path, why in {
        "no_such_module:X": "ModuleNotFoundError",
        "rollout_fsm.runtime:Nothing": "AttributeError",
        "rollout_fsm.runtime:ProgramResult": "is no runtime any more",
        "": "cannot be found",
    }.items():
        with pytest.raises(SandboxError, match=why):
            runtime_class(path)
