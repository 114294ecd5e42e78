"""The isolated runtime keeps the contract of a runtime."""

from pathlib import Path

import pytest

from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtimes.bubblewrap import BubblewrapRuntime
from rollout_fsm.testing import RuntimeContract

pytestmark = pytest.mark.usefixtures("bubblewrap")


class TestBubblewrapRuntime(RuntimeContract):
    points = 5

    @pytest.fixture(autouse=True)
    def _folder(self, temporary: Path) -> None:
        self.folder = temporary

    def make(self, name: str) -> BubblewrapRuntime:
        return BubblewrapRuntime(name, grace=0.1, network=NetworkPolicy())

    def make_failing(self, name: str) -> BubblewrapRuntime:
        return BubblewrapRuntime(name, read_only=["/nowhere"])

    def leftovers(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]
