"""The real thing: a real command line that knows every option, and, where an engine answers, real containers."""

import shutil

import pytest
import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtime import Route
from rollout_fsm.runtimes.docker import DockerRuntime
from rollout_fsm.runtimes.docker.box import IMAGE
from tests.runtimes.docker.engine import ENGINE, with_an_engine
from tests.runtimes.docker.test_network import shout

pytestmark = pytest.mark.real_time


@pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")
async def test_the_real_command_line_knows_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """It complains of an unknown one before it looks for its engine, of which there is none here."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    box = DockerRuntime("box", image="x", memory="2g", cpus=0.5, user="1000")
    commands = [
        ["create", *box._options(), "x", "-c", "true"],
        ["exec", "-i", "--user=0", "x", "true"],
        ["inspect", "-f", "{{.State.Running}}", "x"],
        ["network", "disconnect", "-f", "x", "y"],
        ["ps", "-a", "-q", "--no-trunc", "--filter", "label=x=y", "--filter", "status=running"],
        ["rm", "-f", "-v", "x"],
        ["pull", "-q", "x"],
        ["image", "inspect", "x"],
        ["start", "x"],
    ]
    for command in commands:
        done = await trio.run_process(["docker", *command], capture_stderr=True, capture_stdout=True, check=False)
        assert b"unknown" not in done.stderr, (command, done.stderr)
        assert b"annot connect" in done.stderr or b"failed to connect" in done.stderr, (command, done.stderr)


@with_an_engine
async def test_a_real_container_runs_programs_keeps_files_and_ends() -> None:
    box = DockerRuntime("box", image=IMAGE, engine=ENGINE)
    try:
        await box.start()
        done = await box.run(["sh", "-c", 'echo "$A"; pwd; cat; echo no >&2; exit 3'], env={"A": "a\nb"}, input="in")
        assert (done.exit_code, done.stdout, done.stderr) == (3, "a\nb\n/workspace\nin", "no\n")
        await box.write("deep/file", b"\0\xff")
        assert await box.read("deep/file") == b"\0\xff"
        assert (await box.run(["sh", "-c", "sleep 1000 & echo out"])).stdout == "out\n"
        with pytest.raises(TimeoutError):
            await box.run(["sh", "-c", "trap '' TERM; sleep 1000 & sleep 1001"], timeout=1)
        with pytest.raises(FileNotFoundError):
            await box.run(["nowhere"])
        await box.prepare_execution([])
        await box.run(["sh", "-c", "env -i setsid sh -c 'sleep 2000 & sleep 2001' > /dev/null 2>&1 &"])
        assert await box.kill()
        left = await box.run(["sh", "-c", "grep -ls sleep /proc/[0-9]*/cmdline | wc -l"])
        assert int(left.stdout) <= 3  # the container's own, and the one that setup started
        again = await DockerRuntime.adopt("box", box.lease)
        assert again is not None
        assert await again.read("deep/file") == b"\0\xff"
    finally:
        await box.stop()
        await DockerRuntime.reclaim(box.lease)
    assert await DockerRuntime.adopt("box", box.lease) is None


@with_an_engine
async def test_a_real_container_under_a_policy_reaches_the_routes_and_nothing_else() -> None:
    box = DockerRuntime("box", image=IMAGE, engine=ENGINE, network=NetworkPolicy([]))
    connect = "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 3); s.send(b'hello'); "
    connect += "print(s.recv(9).decode())"
    try:
        await box.start()
        await box.prepare_execution([Route("http://127.0.0.1:8000/", shout)])
        assert (await box.run(["python3", "-c", connect, "127.0.0.1", "8000"])).stdout == "HELLO\n"
        for host in ("1.1.1.1", "172.17.0.1", "host.docker.internal", "169.254.169.254"):
            assert (await box.run(["python3", "-c", connect, host, "80"])).exit_code == 1
    finally:
        await box.stop()


@with_an_engine
async def test_an_image_that_does_not_exist_is_complained_of() -> None:
    box = DockerRuntime("box", image="rollout-fsm.invalid/nothing:0", engine=ENGINE)
    with pytest.raises(SandboxError, match="pull failed"):
        await box.start()
    await box.stop()
