"""A command line of Docker's, which is a stand-in, and boxes of it."""

import sys
from pathlib import Path

import pytest

from rollout_fsm.runtimes.docker.box import IMAGE
from tests.runtimes.docker.boxes import Stand


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """The stand-in as the `docker` of PATH."""
    if sys.platform != "linux":
        pytest.skip("the stand-in finds its containers' processes in /proc")
    stand = Stand(tmp_path)
    stand.home.mkdir()
    stand.install("docker")
    stand.pulled(IMAGE)
    monkeypatch.setenv("PATH", f"{stand.bin}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_DOCKER", str(stand.home))
    return stand
