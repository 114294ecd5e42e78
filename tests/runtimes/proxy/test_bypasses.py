"""Ways round the proxy that do not lead anywhere."""

from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtimes.proxy.dialling import is_of_this_machine
from tests.profiles import examples
from tests.runtimes.proxy.internet import OTHER, PUBLIC, echo, opened, site, web

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
ONLY_EXAMPLE = NetworkPolicy(["example.org"])
METADATA = "169.254.169.254"


def get(url: str) -> bytes:
    return f"GET {url} HTTP/1.1\r\nHost: example.org\r\n\r\n".encode()


def connect(authority: str) -> bytes:
    return f"CONNECT {authority} HTTP/1.1\r\nHost: example.org:443\r\n\r\n".encode()


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer.split()[1])


PRIVATE = (
    "127.0.0.1 127.1 0x7f.1 2130706433 0177.0.0.1 0 localhost LOCALHOST. metadata.example 169.254.169.254 0xa9fea9fe "
    "2852039166 [::1] [::ffff:127.0.0.1] [::ffff:a9fe:a9fe] [fd00:ec2::254] [64:ff9b::a9fe:a9fe] [2002:a9fe:a9fe::1] "
    "[::127.0.0.1] [::] [fe80::1] 10.0.0.7 db.internal 100.100.100.200 168.63.129.16 255.255.255.255 224.0.0.1"
)


@pytest.mark.parametrize("host", PRIVATE.split())
@pytest.mark.parametrize("policy", [NetworkPolicy(), NetworkPolicy(["*"]), ONLY_EXAMPLE], ids=["all", "any", "one"])
async def test_no_spelling_of_what_is_not_public_is_reached(host: str, policy: NetworkPolicy) -> None:
    async with site(policy) as here:
        here.net.names |= {
            "localhost": [["::1", "127.0.0.1"]],
            "metadata.example": [[METADATA]],
            "db.internal": [["10.0.0.7"]],
        }
        for asked in (get(f"http://{host}/latest/meta-data/"), connect(f"{host}:80")):
            assert status(await here.ask(asked)) == 403
        assert here.net.dialled == []


async def test_a_name_that_leads_inside_the_second_time_is_not_looked_up_a_second_time() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.names["example.org"] = [[PUBLIC], ["127.0.0.1"]]
        here.net.servers["127.0.0.1", 80] = echo
        here.net.servers[PUBLIC, 80], _ = web(OK)
        assert status(await here.ask(get("http://example.org/"))) == 200
        assert here.net.looked_up == ["example.org"]
        assert here.net.dialled == [(PUBLIC, 80)]
        assert status(await here.ask(get("http://example.org/"))) == 403
        assert here.net.dialled == [(PUBLIC, 80)]


async def test_a_name_of_which_one_address_leads_inside_is_not_reached_at_the_others() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.names["example.org"] = [[PUBLIC, "::ffff:127.0.0.1"]]
        assert status(await here.ask(connect("example.org:443"))) == 403
        assert here.net.dialled == []


async def test_where_a_name_led_is_told_to_who_runs_the_box_and_not_to_the_box() -> None:
    async with site() as here:
        here.net.names["db.internal"] = [["10.0.0.7"]]
        answer = await here.ask(connect("db.internal:5432"))
        assert b"10.0.0.7" not in answer
        assert b"db.internal:5432 is at an address that is not public" in answer
        (refusal,) = here.proxy.refusals
        assert str(refusal.address) == "10.0.0.7"
        assert str(refusal).endswith("[10.0.0.7]")


async def test_a_name_that_is_not_allowed_is_not_looked_up() -> None:
    """A look-up already tells something to whoever owns the name."""
    async with site(NetworkPolicy(["example.org", "10.0.0.0/8"])) as here:
        assert status(await here.ask(connect("the-secret.attacker.example:443"))) == 403
        assert here.net.looked_up == []


async def test_a_redirect_is_the_clients_to_follow_and_meets_the_policy() -> None:
    async with site(ONLY_EXAMPLE) as here:
        moved = b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"
        here.net.servers[PUBLIC, 80], _ = web(moved)
        answer = await here.ask(get("http://example.org/"))
        assert status(answer) == 302
        assert here.net.dialled == [(PUBLIC, 80)]
        assert status(await here.ask(get("http://169.254.169.254/"))) == 403


URLS = (
    "http://example.org@other.example/ http://other.example@example.org/ http://a:b@example.org/ http://@example.org/ "
    "http://example.org:80@other.example/ http://example.org\\@other.example/ http://other.example\\.example.org/ "
    "http://other.example%2f.example.org/ http://other.example%00.example.org/ http://[other.example]/ http:///path "
    "http://:80/ http://example.org:0/ http://example.org:65536/ http://example.org:80:80/ http://::1/ http://[::1/ "
    "http://[fe80::1%25lo]/ http://example..org/ http://example.org#@other.example/ https://example.org/ "
    "ftp://example.org/ file:///etc/passwd gopher://example.org/ HTTPS://example.org/ / * //example.org/ example.org "
    "example.org:80 http:/example.org http:example.org"
)


