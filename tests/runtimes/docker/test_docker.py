"""The contract of a runtime, over the command line of a stand-in."""

import errno
import os
from pathlib import Path

import pytest
import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtimes.docker import DockerRuntime
from tests.runtimes.boxes import Bell
from tests.runtimes.docker.boxes import Stand, container

pytestmark = pytest.mark.real_time


# ---- programs


async def test_a_program_runs_in_the_workspace_with_its_variables_and_input(docker: Stand) -> None:
    async with container(docker) as box:
        done = await box.run(
            ["sh", "-c", 'echo "$A"; pwd; cat; echo problem >&2; echo "$HOME" >&2; exit 7'],
            env={"A": 'it\'s $HOME `x`\n"twice" ü'},
            input="what is\nsaid",
        )
        assert done.exit_code == 7
        assert done.stdout == f'it\'s $HOME `x`\n"twice" ü\n{docker.workspace}\nwhat is\nsaid'
        assert done.stderr == f"problem\n{docker.workspace}\n"
        assert (await box.run(["cat"])).stdout == ""


async def test_arguments_are_no_business_of_any_shell(docker: Stand) -> None:
    async with container(docker) as box:
        odd = ["$(exit 3)", "a b", "'", '"', "*", "-n", "", "a\nb", "\\n", ";", "é"]
        assert (await box.run(["printf", "%s|", *odd])).stdout == "".join(f"{each}|" for each in odd)


