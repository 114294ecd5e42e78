"""The isolated runtime: programs reach the framework's own routes, what the policies allow, and nothing else."""

import json
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtime import Route
from rollout_fsm.runtimes.bubblewrap import BubblewrapRuntime
from tests.runtimes.bubblewrap.boxes import RING, bell, box

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("bubblewrap", "temporary")]
PYTHON = sys.executable
NOTHING = NetworkPolicy(allow=())
PROXY = ("127.0.0.1", 3128)

ASK = """
import socket, sys
host, port, *words = sys.argv[1:]
try:
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(" ".join(words).encode())
        connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(65536):
            sys.stdout.buffer.write(data)
except OSError as error:
    print(f"{type(error).__name__}: {error}")
"""
"""Connects to a host and port, says something, and prints the answer, or why there is none."""

FETCH = """
import sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url).read().decode())
    except Exception as error:
        print(getattr(error, "code", error))
"""
"""Fetches URLs as most programs do, by the proxy that its environment tells of."""


async def asked(runtime: BubblewrapRuntime, host: str, port: int, *words: str) -> str:
    """What a program in the box gets from there."""
    return (await runtime.run([PYTHON, "-c", ASK, host, str(port), *words])).stdout


@asynccontextmanager
async def served(answer: str, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A service of the host that answers with what it was told; yields its port."""

    async def serve(stream: trio.SocketStream) -> None:
        said = b"".join([chunk async for chunk in stream])
        await stream.send_all(answer.encode() + said)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host=host))
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def site(page: str, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """A web site of the host; yields its URL."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.0 200 OK\r\n\r\n" + page.encode())

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host=host))
        yield f"http://{host}:{listener.socket.getsockname()[1]}/"
        nursery.cancel_scope.cancel()


def answering(text: str) -> Route:
    """A route of the framework's own that no machine's network leads to."""

    async def answer(stream: trio.SocketStream) -> None:
        said = b"".join([chunk async for chunk in stream])
        await stream.send_all(text.encode() + said)

    return Route("http://127.0.0.1:45678/v1", answer)


# --- the framework's own routes


async def test_a_route_that_answers_itself_is_reached_at_its_url_and_through_no_network() -> None:
    async with box() as runtime:
        assert "refused" in await asked(runtime, "127.0.0.1", 45678)
        await runtime.prepare_execution([answering("hello ")])
        assert await asked(runtime, "127.0.0.1", 45678, "you") == "hello you"
        assert await asked(runtime, "localhost", 45678, "x" * 100_000) == "hello " + "x" * 100_000
        assert runtime.host_url("http://127.0.0.1:45678/v1") == "http://127.0.0.1:45678/v1"
        with pytest.raises(OSError, match=r"all attempts to connect to 127\.0\.0\.1:45678 failed"):
            await trio.open_tcp_stream("127.0.0.1", 45678)


async def test_a_route_of_the_host_is_reached_at_its_url() -> None:
    async with served("hello ") as port, box() as runtime:
        assert "refused" in await asked(runtime, "127.0.0.1", port)
        for host in ("localhost", "127.0.0.1"):
            await runtime.prepare_execution([Route(f"http://{host}:{port}/tools?key=secret")])
            assert await asked(runtime, "127.0.0.1", port, "you") == "hello you"
            assert await asked(runtime, "127.0.0.1", port, "x" * 100_000) == "hello " + "x" * 100_000


async def test_a_route_of_the_hosts_other_loopback_address_is_reached() -> None:
    async with served("six ", "::1") as port, box() as runtime:
        await runtime.prepare_execution([Route(f"https://[::1]:{port}/")])
        assert await asked(runtime, "::1", port, "you") == "six you"


async def test_a_route_that_leads_nowhere_ends_the_connection_and_no_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    async with box() as runtime:
        await runtime.prepare_execution([Route(f"http://127.0.0.1:{port}"), answering("hello ")])
        assert "ConnectionReset" in (said := await asked(runtime, "127.0.0.1", port)) or said == ""
        assert await asked(runtime, "127.0.0.1", 45678, "you") == "hello you"


async def test_routes_that_share_a_port_are_told_apart_by_who_listens_there() -> None:
    async with served("host ") as port, box() as runtime:
        own = answering("own ").answer
        await runtime.prepare_execution([Route(f"http://127.0.0.1:{port}/a", own), Route(f"http://127.0.0.1:{port}/b")])
        assert await asked(runtime, "127.0.0.1", port, "x") == "host x"
        same = [Route(f"http://127.0.0.1:{port}/a", own), Route(f"http://127.0.0.1:{port}/b", own)]
        await runtime.prepare_execution(same)
        assert await asked(runtime, "127.0.0.1", port, "x") == "own x"