@pytest.mark.parametrize("url", URLS.split())
async def test_a_url_that_could_be_read_in_two_ways_or_is_none_of_the_proxys_is_refused(url: str) -> None:
    async with site(NetworkPolicy(["*"])) as here:
        answer = await here.ask(get(url))
        assert status(answer) == 400
        assert (here.net.looked_up, here.net.dialled) == ([], [])


AUTHORITIES = (
    "example.org example.org: example.org:0 example.org:65536 example.org:http example.org:443/path :443 "
    "user@example.org:443 other.example:443@example.org:443 http://example.org:443 ::1:443 [::1] [::1]: "
    "[example.org]:443 [::1%25lo]:443 example.org:443?x example.org:443:443 example.org%00:443 /run/docker.sock *:443 "
    "*.org:443 +443 e:+443"
)


@pytest.mark.parametrize("authority", AUTHORITIES.split())
async def test_connect_takes_a_host_and_a_port_and_nothing_else(authority: str) -> None:
    async with site(NetworkPolicy(["*"])) as here:
        assert status(await here.ask(connect(authority))) == 400
        assert (here.net.looked_up, here.net.dialled) == ([], [])


async def test_the_host_header_names_nobody() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 80], heard = web(OK)
        asked = b"GET http://example.org/ HTTP/1.1\r\nHost: other.example\r\nX-Forwarded-Host: y\r\n\r\n"
        assert status(await here.ask(asked)) == 200
        assert b"host: example.org\r\n" in heard
        assert b"other.example" not in heard
        assert status(await here.ask(asked.replace(b"X-Forwarded-Host", b"Host"))) == 400
        assert status(await here.ask(b"GET http://example.org/ HTTP/1.1\r\n\r\n")) == 400


SMUGGLED = b"GET http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: 5, 6",
        b"Content-Length: +5",
        b"Content-Length: 0x5",
        b"Transfer-Encoding: identity, chunked",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Transfer-Encoding : chunked",
        b"Content-Length:\r\n 5\r\nTransfer-Encoding:\x0bchunked",
        b"X: y\rContent-Length: 5",
        b"X: y\x00",
    ],
)
async def test_a_request_with_two_ends_is_refused_before_anything_is_reached(headers: bytes) -> None:
    async with site(ONLY_EXAMPLE) as here:
        said = b"POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\n%s\r\n\r\n0\r\n\r\n" % headers
        assert status(await here.ask(said + SMUGGLED)) in (400, 501)
        assert here.net.dialled == []


async def test_what_follows_a_request_reaches_nobody() -> None:
    async with site(NetworkPolicy(["*"])) as here:
        here.net.servers[PUBLIC, 80], heard = web(OK)
        body = b"POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: 3\r\n\r\nabc"
        answer = await here.ask(body + SMUGGLED)
        assert answer.count(b"HTTP/1.1") == 1
        assert b"other.example" not in heard
        assert here.net.dialled == [(PUBLIC, 80)]


async def test_chunks_that_are_none_are_not_passed_on() -> None:
    async with site(ONLY_EXAMPLE) as here:
        here.net.servers[PUBLIC, 80], heard = web()
        said = b"POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert status(await here.ask(said, b"zz\r\n")) == 400
        assert b"zz" not in heard


async def test_the_engines_own_public_address_is_not_reached() -> None:
    async with site(NetworkPolicy(["*"]), own=[ip_address(PUBLIC)]) as here:
        assert status(await here.ask(connect(f"{PUBLIC}:443"))) == 403
        assert status(await here.ask(connect("example.org:443"))) == 403
        assert here.net.dialled == []
    async with site(NetworkPolicy(["example.org", f"{PUBLIC}:443"]), own=[ip_address(PUBLIC)]) as here:
        await (await opened(here, connect("example.org:443"))).aclose()


def test_a_machine_knows_its_own_addresses() -> None:
    assert is_of_this_machine(ip_address("127.0.0.1"))
    assert not is_of_this_machine(ip_address(OTHER))


@examples(1.0)
@given(
    st.sampled_from(["GET ", "CONNECT ", "POST http://", "GET http://", ""]),
    st.text("127.0x:[]@/\\%#?* \r\nexamplorg", max_size=40) | st.sampled_from(PRIVATE.split()),
    st.sampled_from(["", " HTTP/1.1\r\nHost: example.org\r\n\r\n", ":80 HTTP/1.1\r\nHost: example.org\r\n\r\n"]),
    st.binary(max_size=20),
)
@example("GET http://", "example.org", " HTTP/1.1\r\nHost: example.org\r\n\r\n", b"")
async def test_whatever_is_said_nothing_but_what_is_allowed_is_reached(
    verb: str, target: str, rest: str, more: bytes
) -> None:
    async with site(ONLY_EXAMPLE, max_connections=1) as here:
        here.net.servers[PUBLIC, 80], heard = web(OK)
        answer = await here.ask(f"{verb}{target}{rest}".encode() + more, end=True)
        assert not answer or status(answer) in (200, 400, 403, 408, 431, 501, 502)
        assert {address for address, _ in here.net.dialled} <= {PUBLIC}
        assert set(here.net.looked_up) <= {"example.org"}
        assert b"\r\nhost: example.org" in heard or not heard
