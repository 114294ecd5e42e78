"""A box whose engine was killed is dead; what is left of it is found by its lease, and removed or taken over."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.messages import JSON
from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtimes.bubblewrap import BoxLimits, BubblewrapRuntime
from rollout_fsm.runtimes.table import stat_fields
from rollout_fsm.testing import check_leases
from tests.runtimes.bubblewrap.boxes import box, cancelling_at, descendants, folder, with_argument

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("bubblewrap", "temporary")]
ROOT = Path(__file__).resolve().parents[3]
TAG = f"1000.{os.getpid():08}"
"""An argument by which the programs of a box are found from outside."""


@contextmanager
def abandoning(temporary: Path, left: str) -> Iterator[tuple[subprocess.Popen[bytes], list[dict[str, JSON]]]]:
    """A process that has made two boxes, and their leases; it is killed in the end, and nothing of them lives then."""
    command = [sys.executable, "-m", "tests.runtimes.bubblewrap.abandoned", str(temporary), TAG, left]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        leases = json.loads(child.stdout.readline())
        started = [os.pidfd_open(pid) for pid in descendants(child.pid)]
        assert len(started) >= 4
        yield child, leases
        child.send_signal(signal.SIGKILL)
    for process in started:
        select.select([process], [], [])
        os.close(process)
    assert with_argument(TAG) == []


def abandoned(temporary: Path, left: str = "nothing") -> list[dict[str, JSON]]:
    """The leases of two boxes of a process that was killed."""
    with abandoning(temporary, left) as (_, leases):
        return leases


@pytest.mark.parametrize("left", ["nothing", "a server", "what would not die", "a program that runs"])
async def test_an_engine_that_is_killed_leaves_no_process_and_a_folder_that_is_removed(
    left: str, temporary: Path
) -> None:
    one, other = abandoned(temporary, left)
    await BubblewrapRuntime.reclaim(one)
    assert [str(temporary / name) for name in os.listdir(temporary)] == [other["workspace"]]
    await BubblewrapRuntime.reclaim(one)
    await BubblewrapRuntime.reclaim(other)
    assert os.listdir(temporary) == []


async def test_what_programs_made_unreadable_is_removed(temporary: Path) -> None:
    for lease in abandoned(temporary, "an unreadable mess"):
        await BubblewrapRuntime.reclaim(lease)
    assert os.listdir(temporary) == []


async def test_files_of_an_engine_that_was_killed_are_taken_over_in_a_box_like_theirs(temporary: Path) -> None:
    lease, other = abandoned(temporary)
    adopted = await BubblewrapRuntime.adopt("again", lease)
    assert adopted is not None
    assert (adopted.name, adopted.cap, adopted.grace, adopted.lease) == ("again", 100, 0.1, lease)
    assert await adopted.read("answer") == b"42"
    assert (await adopted.run(["cat", "answer", "/tmp/answer"])).stdout == "4243"
    assert await adopted.alive()
    assert await adopted.kill()
    with pytest.raises(SandboxError, match="is started already"):
        await adopted.start()
    await adopted.prepare_execution([])
    await adopted.run(["sh", "-c", "sleep 1000 & :"])
    assert await adopted.kill()
    await adopted.stop()
    assert await BubblewrapRuntime.adopt("again", lease) is None
    await BubblewrapRuntime.reclaim(other)


async def test_what_the_engine_had_not_heard_yet_does_not_keep_the_box_from_saying_what_lived(temporary: Path) -> None:
    with abandoning(temporary, "a program that runs") as (engine, leases):
        engine.send_signal(signal.SIGSTOP)
        programs = [pid for pid in with_argument(TAG) if pid != engine.pid]
        for pid in programs:
            os.kill(pid, signal.SIGKILL)
        while any(stat_fields(pid) for pid in programs):
            pass  # until their first processes have waited for them
    for lease in leases:
        adopted = await BubblewrapRuntime.adopt("again", lease)
        assert adopted is not None
        await adopted.stop()


@pytest.mark.parametrize("left", ["a server", "a program that runs"])
async def test_a_box_in_which_something_lived_is_not_taken_over(left: str, temporary: Path) -> None:
    for lease in abandoned(temporary, left):
        assert await BubblewrapRuntime.adopt("again", lease) is None
        await BubblewrapRuntime.reclaim(lease)


async def test_a_box_in_which_something_lives_is_not_taken_over_from_an_engine_that_lives() -> None:
    async with box() as runtime:
        await runtime.run(["sh", "-c", "sleep 1000 & echo $! > server"])
        assert await BubblewrapRuntime.adopt("again", runtime.lease) is None
        assert (await runtime.run(["sh", "-c", "kill -0 $(cat server)"])).exit_code == 0


async def test_it_is_not_taken_over_where_nobody_said_what_lived(temporary: Path) -> None:
    lease, other = abandoned(temporary)
    (Path(str(lease["workspace"])) / "left").write_text("")
    (Path(str(other["workspace"])) / "left").unlink()
    for each in (lease, other):
        assert await BubblewrapRuntime.adopt("again", each) is None
        await BubblewrapRuntime.reclaim(each)


async def test_a_box_that_was_taken_over_and_left_again_is_taken_over_again(temporary: Path) -> None:
    lease, other = abandoned(temporary)
    await BubblewrapRuntime.reclaim(other)
    second = await BubblewrapRuntime.adopt("second", lease)
    assert second is not None
    third = await BubblewrapRuntime.adopt("third", lease)
    assert third is not None
    assert not await second.alive()
    assert await third.read("answer") == b"42"
    await third.stop()
    await second.stop()


async def test_a_take_over_that_is_cancelled_anywhere_can_be_done_again(temporary: Path) -> None:
    lease, other = abandoned(temporary)
    await BubblewrapRuntime.reclaim(other)
    adopted: BubblewrapRuntime | None = None
    point = 0
    while adopted is None:
        point += 1
        with trio.CancelScope() as scope, cancelling_at(point, scope):
            adopted = await BubblewrapRuntime.adopt("again", lease)
            assert adopted is not None
    assert point > 5
    assert await adopted.read("answer") == b"42"
    await adopted.stop()


async def test_it_keeps_the_contract_of_leases() -> None:
    assert await check_leases(BubblewrapRuntime) == []


async def test_a_lease_says_how_the_box_is_made_and_is_plain_json() -> None:
    runtime = BubblewrapRuntime(
        "ß/../" + "x" * 100,
        limits=BoxLimits(memory=1 << 30),
        network=NetworkPolicy(allow=["example.org"], block=["*.example.org"]),
        read_only=["/usr"],
    )
    lease = runtime.lease
    assert json.loads(json.dumps(lease)) == lease
    assert len(folder(runtime).name) <= 57
    assert await BubblewrapRuntime.adopt("box", lease) is None
    await BubblewrapRuntime.reclaim(lease)
    assert runtime.lease == lease
    assert BubblewrapRuntime("x").lease["token"] != BubblewrapRuntime("x").lease["token"]


async def test_a_box_of_another_machine_is_not_touched_and_named() -> None:
    async with box() as runtime:
        await runtime.write("file", "x")
        lease = {**runtime.lease, "machine": "elsewhere 7"}
        with pytest.raises(SandboxError, match=rf"the box in {folder(runtime)} is on the machine 'elsewhere 7'"):
            await BubblewrapRuntime.reclaim(lease)
        assert await BubblewrapRuntime.adopt("box", lease) is None
        assert await runtime.read("file") == b"x"


@pytest.mark.parametrize("name", ["workspace", "token", "machine", "boot", "cap", "grace", "read_cap", "limits"])
async def test_what_is_no_lease_is_refused(name: str) -> None:
    lease: dict[str, Any] = BubblewrapRuntime("box").lease
    without = {key: value for key, value in lease.items() if key != name}
    for wrong in (without, {**lease, name: None}, {**lease, "more": 1}, {**lease, "limits": {"memory": 0}}):
        with pytest.raises(SandboxError, match="this is no lease of a BubblewrapRuntime"):
            await BubblewrapRuntime.reclaim(wrong)
    with pytest.raises(SandboxError, match="token"):
        await BubblewrapRuntime.reclaim({**lease, "workspace": "/home"})


@pytest.mark.parametrize("instead", ["link", "file"])
async def test_what_stands_in_the_place_of_the_folder_goes_and_where_it_leads_stays(
    instead: str, temporary: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "workspace").mkdir(parents=True)
    lease = BubblewrapRuntime("box").lease
    if instead == "link":
        os.symlink(elsewhere, str(lease["workspace"]))
    else:
        os.mknod(str(lease["workspace"]))
    assert await BubblewrapRuntime.adopt("box", lease) is None
    await BubblewrapRuntime.reclaim(lease)
    assert os.listdir(temporary) == []
    assert (elsewhere / "workspace").is_dir()
