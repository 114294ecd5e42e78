"""The isolated runtime: how a box comes up and goes."""

import os
import signal
import stat
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtimes.bubblewrap import BoxLimits, BubblewrapRuntime
from tests.runtimes.bubblewrap.boxes import RING, bell, box, cancelling_at, descendants, folder

pytestmark = [pytest.mark.usefixtures("bubblewrap", "temporary")]
real_time = pytest.mark.real_time


@real_time
async def test_a_box_has_a_folder_of_its_name_that_is_private(temporary: Path) -> None:
    async with box("a/b c") as runtime:
        assert folder(runtime).parent == temporary
        assert folder(runtime).name.startswith("a-b-c-")
        assert stat.S_IMODE(folder(runtime).stat().st_mode) == 0o700
        assert await runtime.alive()
        assert not runtime.stopped
    assert runtime.stopped
    assert not await runtime.alive()


async def test_it_is_a_factory_and_makes_nothing_before_its_start(temporary: Path) -> None:
    for factory in (BubblewrapRuntime, partial(BubblewrapRuntime, limits=BoxLimits(processes=3))):
        runtime = factory("name")
        assert runtime.name == "name"
        assert os.listdir(temporary) == []
        await runtime.stop()


@real_time
async def test_stop_copes_with_a_start_that_never_came_and_with_being_called_again() -> None:
    runtime = BubblewrapRuntime("box")
    await runtime.stop()
    await runtime.stop()
    assert runtime.stopped
    with pytest.raises(SandboxError, match="was stopped: a runtime is started once"):
        await runtime.start()


@real_time
async def test_a_second_start_is_refused() -> None:
    async with box() as runtime:
        with pytest.raises(SandboxError, match="started already"):
            await runtime.start()


@real_time
async def test_nothing_runs_before_the_start_and_after_the_stop() -> None:
    runtime = BubblewrapRuntime("box")
    verbs = (
        partial(runtime.run, ["true"]),
        partial(runtime.read, "x"),
        partial(runtime.write, "x", b""),
        runtime.prepare_setup,
        partial(runtime.prepare_execution, []),
    )
    for verb in verbs:
        with pytest.raises(SandboxError, match="runtime box was not started"):
            await verb()
    assert await runtime.kill()
    await runtime.start()
    await runtime.stop()
    for verb in verbs:
        with pytest.raises(SandboxError, match="runtime box was stopped"):
            await verb()
    assert await runtime.kill()


@real_time
async def test_a_folder_that_cannot_be_made_is_named(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "missing"))
    runtime = BubblewrapRuntime("box")
    with pytest.raises(SandboxError, match=r"could not make its folder: .*missing"):
        await runtime.start()
    with pytest.raises(SandboxError, match=r"runtime box (was not started|has no folder)"):
        await runtime.read("x")
    await runtime.stop()


@real_time
@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["/nowhere"], "'/nowhere', which is no absolute path of anything"),
        (["usr"], "'usr', which is no absolute path of anything"),
        (["/"], "'/', in which the folders of all boxes are"),
    ],
)
async def test_a_path_that_cannot_be_shown_is_named(paths: list[str], said: str, temporary: Path) -> None:
    runtime = BubblewrapRuntime("box", read_only=paths)
    with pytest.raises(SandboxError, match=f"read_only has {said}"):
        await runtime.start()
    assert not await runtime.alive()
    await runtime.stop()


async def test_settings_that_are_none_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"cap": -1}, {"grace": -1}, {"limits": 3}, {"network": []}, {"read_only": "/usr"}]
    for settings in wrong:
        with pytest.raises((TypeError, ValueError)):
            BubblewrapRuntime("box", **settings)
    for value in (0, True, 1.5, None):
        with pytest.raises(ValueError, match="memory of BoxLimits is a whole number of 1 or more"):
            BoxLimits(memory=value)  # type: ignore[arg-type]


@real_time
async def test_its_repr_is_one_line_with_its_state() -> None:
    runtime = BubblewrapRuntime("box")
    assert repr(runtime) == "<BubblewrapRuntime 'box' not started, 0 programs>"
    await runtime.start()
    assert repr(runtime) == f"<BubblewrapRuntime 'box' in {folder(runtime)}, 0 programs>"
    await runtime.stop()
    assert repr(runtime) == "<BubblewrapRuntime 'box' stopped, 0 programs>"


@real_time
async def test_stop_is_called_by_many_and_each_returns_when_it_is_done() -> None:
    runtime = BubblewrapRuntime("box")
    await runtime.start()
    await runtime.run(["sh", "-c", "sleep 1000 & touch file"])

    async def stop() -> None:
        await runtime.stop()
        assert not folder(runtime).exists()

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(stop)


@real_time
async def test_stop_ends_programs_that_run_and_their_runs_say_why() -> None:
    runtime = BubblewrapRuntime("box")
    await runtime.start()
    ringing = bell(runtime)
    said: list[str] = []

    async def run() -> None:
        with pytest.raises(SandboxError, match="runtime box was stopped") as raised:
            await runtime.run(["sh", "-c", f"trap '' TERM; {RING} sleep 1000"])
        said.append(str(raised.value))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(run)
        await ringing.line()
        assert await runtime.alive()  # whose answer comes after what was said of the program that rang
        await runtime.stop()
    assert len(said) == 10
    assert "runtime box was stopped, while 'sh' ran" in said
    await ringing.silence()


