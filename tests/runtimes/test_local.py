"""The local runtime: its life, its programs, its files."""

import errno
import os
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtimes import LocalRuntime
from tests.runtimes.boxes import box, children

real_time = pytest.mark.real_time
PYTHON = sys.executable
NOBODY = 65534


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that runtimes make their workspaces in; every test leaves it empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    before = children()  # of tests that ran in this process
    yield folder
    assert list(folder.iterdir()) == []
    assert children(but=before) == []


# --- its life


async def test_a_box_in_which_no_program_ran_needs_no_thread_and_no_time() -> None:
    before = trio.current_time()
    async with box():
        pass
    assert trio.current_time() == before
    assert trio.to_thread.current_default_thread_limiter().statistics().borrowed_tokens == 0


async def test_the_workspace_bears_the_name_and_is_private(temporary: Path) -> None:
    async with box("a/b c") as runtime:
        assert runtime.workspace.parent == temporary
        assert runtime.workspace.name.startswith("a-b-c-")
        assert stat.S_IMODE(runtime.workspace.stat().st_mode) == 0o700
        assert await runtime.alive()
        assert not runtime.stopped
    assert runtime.stopped
    assert not await runtime.alive()


async def test_it_is_a_factory() -> None:
    for factory in (LocalRuntime, partial(LocalRuntime, cap=10)):
        runtime = factory("name")
        assert runtime.name == "name"
        await runtime.stop()


async def test_stop_copes_with_a_start_that_never_came_and_with_being_called_again() -> None:
    runtime = LocalRuntime("box")
    await runtime.stop()
    await runtime.stop()
    assert runtime.stopped
    with pytest.raises(SandboxError, match="was stopped: a runtime is started once"):
        await runtime.start()


async def test_a_second_start_is_refused() -> None:
    async with box() as runtime:
        with pytest.raises(SandboxError, match="started already"):
            await runtime.start()


async def test_a_start_that_fails_says_so_and_stop_copes(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))
    runtime = LocalRuntime("box")
    with pytest.raises(SandboxError, match=r"could not make its workspace: .*missing"):
        await runtime.start()
    assert not await runtime.alive()
    await runtime.stop()


async def test_stop_copes_with_a_start_that_was_cancelled() -> None:
    runtime = LocalRuntime("box")
    with trio.CancelScope() as scope:
        scope.cancel()
        await runtime.start()
    assert scope.cancelled_caught
    await runtime.stop()


@real_time
async def test_nothing_runs_before_the_start_and_after_the_stop() -> None:
    runtime = LocalRuntime("box")
    for verb in (partial(runtime.run, ["true"]), partial(runtime.read, "x"), partial(runtime.write, "x", b"")):
        with pytest.raises(SandboxError, match="runtime box was not started"):
            await verb()
    await runtime.start()
    await runtime.stop()
    for verb in (partial(runtime.run, ["true"]), partial(runtime.read, "x"), partial(runtime.write, "x", b"")):
        with pytest.raises(SandboxError, match="runtime box was stopped"):
            await verb()


@real_time
async def test_a_workspace_that_is_gone_is_a_dead_box() -> None:
    async with box() as runtime:
        assert (await runtime.run(["sh", "-c", 'rm -r "$HOME"'])).exit_code == 0
        assert not await runtime.alive()
        with pytest.raises(SandboxError, match=r"cannot run 'true': its workspace .* is gone"):
            await runtime.run(["true"])


async def test_its_repr_is_one_line_with_its_state() -> None:
    runtime = LocalRuntime("box")
    assert repr(runtime) == "<LocalRuntime 'box' not started, 0 programs>"
    await runtime.start()
    assert repr(runtime) == f"<LocalRuntime 'box' in {runtime.workspace}, 0 programs>"
    await runtime.stop()
    assert repr(runtime) == "<LocalRuntime 'box' stopped, 0 programs>"


async def test_urls_of_the_host_are_reached_as_they_are() -> None:
    assert LocalRuntime("box").host_url("http://127.0.0.1:80/v1") == "http://127.0.0.1:80/v1"


# --- its programs


