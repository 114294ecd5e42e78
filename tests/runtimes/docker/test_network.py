"""What a container's programs reach under a policy: the framework's routes, what is allowed, and nothing else.

The stand-in keeps nothing from its programs, so that nothing else is reached is not shown here; that the container was
taken off its networks is.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtime import Route
from rollout_fsm.runtimes.docker import DockerRuntime
from tests.runtimes.docker.boxes import Stand, container

pytestmark = pytest.mark.real_time
NOTHING = NetworkPolicy([])

TALK = """
import socket, sys
place, said, size = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
with socket.create_connection(("127.0.0.1", int(place))) as connection:
    connection.sendall(said * size)
    connection.shutdown(socket.SHUT_WR)
    heard = b""
    while chunk := connection.recv(65536):
        heard += chunk
print(len(heard), heard[:40].decode())
"""
FETCH = """
import sys, urllib.request
try:
    urllib.request.urlopen(sys.argv[1])
except Exception as error:
    print(error.code, error.read())
"""
KILL = """
for file in $(grep -ls carry_out /proc/[0-9]*/cmdline); do
  file=${file%/cmdline}
  grep -qs "CONTAINER=$ROLLOUT_FSM_CONTAINER" $file/environ && [ ${file#/proc/} != $$ ] && kill -9 ${file#/proc/}
done
"""


async def shout(stream: trio.SocketStream) -> None:
    """Answers in capitals, until the client has ended."""
    async for chunk in stream:
        await stream.send_all(bytes(chunk).upper())


async def talk(box: DockerRuntime, port: int, said: str, size: int = 1) -> str:
    done = await box.run([sys.executable, "-c", TALK, str(port), said, str(size)])
    return done.stdout.strip() or done.stderr.splitlines()[-1]


@asynccontextmanager
async def free_port() -> AsyncIterator[int]:
    """A port that nobody listens on."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listener.socket.getsockname()[1]
    await listener.aclose()
    yield port


async def test_without_a_policy_the_host_is_reached_by_its_name(docker: Stand) -> None:
    box = DockerRuntime("box", network=None)
    assert not box.restricted
    assert [
        box.host_url(url)
        for url in (
            "http://127.0.0.1:8000/v1?a=b",
            "http://localhost/x",
            "http://[::1]:9/",
            "http://0.0.0.0:5/",
            "http://172.17.0.1:8000/v1",
            "https://example.org/",
        )
    ] == [
        "http://host.docker.internal:8000/v1?a=b",
        "http://host.docker.internal/x",
        "http://host.docker.internal:9/",
        "http://host.docker.internal:5/",
        "http://172.17.0.1:8000/v1",
        "https://example.org/",
    ]
    async with container(docker, network=None) as box:
        await box.prepare_execution([Route("http://127.0.0.1:8000/v1")])
        assert docker.of_the_container("networks") == ["bridge"]


async def test_under_a_policy_the_network_goes_and_the_routes_stay(docker: Stand) -> None:
    async with free_port() as port, container(docker, network=NOTHING) as box:
        assert box.restricted
        url = f"http://127.0.0.1:{port}/v1"
        assert box.host_url(url) == url
        await box.run(["true"])
        assert docker.of_the_container("networks") == ["bridge"]
        await box.prepare_execution([Route(url, shout)])
        assert docker.of_the_container("networks") == []
        assert await talk(box, port, "hello") == "5 HELLO"
        assert "proxy" not in (await box.run(["env"])).stdout.lower()


async def test_much_is_carried_by_many_at_once_and_none_holds_up_another(docker: Stand) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        heard = bytearray(await stream.receive_some(1))
        if heard == b"!":
            await trio.sleep_forever()
        async for chunk in stream:
            heard += chunk
        await stream.send_all(heard.upper())

    async with free_port() as port, container(docker, network=NOTHING) as box:
        await box.prepare_execution([Route(f"http://127.0.0.1:{port}/", serve)])
        said: list[str] = []

        async def run() -> None:
            said.append(await talk(box, port, "abcdefgh", 100_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk, box, port, "!unheard", 1_000_000)
            async with trio.open_nursery() as heard:
                for _ in range(3):
                    heard.start_soon(run)
            nursery.cancel_scope.cancel()
        assert said == ["800000 ABCDEFGHABCDEFGHABCDEFGHABCDEFGHABCDEFGH"] * 3


async def test_what_a_policy_allows_is_reached_through_a_proxy_of_which_programs_are_told(docker: Stand) -> None:
    async with container(docker, network=NetworkPolicy(["example.org"])) as box:
        assert "proxy" not in (await box.run(["env"])).stdout.lower()
        await box.prepare_execution([])
        told = (await box.run(["env"])).stdout.splitlines()
        assert "HTTPS_PROXY=http://127.0.0.1:3128" in told
        assert "no_proxy=localhost,127.0.0.1,::1" in told
        refused = await box.run([sys.executable, "-c", FETCH, "http://169.254.169.254/latest/meta-data"])
        assert refused.stdout.startswith('403 b"169.254.169.254:80 is not allowed by the network policy')


async def test_a_tasks_policy_joins_the_runtimes_own(docker: Stand) -> None:
    box = DockerRuntime("box", network=NetworkPolicy(["example.org"]))
    box.restrict(NetworkPolicy(block=["*"]))
    assert box.restricted
    assert DockerRuntime("box").restricted
    open_box = DockerRuntime("box", network=None)
    open_box.restrict(NetworkPolicy())
    assert not open_box.restricted


async def test_what_cannot_be_enforced_is_said_before_the_execution(
    docker: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with container(docker, network=NOTHING) as box:
        for routes, says in (
            ([Route("http://127.0.0.1:3128/")], "has a route on port 3128, where its proxy is"),
            ([Route("/v1")], "has a route that is no URL with a host"),
        ):
            with pytest.raises(SandboxError, match=says):
                await box.prepare_execution(routes)
        monkeypatch.setenv("FAKE_DOCKER_KEEPS_NETWORKS", "1")
        with pytest.raises(SandboxError, match="is still connected to bridge, and its policy allows no network"):
            await box.prepare_execution([])
        monkeypatch.delenv("FAKE_DOCKER_KEEPS_NETWORKS")
        (docker.bin / "python3").unlink()
        (docker.bin / "python3").write_text("#!/bin/sh\necho no such thing >&2\nexit 127\n")
        (docker.bin / "python3").chmod(0o755)
        with pytest.raises(SandboxError, match=r"cannot carry the framework's routes .*no such thing; the image needs"):
            await box.prepare_execution([Route("http://127.0.0.1:8000/", shout)])


async def test_a_box_that_is_used_again_has_the_new_routes_and_not_the_old_ones(docker: Stand) -> None:
    async with free_port() as first, container(docker, network=NOTHING) as box:
        await box.prepare_execution([Route(f"http://127.0.0.1:{first}/", shout)])
        async with free_port() as second:
            await box.prepare_execution([Route(f"http://127.0.0.1:{second}/", shout)])
            assert await talk(box, second, "hello") == "5 HELLO"
            assert "refused" in await talk(box, first, "hello")


async def test_a_carrier_that_dies_takes_only_its_connections_along(docker: Stand) -> None:
    async with free_port() as port, container(docker, network=NOTHING) as box:
        await box.prepare_execution([Route(f"http://127.0.0.1:{port}/", shout)])
        await box.run(["sh", "-c", KILL])
        assert "refused" in await talk(box, port, "hello")
        assert await box.alive()
