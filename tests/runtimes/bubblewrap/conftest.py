"""Tests of the isolated runtime are skipped where there can be none, and leave neither a process nor a folder."""

import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.runtimes.bubblewrap import boxes

unavailable = cache(boxes.unavailable)


def require_bubblewrap() -> None:
    """Skip the test where bubblewrap is absent or not permitted, saying so; fail it where it is required."""
    if (why := unavailable()) is not None:
        (pytest.fail if os.environ.get("ROLLOUT_FSM_BUBBLEWRAP") == "required" else pytest.skip)(why)


@pytest.fixture
def bubblewrap() -> None:
    """For tests that make boxes."""
    require_bubblewrap()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that boxes make theirs in; the test has to leave it empty, and no process behind."""
    folder = tmp_path / "boxes"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    before = boxes.descendants()
    yield folder
    assert list(folder.iterdir()) == []
    assert [pid for pid in boxes.descendants() if pid not in before] == []