@real_time
async def test_a_program_ends_with_its_exit_code_and_output() -> None:
    async with box() as runtime:
        result = await runtime.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
        assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
        assert (await runtime.run(["sh", "-c", "kill -9 $$"])).exit_code == -signal.SIGKILL


@real_time
async def test_nothing_of_the_engines_environment_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.delenv("LANG", raising=False)
    async with box() as runtime:
        shown = (await runtime.run(["env"], env={"ADDED": "1", "LANG": "de"})).stdout
        variables = dict(line.split("=", 1) for line in shown.splitlines())
        marker = next(name for name in variables if name.startswith("ROLLOUT_FSM_BOX_"))
        assert variables == {
            "PATH": os.environ["PATH"],
            "HOME": str(runtime.workspace),
            "TMPDIR": str(runtime.workspace / ".tmp"),
            "LANG": "de",
            "ADDED": "1",
            marker: "0",
        }
        assert "LANG=C.UTF-8\n" in (await runtime.run(["env"])).stdout


@real_time
async def test_programs_of_an_engine_in_a_box_bear_the_outer_marker_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUT_FSM_BOX_outer", "7")
    async with box() as runtime:
        assert "ROLLOUT_FSM_BOX_outer=7\n" in (await runtime.run(["env"])).stdout


@real_time
async def test_programs_start_in_the_workspace() -> None:
    async with box() as runtime:
        assert (await runtime.run(["pwd"])).stdout == f"{runtime.workspace}\n"
        await runtime.write("tools/hello", "#!/bin/sh\necho hello $1\n")
        (runtime.workspace / "tools/hello").chmod(0o755)
        assert (await runtime.run(["tools/hello", "you"])).stdout == "hello you\n"
        assert (await runtime.run(["hello", "me"], env={"PATH": "tools:/bin:/usr/bin"})).stdout == "hello me\n"


@real_time
async def test_a_program_that_prints_50_mb_neither_fills_memory_nor_blocks() -> None:
    code = (
        "import sys\nfor _ in range(50): sys.stdout.write('x' * 1_000_000)\nprint('END', end=''); sys.stderr.write('e')"
    )
    async with box(cap=1000) as runtime:
        result = await runtime.run([PYTHON, "-c", code])
    assert result.exit_code == 0
    assert result.stdout == f"{'x' * 500}\n[--- 49999003 of 50000003 bytes cut here ---]\n{'x' * 497}END"
    assert result.stderr == "e"


@real_time
async def test_input_larger_than_a_pipe_is_fed_while_output_is_read() -> None:
    data = os.urandom(50_000).hex()
    async with box() as runtime:
        assert (await runtime.run(["cat"], input=data)).stdout == data
        assert (await runtime.run(["wc", "-c"], input=b"q" * 5_000_000)).stdout.strip() == "5000000"
        assert (await runtime.run(["cat"], input="ä")).stdout == "ä"
        assert (await runtime.run(["cat"], input=b"")).stdout == ""


@real_time
async def test_a_program_may_close_its_input_early_or_read_none_of_it() -> None:
    async with box() as runtime:
        assert (await runtime.run(["head", "-c", "3"], input=b"q" * 5_000_000)).stdout == "qqq"
        assert (await runtime.run(["true"], input=b"q" * 5_000_000)).exit_code == 0
        result = await runtime.run(["sh", "-c", "exec <&-; echo closed"], input=b"q" * 5_000_000)
        assert (result.exit_code, result.stdout) == (0, "closed\n")


@real_time
async def test_without_input_a_program_reads_an_empty_one() -> None:
    async with box() as runtime:
        assert (await runtime.run(["cat"])).exit_code == 0


@real_time
async def test_output_that_is_no_text_is_replaced_and_text_is_kept() -> None:
    code = r"import sys; o, e = sys.stdout.buffer, sys.stderr.buffer"
    code += r"; o.write(b'a\xff\x00' + 'ß€😀'.encode()); e.write(bytes(range(256)))"
    async with box() as runtime:
        result = await runtime.run([PYTHON, "-c", code])
    assert result.stdout == "a\N{REPLACEMENT CHARACTER}\0ß€😀"
    assert result.stderr.startswith("\0\1\2")


