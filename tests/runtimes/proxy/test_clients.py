"""Real clients through the proxy, over TCP: what they ask for is what they get, and what is refused they are told."""

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
import trio
from attrs import frozen

from rollout_fsm.network import NetworkPolicy, Policies
from rollout_fsm.runtimes.proxy import NetworkProxy
from tests.runtimes.proxy.internet import PUBLIC, Internet, web

pytestmark = pytest.mark.real_time
FETCH = """
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], data=b"x" * 200_000).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


@frozen
class Served:
    proxy: NetworkProxy
    url: str
    net: Internet

    async def run(self, *argv: str) -> str:
        environment = {"http_proxy": self.url, "https_proxy": self.url, "PATH": "/usr/bin:/bin"}
        done = await trio.run_process(list(argv), capture_stdout=True, stderr=subprocess.STDOUT, env=environment)
        return done.stdout.decode()


@asynccontextmanager
async def served(policy: NetworkPolicy) -> AsyncIterator[Served]:
    async with trio.open_nursery() as nursery:
        net = Internet(nursery, names={"example.org": [[PUBLIC]]})
        serve, _ = web(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        net.servers[PUBLIC, 80] = serve
        proxy = NetworkProxy(policies=Policies((policy,)), resolve=net.resolve, connect=net.connect)
        listeners = await nursery.start(trio.serve_tcp, proxy.answer, 0)
        port = listeners[0].socket.getsockname()[1]
        yield Served(proxy, f"http://127.0.0.1:{port}", net)
        nursery.cancel_scope.cancel()


async def test_urllib_posts_through_it_and_is_told_why_not() -> None:
    async with served(NetworkPolicy(["example.org"])) as here:
        assert await here.run(sys.executable, "-c", FETCH, "http://example.org/") == "hello\n"
        said = await here.run(sys.executable, "-c", FETCH, "http://169.254.169.254/latest")
        assert said.startswith("403 169.254.169.254:80 is not allowed by the network policy")


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
async def test_curl_goes_through_it_with_and_without_a_tunnel() -> None:
    async with served(NetworkPolicy(["example.org:80"])) as here:
        assert await here.run("curl", "-sS", "http://example.org/") == "hello"
        here.net.servers[PUBLIC, 80], _ = web(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        assert await here.run("curl", "-sS", "--proxytunnel", "http://example.org/") == "hello"
        refused = await trio.run_process(
            ["curl", "-sS", "-x", here.url, "https://example.org/"], capture_stderr=True, check=False
        )
        assert b"CONNECT tunnel failed, response 403" in refused.stderr or b"HTTP code 403" in refused.stderr


async def test_httpx_follows_a_redirect_only_to_what_is_allowed() -> None:
    async with served(NetworkPolicy(["example.org"])) as here, httpx2.AsyncClient(proxy=here.url) as client:
        moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
        here.net.servers[PUBLIC, 80], _ = web(moved)
        answer = await client.get("http://example.org/", follow_redirects=True)
        assert answer.status_code == 403
        assert answer.url == "http://127.0.0.1:9/"