async def test_the_routes_of_the_next_execution_replace_those_of_the_one_before() -> None:
    async with served("tools ") as port, box() as runtime:
        await runtime.prepare_execution([answering("first "), Route(f"http://127.0.0.1:{port}")])
        assert await asked(runtime, "127.0.0.1", 45678, "x") == "first x"
        await runtime.prepare_execution([answering("second ")])
        assert await asked(runtime, "127.0.0.1", 45678, "x") == "second x"
        assert "refused" in await asked(runtime, "127.0.0.1", port)


async def test_an_answer_that_fails_ends_its_connection_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        if await stream.receive_some() == b"fail":
            raise ValueError("broken")
        await stream.send_all(b"well")

    async with box() as runtime:
        await runtime.prepare_execution([Route("http://127.0.0.1:45678", answer)])
        assert await asked(runtime, "127.0.0.1", 45678, "fail") == ""
        assert await asked(runtime, "127.0.0.1", 45678, "do") == "well"
    assert "a connection of a box failed" in caplog.text


async def test_more_connections_than_are_served_at_once_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_fsm.runtimes.bubblewrap.ways.AT_ONCE", 2)
    at_once: list[int] = [0]
    most: list[int] = []

    async def answer(stream: trio.SocketStream) -> None:
        at_once[0] += 1
        most.append(at_once[0])
        await stream.send_all(b"".join([chunk async for chunk in stream]))
        at_once[0] -= 1

    code = "import socket, sys\nall = [socket.create_connection(('127.0.0.1', 45678)) for _ in range(20)]\n"
    code += "for each in all:\n each.sendall(b'x'); each.shutdown(1); print(each.recv(9), end='')"
    async with box() as runtime:
        await runtime.prepare_execution([Route("http://127.0.0.1:45678", answer)])
        assert (await runtime.run([PYTHON, "-c", code])).stdout == "b'x'" * 20
    assert max(most) == 2


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("http://127.0.0.1:80/", r"cannot open 127.0.0.1:80 in its box: a route needs a port of 1024 or more"),
        ("http://127.0.0.1:45678/", r"cannot open 127.0.0.1:45678 in its box: a program of the setup listens there"),
        ("http://127.0.0.1:3128/secret", r"has a route on port 3128, where its proxy is"),
        ("secret", r"has a route that is no URL with a host: its scheme is '', and its host None$"),
        ("http://127.0.0.1:99999/secret", r"has a route that is no URL with a host: Port out of range 0-65535$"),
    ],
)
async def test_a_route_that_cannot_be_opened_is_named(route: str, said: str) -> None:
    listen = (
        "import os, socket; s = socket.create_server(('127.0.0.1', 45678)); os.fork() or __import__('signal').pause()"
    )
    async with box() as runtime:
        assert (await runtime.run([PYTHON, "-c", listen])).exit_code == 0
        with pytest.raises(SandboxError, match=f"runtime box {said}"):
            await runtime.prepare_execution([Route(route)])


# --- nothing else


KNOCK = """
import json, socket, sys
for family, place in json.loads(sys.argv[1]):
    try:
        with socket.socket(family) as knocking:
            knocking.settimeout(5)
            knocking.connect(tuple(place) if isinstance(place, list) else place)
            print("open", place)
    except OSError as error:
        print(error.strerror)
"""


async def test_nothing_of_the_host_or_of_another_box_is_reached() -> None:
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0rollout-fsm-test")
        abstract.listen()
        async with served("host ") as port, box(network=NOTHING) as runtime, box("other") as other:
            serve = "import socket, os; s = socket.create_server(('0.0.0.0', 5001)); print(os.fork() or s.accept())"
            assert (await other.run([PYTHON, "-c", serve])).exit_code == 0
            assert await asked(other, "127.0.0.1", 5001) == ""
            assert (await other.run([PYTHON, "-c", serve.replace("5001", "5002")])).exit_code == 0
            await runtime.prepare_execution([answering("own ")])
            refused = [(2, (host, number)) for host in ("127.0.0.1", "0.0.0.0") for number in (port, 5002, PROXY[1])]
            refused += [(10, ("::1", port)), (1, "\0rollout-fsm-test")]
            unreachable = [(2, (host, 80)) for host in ("169.254.169.254", "192.0.2.1", "10.0.0.1")]
            unreachable += [(10, ("fd00:ec2::254", 80))]
            knock = [PYTHON, "-c", KNOCK, json.dumps([*refused, *unreachable, (2, ("127.0.0.1", 45678))])]
            said = (await runtime.run(knock)).stdout.splitlines()
            assert said[: len(refused)] == ["Connection refused"] * len(refused)
            assert said[len(refused) : -1] == ["Network is unreachable"] * len(unreachable)
            assert said[-1] == "open ['127.0.0.1', 45678]"
            assert "gaierror" in await asked(runtime, "example.org", 80)
            assert not any("PROXY" in line for line in (await runtime.run(["env"])).stdout.splitlines())