@real_time
async def test_a_program_that_closes_its_output_is_waited_for() -> None:
    async with box() as runtime:
        result = await runtime.run(["sh", "-c", "exec >&- 2>&-; cat; exit 4"], input=b"x" * 200_000)
    assert result.exit_code == 4


@real_time
async def test_fifty_programs_run_at_once() -> None:
    results: dict[int, str] = {}

    async def one(number: int) -> None:
        results[number] = (await runtime.run(["sh", "-c", 'cat; echo "$N"'], env={"N": str(number)}, input="n=")).stdout

    async with box() as runtime, trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(one, number)
    assert results == {number: f"n={number}\n" for number in range(50)}


@real_time
async def test_fifty_boxes_live_at_once() -> None:
    async def one(number: int) -> None:
        async with box(f"box-{number}") as runtime:
            assert (
                await runtime.run(["sh", "-c", "sleep 1000 & setsid sleep 1000 & echo started"])
            ).stdout == "started\n"

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(one, number)


@real_time
async def test_a_program_that_is_missing_is_named_with_where_was_looked() -> None:
    async with box() as runtime:
        with pytest.raises(
            FileNotFoundError, match="no such program in runtime box, looked in its PATH '/nowhere:/b': 'frob'"
        ):
            await runtime.run(["frob"], env={"PATH": "/nowhere:/b"})
        with pytest.raises(FileNotFoundError, match=f"looked in {runtime.workspace}/bin/frob: 'bin/frob'"):
            await runtime.run(["bin/frob"])
        with pytest.raises(FileNotFoundError, match="looked in /nowhere/frob"):
            await runtime.run(["/nowhere/frob"])
        await runtime.write("file", "")
        with pytest.raises(FileNotFoundError, match=r"looked in .*/file/frob"):
            await runtime.run(["file/frob"])


@real_time
async def test_a_program_whose_interpreter_is_missing_says_so() -> None:
    async with box() as runtime:
        await runtime.write("script", "#!/nowhere/sh\n")
        (runtime.workspace / "script").chmod(0o755)
        with pytest.raises(FileNotFoundError, match="script is there, but the interpreter that it asks for is not"):
            await runtime.run(["./script"])


@real_time
async def test_a_program_that_cannot_be_executed_is_named() -> None:
    async with box() as runtime:
        await runtime.write("script", "#!/bin/sh\n")
        with pytest.raises(PermissionError, match=r"/script in runtime box is not executable; chmod \+x it"):
            await runtime.run(["./script"])
        with pytest.raises(PermissionError, match="is not a file that can be run"):
            await runtime.run(["./.tmp"])
        with pytest.raises(PermissionError, match="/script in runtime box is not executable"):
            await runtime.run(["script"], env={"PATH": str(runtime.workspace)})


@real_time
async def test_a_program_that_the_machine_will_not_start_is_a_failure_of_the_box() -> None:
    async with box() as runtime:
        with pytest.raises(SandboxError, match="could not start 'true': Argument list too long"):
            await runtime.run(["true", "x" * 10_000_000])


@real_time
async def test_a_command_line_in_one_string_and_an_empty_one_are_refused() -> None:
    async with box() as runtime:
        with pytest.raises(TypeError, match="a list of strings, not a command line: 'ls -l'"):
            await runtime.run("ls -l")
        with pytest.raises(ValueError, match="argv is empty"):
            await runtime.run([])


# --- its files


@real_time
async def test_files_are_read_and_written_relative_to_the_workspace() -> None:
    async with box() as runtime:
        await runtime.write("a/b/file", "ä")
        assert (runtime.workspace / "a/b/file").read_text() == "ä"
        await runtime.write(str(runtime.workspace / "a/b/file"), b"\xff")
        assert await runtime.read("a/b/file") == b"\xff"
        assert await runtime.read(str(runtime.workspace / "a/b/file")) == b"\xff"


@real_time
async def test_a_file_that_is_replaced_keeps_its_mode_and_loses_its_content() -> None:
    async with box() as runtime:
        await runtime.write("tool", "a long content")
        (runtime.workspace / "tool").chmod(0o755)
        await runtime.write("tool", "short")
        assert await runtime.read("tool") == b"short"
        assert stat.S_IMODE((runtime.workspace / "tool").stat().st_mode) == 0o755


