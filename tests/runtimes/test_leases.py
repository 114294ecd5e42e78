"""A box whose process was killed is found by its lease: removed, or taken over. Nothing else is touched."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

from rollout_fsm.errors import SandboxError
from rollout_fsm.messages import JSON
from rollout_fsm.runtimes import LocalRuntime
from tests.runtimes.boxes import Bell, box, lives, with_argument

pytestmark = pytest.mark.real_time
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "boxes"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@frozen
class Left:
    """What a killed process left."""

    lease: dict[str, JSON]
    pids: list[int]
    workspace: Path

    def living(self) -> list[int]:
        return [pid for pid in self.pids if lives(pid)]


def abandoned(folder: Path) -> Left:
    """Have a process make a box and kill it."""
    command = [sys.executable, "-m", "tests.runtimes.abandoned", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        lease, pids = json.loads(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
    left = Left(lease, pids, Path(lease["workspace"]))
    assert left.living() == pids
    assert left.workspace.is_dir()
    return left


async def test_a_box_whose_process_was_killed_is_removed_with_its_processes_and_no_other(temporary: Path) -> None:
    left = abandoned(temporary)
    async with box("other") as other:
        bystander = int((await other.run(["sh", "-c", "sleep 1000 & echo $!"])).stdout)
        await LocalRuntime.reclaim(left.lease)
        assert left.living() == []
        assert os.listdir(temporary) == [other.workspace.name]
        assert lives(bystander)
        await LocalRuntime.reclaim(left.lease)


async def test_a_box_whose_process_was_killed_is_taken_over_as_it_stands(temporary: Path) -> None:
    left = abandoned(temporary)
    adopted = await LocalRuntime.adopt("again", left.lease)
    assert adopted is not None
    assert (adopted.name, adopted.cap, adopted.grace, adopted.lease) == ("again", 100, 0.2, left.lease)
    assert await adopted.read("answer") == b"42"
    assert await adopted.alive()
    assert left.living() == left.pids
    with pytest.raises(SandboxError, match="is started already"):
        await adopted.start()
    await adopted.prepare_execution([])
    bell = Bell(adopted.workspace)
    assert (await adopted.run(["sh", "-c", "exec 9>bell; sleep 1000 & cat answer"])).stdout == "42"
    assert await adopted.kill()
    await bell.silence()
    assert left.living() == left.pids  # they are not of this execution
    await adopted.stop()
    assert left.living() == []
    assert os.listdir(temporary) == []
    assert await LocalRuntime.adopt("again", left.lease) is None


async def test_a_box_that_was_taken_over_and_left_again_is_taken_over_again(temporary: Path) -> None:
    left = abandoned(temporary)
    second = await LocalRuntime.adopt("second", left.lease)
    assert second is not None
    more = int((await second.run(["sh", "-c", "sleep 1000 & echo $!"])).stdout)
    third = await LocalRuntime.adopt("third", left.lease)
    assert third is not None
    await third.prepare_execution([])
    assert await third.kill()
    assert lives(more)  # it was there before
    await third.stop()
    assert not lives(more)
    assert left.living() == []
    await second.stop()


async def test_a_lease_is_known_before_the_start_and_does_not_change() -> None:
    runtime = LocalRuntime("ß/../" + "x" * 100)
    lease = runtime.lease
    assert json.loads(json.dumps(lease)) == lease
    await runtime.start()
    assert str(runtime.workspace) == lease["workspace"]
    assert len(runtime.workspace.name) <= 57
    assert runtime.lease == lease
    await runtime.stop()
    assert runtime.lease == lease
    assert LocalRuntime("x").lease["token"] != LocalRuntime("x").lease["token"]


async def test_a_box_that_was_never_started_is_reclaimed_and_none_is_adopted(temporary: Path) -> None:
    lease = LocalRuntime("box").lease
    await LocalRuntime.reclaim(lease)
    assert await LocalRuntime.adopt("box", lease) is None
    assert os.listdir(temporary) == []


async def test_a_box_of_another_machine_is_not_touched_and_named() -> None:
    async with box() as runtime:
        await runtime.write("file", "x")
        lease = {**runtime.lease, "machine": "elsewhere 7"}
        with pytest.raises(SandboxError, match=rf"the box in {runtime.workspace} is on the machine 'elsewhere 7'"):
            await LocalRuntime.reclaim(lease)
        assert await LocalRuntime.adopt("box", lease) is None
        assert await runtime.read("file") == b"x"


async def test_after_a_restart_of_the_machine_the_folder_goes_and_no_process_is_looked_for(temporary: Path) -> None:
    async with box() as runtime:
        server = int((await runtime.run(["sh", "-c", "sleep 1000 & echo $!"])).stdout)
        lease = {**runtime.lease, "boot": "an earlier one"}
        assert await LocalRuntime.adopt("box", lease) is None
        await LocalRuntime.reclaim(lease)
        assert os.listdir(temporary) == []
        assert lives(server)


def _without(lease: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in lease.items() if key != name}


@pytest.mark.parametrize(
    "workspace", ["/", "/home", "relative-{token}", "", "/tmp/box-0123456789abcdef", "/{token}/.."]
)
async def test_a_folder_that_no_box_made_is_never_removed(workspace: str) -> None:
    lease = LocalRuntime("box").lease
    lease["workspace"] = workspace.format(token=str(lease["token"])[:16])
    for use in (LocalRuntime.reclaim(lease), LocalRuntime.adopt("box", lease)):
        with pytest.raises(SandboxError, match="this is no lease of a LocalRuntime"):
            await use


@pytest.mark.parametrize("name", ["workspace", "token", "machine", "boot", "cap", "grace", "read_cap"])
async def test_what_is_no_lease_is_refused(name: str) -> None:
    lease = LocalRuntime("box").lease
    for wrong in (_without(lease, name), {**lease, name: None}, {**lease, "more": 1}):
        with pytest.raises(SandboxError, match="this is no lease of a LocalRuntime"):
            await LocalRuntime.reclaim(wrong)
    with pytest.raises(SandboxError, match="token"):
        await LocalRuntime.reclaim({**lease, "token": "PATH"})


@pytest.mark.parametrize("instead", ["link", "file"])
async def test_what_stands_in_the_place_of_the_folder_goes_and_where_it_leads_stays(
    instead: str, temporary: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".tmp").mkdir(parents=True)
    lease = LocalRuntime("box").lease
    if instead == "link":
        os.symlink(elsewhere, str(lease["workspace"]))
    else:
        os.mknod(str(lease["workspace"]))
    assert await LocalRuntime.adopt("box", lease) is None
    await LocalRuntime.reclaim(lease)
    assert os.listdir(temporary) == []
    assert (elsewhere / ".tmp").is_dir()


async def test_what_would_not_go_is_named_and_the_next_call_tries_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = abandoned(temporary)
    with monkeypatch.context() as patch:
        patch.setattr("rollout_fsm.runtimes.local.remove", lambda folder: f"{folder}/x: busy")
        with pytest.raises(SandboxError, match=f"its workspace {left.workspace} could not be removed: .*busy"):
            await LocalRuntime.reclaim(left.lease)
    await LocalRuntime.reclaim(left.lease)
    assert os.listdir(temporary) == []
    assert left.living() == []


async def test_a_cancellation_does_not_stop_the_removing_half_way(temporary: Path) -> None:
    left = abandoned(temporary)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(LocalRuntime.reclaim, left.lease)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert left.living() == []
    assert os.listdir(temporary) == []


async def test_reclaiming_and_adopting_leave_no_descriptor_open(temporary: Path) -> None:
    async with box():
        pass
    before = sorted(os.listdir("/proc/self/fd"))
    async with box() as runtime:
        await runtime.write("file", "x")
        adopted = await LocalRuntime.adopt("again", runtime.lease)
        assert adopted is not None
        await adopted.stop()
        await LocalRuntime.reclaim(runtime.lease)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert with_argument(str(temporary)) == []
