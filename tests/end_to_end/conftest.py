"""Every test here is a real run, and after each nothing of it may be left: no process, no temporary file, no socket."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.end_to_end.leftovers import MARK, Place, descriptors


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Where the test's runs happen; looked through once the test is over."""
    place = Place(folder=(tmp_path / "temporary").resolve(), mark=MARK + uuid4().hex)
    place.folder.mkdir()
    monkeypatch.setenv(place.mark, "0")
    monkeypatch.setenv("TMPDIR", str(place.folder))
    monkeypatch.setattr(tempfile, "tempdir", str(place.folder))
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    before = descriptors()
    yield place
    assert place.processes() == []
    assert place.files() == []
    assert descriptors() == before