async def test_the_variables_of_a_program_are_on_no_command_line(docker: Stand) -> None:
    async with container(docker) as box:
        seen = await box.run(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'"], env={"KEY": "the-secret-key"})
        assert seen.exit_code in (0, 1)
        assert "fsm_settings" in seen.stdout
        assert "the-secret-key" not in seen.stdout


async def test_long_output_is_cut_and_what_sounds_like_the_end_is_not_it(docker: Stand) -> None:
    async with container(docker, cap=1000) as box:
        done = await box.run(["sh", "-c", "yes 0123456789 | head -c 3000000; printf '\\n\\n%032d 0\\n' 5 >&2"])
        assert done.exit_code == 0
        assert "2999000 of 3000000 bytes cut here" in done.stdout
        assert done.stderr == f"\n\n{5:032} 0\n"


async def test_a_run_ends_with_its_program_whatever_that_leaves_behind(docker: Stand) -> None:
    async with container(docker) as box:
        bell = Bell(docker.workspace)
        done = await box.run(["sh", "-c", f"(echo up > bell; exec sleep 1000 > bell) & echo {'x' * 9}"])
        assert done.stdout == "xxxxxxxxx\n"
        assert await bell.line() == "up"
        assert not bell.silent()


async def test_a_program_that_runs_out_of_time_is_killed_with_what_it_started(docker: Stand) -> None:
    async with container(docker) as box:
        bell = Bell(docker.workspace)
        with pytest.raises(TimeoutError, match=r"did not end within 0.3 s and was killed"):
            await box.run(
                ["sh", "-c", "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo up; sleep 1000' > bell & sleep 1000"],
                timeout=0.3,
            )
        await bell.silence()


async def test_a_program_that_is_cancelled_is_killed(docker: Stand) -> None:
    async with container(docker) as box:
        bell = Bell(docker.workspace)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(box.run, ["sh", "-c", "exec > bell; echo up; sleep 1000; echo late"])
            assert await bell.line() == "up"
            nursery.cancel_scope.cancel()
        await bell.silence()


async def test_a_program_that_a_signal_ended_has_its_number(docker: Stand) -> None:
    async with container(docker) as box:
        assert (await box.run(["sh", "-c", "kill -9 $$"])).exit_code == -9
        assert (await box.run(["sh", "-c", "echo last words; kill -TERM $$"])).stdout == "last words\n"


async def test_a_program_that_is_not_there_or_none_is_said(docker: Stand) -> None:
    async with container(docker) as box:
        await box.write("data", "no program")
        for argv, error, says in (
            (["nowhere"], FileNotFoundError, "no such program in the container of runtime box"),
            (["./nowhere"], FileNotFoundError, "no such program"),
            (["./data"], PermissionError, "it is not executable"),
            ([str(docker.workspace)], FileNotFoundError, "no such program"),
        ):
            with pytest.raises(error, match=says) as raised:
                await box.run(argv)
            assert raised.value.filename == argv[0]
        with pytest.raises(ValueError, match=r"'A.B' is no name of a variable"):
            await box.run(["true"], env={"A.B": ""})
        with pytest.raises(TypeError, match="argv is a list of strings"):
            await box.run("true")


async def test_many_programs_run_at_once(docker: Stand) -> None:
    async with container(docker) as box:
        said: list[str] = []

        async def run(number: int) -> None:
            said.append((await box.run(["sh", "-c", f"echo {number}"])).stdout)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(run, number)
        assert sorted(said) == [f"{number}\n" for number in range(8)]


# ---- ending the harness's


async def test_kill_ends_what_the_execution_started_and_spares_what_setup_did(docker: Stand) -> None:
    async with container(docker) as box:
        kept, ended = Bell(docker.workspace, "kept"), Bell(docker.workspace, "ended")
        await box.run(["sh", "-c", "(echo up; exec sleep 1000) > kept 2>&1 &"])
        assert await kept.line() == "up"
        assert await box.kill()
        await box.prepare_execution([])
        hard = "trap '' TERM; setsid sh -c 'echo up; while :; do sleep 1000; done' > ended 2>&1 &"
        await box.run(["sh", "-c", hard])
        assert await ended.line() == "up"
        assert await box.kill()
        await ended.silence()
        assert not kept.silent()
        assert await box.kill()


async def test_a_program_that_is_killed_meanwhile_says_so(docker: Stand) -> None:
    async with container(docker) as box:
        bell = Bell(docker.workspace)
        await box.prepare_execution([])
        codes = []

        async def run() -> None:
            codes.append((await box.run(["sh", "-c", "echo up > bell; exec sleep 1000"])).exit_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            assert await bell.line() == "up"
            assert await box.kill()
        assert codes[0] < 0
        bell.close()


# ---- files


async def test_files_are_written_and_read(docker: Stand) -> None:
    async with container(docker) as box:
        for path in ("deep/er/b", "-n ü", f"{docker.workspace}/c", "deep/../d"):
            await box.write(path, f"content of {path}\0\xff")
            assert await box.read(path) == f"content of {path}\0\xff".encode()
        await box.write("big", big := os.urandom(300_000))
        assert await box.read("big") == big
        await box.write("big", b"")
        assert await box.read("big") == b""


async def test_a_path_in_the_workspace_does_not_lead_out_of_it(docker: Stand, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    async with container(docker) as box:
        os.symlink(tmp_path / "secret", docker.workspace / "link")
        os.symlink(tmp_path, docker.workspace / "folder")
        for path in ("../secret", "folder/secret", f"{docker.workspace}/link"):
            with pytest.raises(PermissionError, match="leads out of the workspace") as error:
                await box.read(path)
            assert error.value.filename == f"{docker.workspace}/{path}" if not path.startswith("/") else path
            with pytest.raises(PermissionError, match="leads out of the workspace"):
                await box.write(path, "x")
        with pytest.raises(PermissionError, match="leads out of the workspace"):
            await box.write("folder/new/file", "x")
        assert await box.read(str(tmp_path / "secret")) == b"s"
        assert not (tmp_path / "new").exists()


async def test_what_is_no_file_or_too_long_is_said(docker: Stand) -> None:
    async with container(docker, read_cap=10) as box:
        os.mkfifo(docker.workspace / "pipe")
        await box.write("folder/long", "x" * 11)
        for path, number in {
            "nowhere": errno.ENOENT,
            ".": errno.EISDIR,
            "pipe": errno.EINVAL,
            "folder/long": errno.EFBIG,
            "folder/long/x": errno.ENOENT,
        }.items():
            with pytest.raises(OSError, match="in the container of runtime box") as error:
                await box.read(path)
            assert error.value.errno == number
        for path, number in {"folder": errno.EISDIR, "pipe": errno.EINVAL, "folder/long/x": errno.EACCES}.items():
            with pytest.raises(OSError, match="in the container of runtime box") as error:
                await box.write(path, "x")
            assert error.value.errno == number


# ---- its life


async def test_a_box_begins_once_and_ends_with_everything_in_it(docker: Stand) -> None:
    box = DockerRuntime("box", workspace=str(docker.workspace))
    with pytest.raises(SandboxError, match="runtime box was not started"):
        await box.run(["true"])
    assert not await box.alive()
    await box.start()
    assert await box.alive()
    bell = Bell(docker.workspace)
    await box.run(["sh", "-c", "(trap '' TERM; echo up; sleep 1000) > bell 2>&1 &"])
    with pytest.raises(SandboxError, match="is started already"):
        await box.start()
    await box.stop()
    await bell.silence()
    await box.stop()
    assert docker.containers() == []
    assert box.stopped
    assert not await box.alive()
    with pytest.raises(SandboxError, match="was stopped: it has no container any more"):
        await box.read("x")
    with pytest.raises(SandboxError, match="was stopped: a runtime is started once"):
        await box.start()


async def test_a_stop_while_a_program_runs_is_said_to_who_waits_for_it(docker: Stand) -> None:
    box = DockerRuntime("box", workspace=str(docker.workspace))
    await box.start()
    bell = Bell(docker.workspace)
    errors = []

    async def run() -> None:
        with pytest.raises(SandboxError, match="was stopped while 'sh' ran") as error:
            await box.run(["sh", "-c", "echo up > bell; exec sleep 1000"])
        errors.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        assert await bell.line() == "up"
        await box.stop()
    assert len(errors) == 1
    bell.close()


async def test_a_container_has_no_rights_and_the_bounds_that_were_said(docker: Stand) -> None:
    async with container(docker, memory="2g", cpus=1.5, processes=99, user="1000:1000", image="debian:12"):
        options = docker.of_the_container("options")
        said = "--cap-drop=ALL --security-opt=no-new-privileges --memory=2g --memory-swap=2g --cpus=1.5 --init"
        said += " --pids-limit=99 --user=1000:1000 --add-host=host.docker.internal:host-gateway"
        assert {*said.split()} <= {*options}
        assert not any(option.startswith(("-v", "--mount", "--privileged")) for option in options)


async def test_an_image_is_pulled_where_it_is_missing(docker: Stand) -> None:
    async with container(docker, image="debian:12"):
        assert docker.commands()[:3] == ["image", "pull", "create"]
    (docker.home / "log").unlink()
    async with container(docker, image="debian:12"):
        assert docker.commands()[:2] == ["image", "create"]
    box = DockerRuntime("box", image="missing")
    with pytest.raises(SandboxError, match=r"docker pull failed: .*pull access denied for missing"):
        await box.start()
    await box.stop()


async def test_an_engine_that_is_not_there_or_does_not_answer_is_said(
    docker: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = DockerRuntime("box", engine="podman")
    with pytest.raises(SandboxError, match=r"needs the program 'podman', which is not in PATH: install Docker, or"):
        await box.start()
    await box.stop()
    monkeypatch.setenv("FAKE_DOCKER_DOWN", "1")
    box = DockerRuntime("box")
    with pytest.raises(SandboxError, match=r"docker pull failed: Cannot connect to the Docker daemon"):
        await box.start()
    await box.stop()


async def test_another_engine_is_spoken_to_by_its_name(docker: Stand) -> None:
    docker.install("podman")
    (docker.bin / "docker").unlink()
    async with container(docker, engine="podman") as box:
        assert (await box.run(["echo", "hi"])).stdout == "hi\n"


async def test_what_cannot_be_removed_is_named_and_tried_again(docker: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    box = DockerRuntime("box", workspace=str(docker.workspace))
    await box.start()
    monkeypatch.setenv("FAKE_DOCKER_KEEPS_CONTAINERS", "1")
    with pytest.raises(SandboxError, match=r"was not stopped wholly: container [0-9a-f]{64} is left: .* busy"):
        await box.stop()
    monkeypatch.delenv("FAKE_DOCKER_KEEPS_CONTAINERS")
    await box.stop()
    assert docker.containers() == []


@pytest.mark.parametrize("verb", ["image", "pull", "create", "start", "exec"])
async def test_a_start_that_is_cancelled_anywhere_leaves_nothing(
    docker: Stand, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """What is being made is waited for, since it could not be found again otherwise."""
    bell = Bell(docker.place)
    monkeypatch.setenv("FAKE_DOCKER_BELL", str(docker.place / "bell"))
    box = DockerRuntime("box", workspace=str(docker.workspace), image="debian:12")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.start)
        while await bell.line() != verb:
            pass
        nursery.cancel_scope.cancel()
    monkeypatch.delenv("FAKE_DOCKER_BELL")
    await box.stop()
    assert docker.containers() == []
    bell.close()