@real_time
async def test_a_program_that_is_being_started_when_stop_comes_does_not_live() -> None:
    for _ in range(5):
        runtime = BubblewrapRuntime("box")
        await runtime.start()

        async def run(runtime: BubblewrapRuntime) -> None:
            with pytest.raises(SandboxError):
                await runtime.run(["sleep", "1000"])

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(run, runtime)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(runtime.stop)


@real_time
async def test_a_box_leaves_no_descriptor_open() -> None:
    async with box():
        pass
    before = sorted(os.listdir("/proc/self/fd"))
    async with box() as runtime:
        await runtime.prepare_setup()
        await runtime.write("a/b/file", "x")
        with pytest.raises(OSError, match="leads out"):
            await runtime.read("a/b/../../..")
        await runtime.run(["cat"], input="x")
        with pytest.raises(FileNotFoundError):
            await runtime.run(["nothing"])
        with pytest.raises(TimeoutError):
            await runtime.run(["sleep", "1000"], timeout=0)
        await runtime.prepare_execution([])
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_start_that_is_cancelled_at_any_point_is_undone_by_stop(temporary: Path) -> None:
    before = descendants()

    async def cancelled_at(point: int) -> bool:
        runtime = BubblewrapRuntime("box")
        with trio.CancelScope() as scope, cancelling_at(point, scope):
            try:
                await runtime.start()
            finally:
                scope.shield = True
                await runtime.stop()
        assert os.listdir(temporary) == [], f"cancelled at point {point}"
        assert descendants() == before, f"cancelled at point {point}"
        return scope.cancelled_caught

    point = 1
    while trio.run(cancelled_at, point):
        point += 1
    assert point > 5


def test_an_event_loop_that_ends_ends_the_boxes_that_nobody_stopped(temporary: Path) -> None:
    before = descendants()

    async def forget() -> BubblewrapRuntime:
        runtime = BubblewrapRuntime("box")
        await runtime.start()
        await runtime.run(["sh", "-c", "sleep 1000 & setsid sleep 1000 &"])
        return runtime

    runtime = trio.run(forget)
    bubblewrap, *_ = [pid for pid in descendants() if pid not in before]
    os.waitid(os.P_PID, bubblewrap, os.WEXITED | os.WNOWAIT)  # it ends by itself
    assert [pid for pid in descendants() if pid not in before] == [bubblewrap]
    trio.run(runtime.stop)


def test_a_ctrl_c_ends_the_program_and_what_it_started() -> None:
    runtime = BubblewrapRuntime("box")

    async def main() -> None:
        await runtime.start()
        ringing = bell(runtime)

        async def interrupt() -> None:
            await ringing.line()
            signal.raise_signal(signal.SIGINT)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupt)
            try:
                await runtime.run(["sh", "-c", RING + "sleep 1000 & setsid sleep 1000"])
            finally:
                with trio.CancelScope(shield=True):
                    await ringing.silence()
                await runtime.stop()

    with pytest.raises(BaseExceptionGroup) as raised:
        trio.run(main, strict_exception_groups=True)
    assert raised.group_contains(KeyboardInterrupt)


# --- what is said where there can be no box


@real_time
async def test_where_bubblewrap_is_absent_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    runtime = BubblewrapRuntime("box")
    with pytest.raises(SandboxError, match=r"needs the program bwrap, .*apt-get install bubblewrap"):
        await runtime.start()
    await runtime.stop()


@real_time
async def test_on_another_system_it_is_said_that_it_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = BubblewrapRuntime("box")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        with pytest.raises(SandboxError, match="works on Linux only, and this is darwin"):
            await runtime.start()
    await runtime.stop()


@real_time
@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("bwrap: No permissions to create a new namespace", "does not permit it to make namespaces; in a container"),
        ("bwrap: setting up uid map: Permission denied", "does not permit it to make namespaces; in a container"),
        ("bwrap: Unknown option --as-pid-1", "try its command line by hand"),
        ("", "it ended with 1 and said nothing"),
    ],
)
async def test_where_bubblewrap_is_not_permitted_it_is_said_what_to_allow(
    said: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("rollout_fsm.runtimes.bubblewrap.command.SWITCHES", {})
    runtime = BubblewrapRuntime("box")
    with pytest.raises(SandboxError, match=f"runtime box: bubblewrap could not make the box: {said}.*{advice}"):
        await runtime.start()
    await runtime.stop()


@real_time
async def test_a_switch_that_forbids_namespaces_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    (tmp_path / "switch").write_text("0\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    switches = {str(tmp_path / "switch"): ("0", "sysctl user.max_user_namespaces=10000"), "/nowhere": ("0", "no")}
    monkeypatch.setattr("rollout_fsm.runtimes.bubblewrap.command.SWITCHES", switches)
    runtime = BubblewrapRuntime("box")
    with pytest.raises(SandboxError, match=r"make namespaces: sysctl user.max_user_namespaces=10000$"):
        await runtime.start()
    await runtime.stop()