async def test_before_it_is_made_ready_for_setup_there_is_no_network() -> None:
    async with box() as runtime:
        assert "refused" in await asked(runtime, *PROXY)
        assert "proxy" not in (await runtime.run(["env"])).stdout


# --- named hosts


async def test_setup_and_execution_reach_what_their_policies_allow() -> None:
    async with site("allowed", "127.0.0.2") as allowed, site("setup's") as setups:
        network = NetworkPolicy(allow=["127.0.0.2"])
        setup = NetworkPolicy(allow=["127.0.0.0/8"])
        fetch = [PYTHON, "-c", FETCH, allowed, setups]
        direct = {"no_proxy": "", "NO_PROXY": ""}
        async with box(network=network, setup_network=setup) as runtime:
            await runtime.prepare_setup()
            assert (await runtime.run(fetch, env=direct)).stdout == "allowed\nsetup's\n"
            await runtime.prepare_execution([])
            assert (await runtime.run(fetch, env=direct)).stdout == "allowed\n403\n"
            variables = (await runtime.run(["env"])).stdout.splitlines()
            for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                assert f"{name}=http://127.0.0.1:3128" in variables


async def test_a_task_takes_away_what_the_runtime_allows_and_the_next_one_has_its_own_policy() -> None:
    network = NetworkPolicy(allow=["127.0.0.2"])
    async with site("page", "127.0.0.2") as url, box(network=network, setup_network=NOTHING) as runtime:
        before = runtime.lease
        runtime.restrict(NetworkPolicy(allow=["127.0.0.3"]))
        assert runtime.lease != before
        await runtime.prepare_setup()
        assert "refused" in await asked(runtime, *PROXY)
        await runtime.prepare_execution([])
        fetch = [PYTHON, "-c", FETCH, url]
        assert (await runtime.run(fetch, env={"no_proxy": ""})).stdout == "403\n"
        runtime.restrict(None)  # of the task that borrows it next
        assert runtime.lease == before
        await runtime.prepare_execution([])
        assert (await runtime.run(fetch, env={"no_proxy": ""})).stdout == "page\n"


async def test_it_is_restricted_unless_all_that_is_public_may_be_reached() -> None:
    assert BubblewrapRuntime("box").restricted
    assert not BubblewrapRuntime("box", network=NetworkPolicy()).restricted
    assert BubblewrapRuntime("box", network=NetworkPolicy(block=["example.org"])).restricted
    runtime = BubblewrapRuntime("box", network=NetworkPolicy())
    runtime.restrict(NetworkPolicy())
    assert not runtime.restricted
    runtime.restrict(NOTHING)
    assert runtime.restricted
    runtime.restrict(None)
    assert not runtime.restricted


@pytest.mark.parametrize("execution", [["127.0.0.3"], []])
async def test_what_setup_had_reached_is_cut_when_the_execution_may_not(execution: Sequence[str]) -> None:
    client = RING.replace("echo up >&9", 'exec "$0" -c "$1" "$2"')
    code = "import os, socket, sys\nproxy = socket.create_connection(('127.0.0.1', 3128))\n"
    code += "proxy.sendall(b'CONNECT 127.0.0.2:%s HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' % sys.argv[1].encode())\n"
    code += "assert b'200' in proxy.recv(1000)\nos.write(9, b'up\\n')\nproxy.recv(1)\nos.write(9, b'cut\\n')"
    async with served("", "127.0.0.2") as port:
        setup = NetworkPolicy(allow=["127.0.0.2"])
        async with box(network=NetworkPolicy(allow=execution), setup_network=setup) as runtime:
            await runtime.prepare_setup()
            ringing = bell(runtime)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(runtime.run, ["sh", "-c", client, PYTHON, code, str(port)])
                assert await ringing.line() == "up"
                await runtime.prepare_execution([])
                assert await ringing.line() == "cut"
            ringing.close()


async def test_a_route_that_is_no_loopback_one_stays_open_through_the_proxy_and_opens_nothing_else() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # sends nothing
        try:
            probe.connect(("192.0.2.1", 9))
            host = probe.getsockname()[0]
        except OSError:
            host = "127.0.0.1"
    if host.startswith("127."):
        pytest.skip("this machine has no address but its loopback ones")
    async with site("tools", host) as route, site("other", host) as other, box(network=NOTHING) as runtime:
        await runtime.prepare_execution([Route(route)])
        assert (await runtime.run([PYTHON, "-c", FETCH, route, other])).stdout == "tools\n403\n"
        assert "unreachable" in await asked(runtime, host, 80)
