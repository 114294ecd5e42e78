"""The contract that every runtime keeps, kept by a stand-in's containers, and by real ones where there are any."""

import subprocess
from itertools import count

import pytest

from rollout_fsm.runtimes.docker import DockerRuntime
from rollout_fsm.testing import RuntimeContract
from tests.runtimes.docker.boxes import Stand
from tests.runtimes.docker.engine import ENGINE, WHY_NOT


class TestStandIn(RuntimeContract):
    """Its programs are processes of this machine, so nothing of what isolates them is seen here."""

    isolated = False
    network = False
    points = 2
    flood = 3 << 20

    @pytest.fixture(autouse=True)
    def _stand(self, docker: Stand) -> None:
        self.stand = docker
        self.numbers = count()

    def make(self, name: str) -> DockerRuntime:
        workspace = f"{self.stand.workspace}-{next(self.numbers)}"
        return DockerRuntime(name, workspace=workspace, network=None, grace=0.1)

    def make_failing(self, name: str) -> DockerRuntime:
        return DockerRuntime(name, image="missing")

    def leftovers(self) -> list[str]:
        return self.stand.containers()


if WHY_NOT is None:

    class TestEngine(RuntimeContract):
        """Real containers."""

        points = 5

        def make(self, name: str) -> DockerRuntime:
            return DockerRuntime(name, engine=ENGINE, grace=0.5)

        def make_failing(self, name: str) -> DockerRuntime:
            return DockerRuntime(name, engine=ENGINE, image="rollout-fsm.invalid/nothing:0")

        def leftovers(self) -> list[str]:
            words = [ENGINE, "ps", "-a", "-q", "--filter", "label=rollout-fsm.box"]
            return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
