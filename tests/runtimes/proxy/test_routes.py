"""The framework's own routes into a box whose network is gone."""

from functools import partial
from ipaddress import ip_address

import pytest
import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.network import NetworkPolicy, parse_host
from rollout_fsm.runtime import Route
from rollout_fsm.runtimes.proxy.routes import Execution, dial, lay
from tests.runtimes.proxy.internet import echo, pair


def test_a_route_of_the_loopback_interface_keeps_its_place() -> None:
    near, far = lay(
        "box", [Route("http://127.0.0.1:8000/v1", echo), Route("http://localhost/"), Route("https://[::1]/x", echo)]
    )
    assert list(near) == [("127.0.0.1", 8000), ("127.0.0.1", 80), ("::1", 443)]
    assert near["127.0.0.1", 8000] is near["::1", 443] is echo
    assert not far


def test_two_routes_on_one_port_are_told_apart_by_who_listens_there() -> None:
    near, _ = lay("box", [Route("http://127.0.0.1:1/a", echo), Route("http://127.0.0.1:1/b", echo)])
    assert near["127.0.0.1", 1] is echo
    for routes in (
        [Route("http://127.0.0.1:1/a", echo), Route("http://127.0.0.1:1/b")],
        [Route("http://127.0.0.1:1/a"), Route("http://127.0.0.1:1/b", echo)],
    ):
        near, _ = lay("box", routes)
        assert isinstance(near["127.0.0.1", 1], partial)


def test_a_far_route_is_reached_whatever_the_policies() -> None:
    near, far = lay("box", [Route("https://Model.example/v1"), Route("http://10.0.0.7:8000/")])
    assert not near
    policies = Execution((NetworkPolicy([]),), far)
    assert policies.refusal("model.example", 443, [ip_address("10.0.0.9")]) is None
    assert policies.refusal(parse_host("10.0.0.7"), 8000) is None
    assert policies.refusal("model.example", 80) is not None
    assert policies.refusal("other.example", 443) is not None


@pytest.mark.parametrize("url", ["", "/v1", "ftp://127.0.0.1/", "http://:80/", "127.0.0.1:80"])
def test_what_is_no_url_with_a_host_is_no_route(url: str) -> None:
    with pytest.raises(SandboxError, match="runtime box has a route that is no URL with a host"):
        lay("box", [Route(url)])


def test_the_place_of_the_proxy_is_not_a_routes() -> None:
    with pytest.raises(SandboxError, match="has a route on port 3128, where its proxy is"):
        lay("box", [Route("http://127.0.0.1:3128/")])


@pytest.mark.real_time
async def test_a_route_that_nobody_answers_is_dialled() -> None:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, echo, 0)
        port = listeners[0].socket.getsockname()[1]
        ours, theirs = pair()
        async with ours, theirs:
            nursery.start_soon(dial, "127.0.0.1", port, theirs)
            await ours.send_all(b"hello")
            assert await ours.receive_some() == b"hello"
        nursery.cancel_scope.cancel()
        await listeners[0].aclose()
    ours, theirs = pair()
    async with ours, theirs:
        await dial("127.0.0.1", port, theirs)