@real_time
async def test_errors_about_files_name_the_path() -> None:
    async with box() as runtime:
        await runtime.write("file", "")
        with pytest.raises(FileNotFoundError, match=f"{runtime.workspace}/missing"):
            await runtime.read("missing")
        with pytest.raises(IsADirectoryError, match=f"{runtime.workspace}/.tmp"):
            await runtime.read(".tmp")
        with pytest.raises(OSError, match=f"{runtime.workspace}/file"):
            await runtime.write("file/below", "x")
        with pytest.raises(OSError, match="/dev/full"):
            await runtime.write("/dev/full", "x")


@real_time
async def test_what_a_program_left_in_the_place_of_a_file_does_not_block_or_fill_memory() -> None:
    async with box() as runtime:
        await runtime.run(["sh", "-c", "mkfifo pipe"])
        for path in ("pipe", "/dev/zero"):
            with pytest.raises(OSError, match=f"not a regular file .*{path}"):
                await runtime.read(path)
        with pytest.raises(OSError, match="pipe"):
            await runtime.write("pipe", "x")


@real_time
@pytest.mark.parametrize("path", ["link", "folder/secret", "chain", "up", "in/../../secret", "../secret", "loop"])
async def test_a_path_that_leads_out_of_the_workspace_is_refused_for_reading_and_writing(
    path: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("key")
    async with box() as runtime:
        script = (
            "ln -s $0/secret link; ln -s $0 folder; ln -s link chain; ln -s ../../secret up; mkdir in; ln -s loop loop"
        )
        await runtime.run(["sh", "-c", script, str(tmp_path)])
        for name in (path, str(runtime.workspace / path)):
            with pytest.raises(OSError, match=rf"leads (out of the workspace|through too many).*{path}'"):
                await runtime.read(name)
            with pytest.raises(OSError, match=rf"leads (out of the workspace|through too many).*{path}'"):
                await runtime.write(name, "stolen")
        assert await runtime.read(str(tmp_path / "secret")) == b"key"


@real_time
async def test_no_folder_is_made_outside_of_the_workspace_by_a_relative_path(tmp_path: Path) -> None:
    async with box() as runtime:
        await runtime.run(["ln", "-s", str(tmp_path), "folder"])
        with pytest.raises(PermissionError, match="leads out of the workspace"):
            await runtime.write("folder/new/file", "x")
        assert not (tmp_path / "new").exists()


@real_time
async def test_the_engines_own_environment_is_not_read_by_way_of_a_link() -> None:
    async with box() as runtime:
        await runtime.run(["ln", "-s", "/proc/self/environ", "answer"])
        with pytest.raises(PermissionError, match="leads out of the workspace"):
            await runtime.read("answer")


@real_time
async def test_links_within_the_workspace_are_followed() -> None:
    async with box() as runtime:
        script = (
            "mkdir -p a/b; echo x > a/b/file; ln -s a/b near; ln -s $PWD/a far; ln -s ../b/file a/b/again; ln -s new to"
        )
        await runtime.run(["sh", "-c", script])
        for path in ("near/file", "far/b/file", "far/b/again", "near/../b/../b/file", "./a//b/file"):
            assert await runtime.read(path) == b"x\n"
        await runtime.write("near/made/file", "y")
        await runtime.write("to", "z")
        assert await runtime.read("a/b/made/file") == b"y"
        assert await runtime.read("new") == b"z"


@real_time
async def test_a_workspace_that_was_swapped_for_a_link_gives_nothing_away(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    async with box() as runtime:
        await runtime.run(["sh", "-c", 'rm -rf "$HOME"; ln -s $0 "$HOME"', str(tmp_path)])
        with pytest.raises(FileNotFoundError):
            await runtime.read("secret")


@real_time
async def test_a_file_longer_than_the_cap_is_not_read() -> None:
    runtime = LocalRuntime("box", read_cap=1000)
    await runtime.start()
    try:
        await runtime.write("fits", b"x" * 1000)
        assert await runtime.read("fits") == b"x" * 1000
        await runtime.run(["sh", "-c", "truncate -s 40G huge; truncate -s 1001 more"])
        for path in ("huge", "more"):
            with pytest.raises(OSError, match=f"no more than 1000 are read at once: '.*{path}'") as raised:
                await runtime.read(path)
            assert raised.value.errno == errno.EFBIG
        with pytest.raises(OSError, match="no more than 1000 are read at once"):
            await runtime.read("/proc/cpuinfo")  # says that it is empty
    finally:
        await runtime.stop()


@real_time
async def test_files_are_never_read_without_a_cap() -> None:
    async with box() as runtime:
        await runtime.run(["truncate", "-s", "40G", "huge"])
        with pytest.raises(OSError, match="no more than 67108864 are read at once"):
            await runtime.read("huge")


@real_time
async def test_what_is_no_regular_file_is_named_when_it_is_to_be_written() -> None:
    async with box() as runtime:
        code = "import os, socket; os.mkfifo('pipe'); socket.socket(socket.AF_UNIX).bind('socket')"
        assert (await runtime.run([PYTHON, "-c", code])).exit_code == 0
        for path in ("pipe", "socket", "/dev/null"):
            with pytest.raises(OSError, match=f"is not a regular file but .*{path}'") as raised:
                await runtime.write(path, "x")
            assert raised.value.errno == errno.EINVAL


@real_time
async def test_files_are_reached_while_others_hold_all_threads() -> None:
    held = threading.Event()

    async def hold() -> None:
        await trio.to_thread.run_sync(held.wait)

    async with box() as runtime, trio.open_nursery() as nursery:
        for _ in range(int(trio.to_thread.current_default_thread_limiter().total_tokens) + 1):
            nursery.start_soon(hold)
        await trio.testing.wait_all_tasks_blocked()
        try:
            with trio.fail_after(60):
                await runtime.write("file", "x")
                assert await runtime.read("file") == b"x"
        finally:
            held.set()


# --- what is left of it


@real_time
@pytest.mark.parametrize(
    "instead", [":", 'ln -s / "$HOME"', 'mkdir -p "$HOME/.tmp"', 'mkdir "$HOME"; echo > "$HOME/x"']
)
async def test_a_workspace_that_was_moved_is_removed_where_it_is(instead: str, tmp_path: Path) -> None:
    async with box() as runtime:
        script = f'cd /; echo x > "$HOME/file"; mv "$HOME" "$0/moved"; {instead}'
        assert (await runtime.run(["sh", "-c", script, str(tmp_path)])).exit_code == 0
        assert (tmp_path / "moved").is_dir()
    assert not (tmp_path / "moved").exists()


@real_time
async def test_a_box_leaves_no_descriptor_open() -> None:
    async with box():
        pass
    before = sorted(os.listdir("/proc/self/fd"))
    async with box() as runtime:
        await runtime.write("a/b/file", "x")
        with pytest.raises(OSError, match="leads out"):
            await runtime.read("a/b/../../..")
        with pytest.raises(FileNotFoundError):
            await runtime.read("a/b/c/d")
    assert sorted(os.listdir("/proc/self/fd")) == before


@real_time
async def test_a_workspace_with_read_only_and_deep_folders_goes() -> None:
    async with box() as runtime:
        script = "mkdir -p a/b/c; touch a/b/c/file; chmod 0 a/b/c; chmod 555 a/b a; ln -s / root"
        deep = "import os\nfor _ in range(1200): os.mkdir('d'); os.chdir('d')"
        await runtime.run(["sh", "-c", script])
        assert (await runtime.run([PYTHON, "-c", deep])).exit_code == 0


@real_time
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user, whom modes bind")
async def test_a_workspace_with_read_only_folders_goes_for_an_ordinary_user_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        async with box() as runtime:
            workspace = runtime.workspace
            await runtime.run(["/bin/sh", "-c", "mkdir -p a/b; touch a/b/file; chmod 0 a/b; chmod 555 a .", "sh"])
        assert not workspace.exists()
    finally:
        os.setresuid(0, 0, 0)


@real_time
async def test_stop_is_called_by_many_and_each_returns_when_it_is_done() -> None:
    runtime = LocalRuntime("box")
    await runtime.start()
    workspace = runtime.workspace
    await runtime.run(["sh", "-c", "sleep 1000 & touch file"])

    async def stop() -> None:
        await runtime.stop()
        assert not workspace.exists()

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(stop)
