"""Containers of runtimes whose own process has died."""

import json

import pytest

from rollout_fsm.errors import SandboxError
from rollout_fsm.messages import JSON
from rollout_fsm.runtimes.docker import DockerRuntime
from tests.runtimes.boxes import Bell
from tests.runtimes.docker.boxes import Stand, container

pytestmark = pytest.mark.real_time


def left(box: DockerRuntime) -> dict[str, JSON]:
    """The lease as it comes back from disk."""
    read: dict[str, JSON] = json.loads(json.dumps(box.lease))
    return read


async def test_a_lease_is_known_before_the_start_and_stays_the_same(docker: Stand) -> None:
    box = DockerRuntime("task 1/ä", workspace=str(docker.workspace))
    before = left(box)
    await box.start()
    assert left(box) == before
    assert docker.containers() == [before["container"]]
    assert docker.of_the_container("labels") == [f"rollout-fsm.box={before['token']}"]
    await box.stop()
    assert str(before["container"]).startswith("task-1-")


async def test_what_is_left_is_removed_any_number_of_times_and_nothing_else_is(docker: Stand) -> None:
    async with container(docker, "other") as other:
        box = DockerRuntime("box", workspace=str(docker.workspace))
        await box.start()
        bell = Bell(docker.workspace)
        await box.run(["sh", "-c", "(trap '' TERM; echo up; sleep 1000) > bell 2>&1 &"])
        for _ in range(2):
            await DockerRuntime.reclaim(left(box))
        await bell.silence()
        assert docker.containers() == [other.lease["container"]]
        assert await other.alive()
    await DockerRuntime.reclaim(left(DockerRuntime("never started")))


async def test_a_container_that_still_runs_is_taken_over_with_its_files(docker: Stand) -> None:
    box = DockerRuntime("box", workspace=str(docker.workspace))
    await box.start()
    await box.write("file", "kept")
    taken = await DockerRuntime.adopt("box", left(box))
    assert taken is not None
    assert taken.lease == box.lease
    assert await taken.read("file") == b"kept"
    assert (await taken.run(["cat", "file"])).stdout == "kept"
    assert await taken.alive()
    assert await taken.kill()
    await taken.stop()
    assert docker.containers() == []
    assert await DockerRuntime.adopt("box", left(box)) is None


async def test_another_machines_container_is_not_touched(docker: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = {**left(DockerRuntime("box")), "machine": "elsewhere"}
    with pytest.raises(SandboxError, match="is on the machine 'elsewhere' and cannot be removed from here"):
        await DockerRuntime.reclaim(lease)
    assert await DockerRuntime.adopt("box", lease) is None
    monkeypatch.setenv("DOCKER_HOST", "tcp://engine.example:2376")
    far = {**left(DockerRuntime("box")), "machine": "elsewhere"}
    await DockerRuntime.reclaim(far)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"token": "x"}, "token"),
        ({"container": "--privileged"}, "container"),
        ({"more": 1}, "more"),
        ({"grace": -1.0}, "grace"),
        ({"engine": None}, "engine"),
    ],
)
async def test_what_is_no_lease_is_refused(docker: Stand, wrong: dict[str, JSON], says: str) -> None:
    with pytest.raises(SandboxError, match=f"this is no lease of a DockerRuntime: .*{says}"):
        await DockerRuntime.reclaim({**left(DockerRuntime("box")), **wrong})
