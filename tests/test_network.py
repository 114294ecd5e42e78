"""Which hosts a network policy lets be reached: every spelling of them, what they lead to, and several policies at
once."""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.network import NetworkPolicy, Policies, endpoint, is_public, parse_host, parse_port

PUBLIC = ip_address("93.184.216.34")


def wide(text: str) -> str:
    """The text in full-width characters, which IDNA takes for the plain ones."""
    return "".join(chr(ord(character) + 0xFEE0) for character in text)


def words(text: str) -> list[str]:
    return text.split()


def reached(policy: NetworkPolicy | Policies, host: str, port: int = 443, *addresses: str) -> bool:
    return policy.refusal(parse_host(host), port, [ip_address(address) for address in addresses]) is None


# ---- hosts


@pytest.mark.parametrize(
    ("spelling", "host"),
    [
        ("example.org", "example.org"),
        ("EXAMPLE.Org", "example.org"),
        ("example.org.", "example.org"),
        ("xn--mnchen-3ya.example", "xn--mnchen-3ya.example"),
        ("münchen.example", "xn--mnchen-3ya.example"),
        (wide("example.org"), "example.org"),
        ("_srv.under_score.example", "_srv.under_score.example"),
        ("localhost", "localhost"),
        ("1.example", "1.example"),
    ],
)
def test_a_name_has_one_spelling(spelling: str, host: str) -> None:
    assert parse_host(spelling) == host


IPV4 = words(
    "127.0.0.1 127.0.0.1. 127.1 127.0.1 0x7f.1 0X7F.0.0.1 0177.0.0.01 2130706433 0x7f000001 017700000001 127。0。0。1 "
    "::ffff:127.0.0.1 [::ffff:7f00:1] [0:0:0:0:0:FFFF:7f00:0001]"
)


@pytest.mark.parametrize("spelling", [*IPV4, wide("127.0.0.1")])
def test_every_spelling_of_an_ipv4_address_is_that_address(spelling: str) -> None:
    assert parse_host(spelling) == IPv4Address("127.0.0.1")


@pytest.mark.parametrize(("spelling", "address"), [("0", "0.0.0.0"), ("0x", "0.0.0.0"), ("1.0x100", "1.0.1.0")])
def test_numbers_fill_the_bytes_that_are_left(spelling: str, address: str) -> None:
    assert parse_host(spelling) == IPv4Address(address)


@pytest.mark.parametrize("spelling", ["::1", "[::1]", "0:0:0:0:0:0:0:1", "[0000::0001]"])
def test_every_spelling_of_an_ipv6_address_is_that_address(spelling: str) -> None:
    assert parse_host(spelling) == IPv6Address("::1")


NO_HOSTS = words(
    ". .. a..b .a -a.example a-.example a/b a@b a%2eb a\\b a?b a#b a\0b a:b [ [] [::1 ::1] [127.0.0.1] [example.org] "
    "fe80::1%eth0 [fe80::1%25eth0] 1.2.3.4.5 256.1.1.1 1.2.3.256 1.2.65536 4294967296 08 0x7g.1 a.1 1..1"
)
LONG = ["\ud800.example", "é" * 300, "a" * 64 + ".example", ".".join(["a" * 60] * 5), "xn--\u2024.example.org/"]


@pytest.mark.parametrize("spelling", ["", "a b", "a\tb", *NO_HOSTS, *LONG])
def test_what_is_no_host_is_refused(spelling: str) -> None:
    with pytest.raises(ValueError, match=r"host|address|characters"):
        parse_host(spelling)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.lists(st.sampled_from("dox"), min_size=4, max_size=4))
def test_any_address_in_any_number_of_numbers_of_any_base_is_that_address(value: int, parts: int, bases: str) -> None:
    *first, last = [*value.to_bytes(4)[: parts - 1], value % 256 ** (5 - parts)]
    spell: dict[str, Callable[[int], str]] = {"d": str, "o": "0{:o}".format, "x": hex}
    spelled = [spell[base](number) for base, number in zip(bases, [*first, last], strict=False)]
    assert parse_host(".".join(spelled)) == IPv4Address(value)


@given(st.text(max_size=20) | st.text("0123456789abcdefx.:[]%*-_", max_size=40))
def test_a_host_is_read_the_same_when_its_own_spelling_is_read_again(text: str) -> None:
    try:
        host = parse_host(text)
    except ValueError:
        return
    assert parse_host(str(host)) == host
    assert str(host).isascii()
    assert isinstance(host, IPv4Address | IPv6Address) or not host.replace(".", "").isdigit()


@pytest.mark.parametrize("text", ["0", "65536", "-1", "+80", "80 ", " 80", wide("80"), "", "1_0", "0x50", "100000"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a port is a number from 1 to 65535"):
        parse_port(text)


def test_an_endpoint_is_spelled_as_in_urls() -> None:
    assert [endpoint(parse_host(host), 80) for host in ("A.example", "::1", "1.2.3.4")] == [
        "a.example:80",
        "[::1]:80",
        "1.2.3.4:80",
    ]


# ---- addresses


NOT_PUBLIC = words(
    "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 168.63.129.16 169.254.169.254 "
    "169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.168.1.1 198.18.0.1 203.0.113.9 224.0.0.1 "
    "239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 "
    "64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1 2001::1 2001:db8::1 2002:7f00:1::1 2002:5db8:d822::1 "
    "3fff::1 5f00::1 fc00::1 fd00:ec2::254 fd20:ce::254 fe80::1 fe80::1%1 fec0::1 ff02::1"
)
OF_THE_INTERNET = words(
    "1.1.1.1 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 128.0.0.1 172.32.0.1 223.255.255.255 ::ffff:1.1.1.1 "
    "64:ff9b::101:101 2606:4700::1111 2a00:1450::1 2001:4860:4860::8888"
)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_of_a_machine_a_private_network_or_a_metadata_service_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", OF_THE_INTERNET)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@given(st.integers(0, 2**32 - 1))
def test_what_the_standard_library_calls_private_or_a_group_is_not_public(value: int) -> None:
    address = IPv4Address(value)
    if address.is_private or address.is_multicast or address.is_reserved or not address.is_global:
        assert not is_public(address)
        assert not is_public(IPv6Address(f"::ffff:{address}"))


# ---- one policy


def test_without_allow_everything_public_is_reached_and_nothing_else() -> None:
    policy = NetworkPolicy()
    assert reached(policy, "example.org", 22, "93.184.216.34", "2606:4700::1111")
    assert reached(policy, "93.184.216.34")
    assert not reached(policy, "localhost", 80, "127.0.0.1")
    assert not reached(policy, "127.0.0.1")
    assert not policy.restricts
    assert not policy.forbids_all


def test_an_empty_allow_lets_nothing_be_reached() -> None:
    policy = NetworkPolicy(allow=[])
    assert policy == NetworkPolicy(()) != NetworkPolicy()
    assert not reached(policy, "example.org", 443, "93.184.216.34")
    assert not reached(policy, "93.184.216.34")
    assert policy.restricts
    assert policy.forbids_all


def test_a_name_allows_itself_and_a_pattern_what_is_below() -> None:
    assert reached(NetworkPolicy(["example.org"]), "example.org")
    assert not reached(NetworkPolicy(["example.org"]), "www.example.org")
    below = NetworkPolicy(["*.Example.org."])
    assert reached(below, "www.example.org")
    assert reached(below, "a.b.example.org")
    assert not reached(below, "example.org")
    assert not reached(below, "badexample.org")
    assert not reached(below, "example.org.evil.example")


def test_a_port_narrows_an_entry() -> None:
    policy = NetworkPolicy(["example.org:443", "*:80", "[2606:4700::1111]:53", "9.9.9.0/24:53"])
    assert reached(policy, "example.org", 443)
    assert not reached(policy, "example.org", 22)
    assert reached(policy, "anything.example", 80)
    assert reached(policy, "2606:4700::1111", 53)
    assert not reached(policy, "2606:4700::1111", 54)
    assert reached(policy, "9.9.9.9", 53)
    assert policy.restricts


def test_a_name_does_not_admit_an_address_that_is_not_public_unless_that_is_named_too() -> None:
    for address in ("127.0.0.1", "169.254.169.254", "10.1.2.3", "::ffff:10.1.2.3", "fd00:ec2::254", "64:ff9b::a01:203"):
        assert not reached(NetworkPolicy(["db.example", "*"]), "db.example", 5432, address)
    both = NetworkPolicy(["db.example", "10.1.2.0/24:5432"])
    assert reached(both, "db.example", 5432, "10.1.2.3")
    assert reached(both, "db.example", 5432, "::ffff:10.1.2.3")
    assert not reached(both, "db.example", 5433, "10.1.2.3")
    assert not reached(both, "db.example", 5432, "10.1.2.3", "10.1.3.3")
    assert not reached(both, "db.example", 5432, "93.184.216.34", "127.0.0.1")


def test_an_address_admits_no_name_that_leads_to_it() -> None:
    refusal = NetworkPolicy(["10.0.0.0/8"]).refusal("secret.attacker.example", 53)
    assert refusal is not None
    assert "its allow has no entry such as 'secret.attacker.example:53'" in refusal.why


def test_block_wins_whatever_allow_says() -> None:
    policy = NetworkPolicy(["*", "10.0.0.0/8"], block=["*.ads.example", "10.6.0.0/16", "93.184.216.34", "*:25"])
    assert not reached(policy, "a.ads.example", 443, "1.1.1.1")
    assert not reached(policy, "10.6.0.1")
    assert reached(policy, "10.7.0.1")
    assert not reached(policy, "example.org", 443, "93.184.216.34")
    assert not reached(policy, "example.org", 443, "64:ff9b::5db8:d822")
    assert not reached(policy, "mail.example", 25)
    assert NetworkPolicy(block=["*"]).forbids_all


def test_the_engines_own_addresses_are_not_public() -> None:
    own = [PUBLIC]
    assert NetworkPolicy().refusal("example.org", 80, [PUBLIC], own) is not None
    assert NetworkPolicy(["example.org", str(PUBLIC)]).refusal("example.org", 80, [PUBLIC], own) is None
    assert NetworkPolicy().refusal(PUBLIC, 80, [], own) is not None


def test_a_refusal_says_which_entry_is_missing_or_in_the_way() -> None:
    said = [
        str(NetworkPolicy(["a.example"]).refusal("b.example", 443)),
        str(NetworkPolicy(block=["*.example:443"]).refusal("b.example", 443)),
        str(NetworkPolicy().refusal("b.example", 443, [ip_address("10.0.0.1")])),
        str(NetworkPolicy(block=["1.0.0.0/8"]).refusal("b.example", 443, [ip_address("1.1.1.1")])),
    ]
    assert said == [
        "b.example:443 is not allowed by the network policy: its allow has no entry such as 'b.example:443'",
        "b.example:443 is blocked by the network policy: its block has '*.example:443'",
        "b.example:443 is at an address that is not public: the allow of the network policy has no entry for that very "
        "address [10.0.0.1]",
        "an address of b.example:443 is blocked by the network policy: its block has '1.0.0.0/8' [1.1.1.1]",
    ]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("http://example.org", "it is a URL; name the host alone"),
        ("", "it is empty or has a blank in it"),
        ("a example", "it is empty or has a blank in it"),
        ("example.org/path", "it is no block of addresses"),
        ("*example.org", 'a pattern is "*" or begins with "*."'),
        ("a.*.example", 'a pattern is "*" or begins with "*."'),
        ("*.10.0.0.1", "there are no names below an address"),
        ("*.::1", "there are no names below an address"),
        ("0x7f.1", "write the address as '127.0.0.1'"),
        ("127.1:80", "write the address as '127.0.0.1'"),
        ("10.0.0.1/8", "10.0.0.1/8 has host bits set"),
        ("::ffff:0:0/96", "write the block in IPv4"),
        ("[10.0.0.1]:80", "'10.0.0.1' is no IPv6 address"),
        ("[::1", 'brackets are around an IPv6 address, such as "[2001:db8::1]:443"'),
        ("[::1]80", 'brackets are around an IPv6 address, such as "[2001:db8::1]:443"'),
        ("example.org:", "'' is no port"),
        ("example.org:http", "'http' is no port"),
        ("user@example.org", "'user@example.org' is no host"),
        ("fe80::1%eth0", "names an interface"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(entry: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"^block\[1\] of the network policy") as error:
        NetworkPolicy(None, ["fine.example", entry])
    assert str(error.value).startswith(f"block[1] of the network policy, {entry!r}: ")
    assert says in str(error.value)


def test_a_list_is_not_one_text_and_an_entry_is_nothing_but_text() -> None:
    with pytest.raises(TypeError, match=r"has lists of hosts, not one text: write \['example.org'\]"):
        NetworkPolicy("example.org")
    with pytest.raises(TypeError, match=r"allow\[0\] of the network policy, 7: an entry is text, not int"):
        NetworkPolicy([7])  # type: ignore[list-item]


# ---- several


def test_several_policies_all_have_to_permit() -> None:
    both = Policies(
        (NetworkPolicy(["*.example", "10.0.0.1"]), NetworkPolicy(["a.example", "10.0.0.0/8"], block=["*:25"]))
    )
    assert reached(both, "a.example", 443, "1.1.1.1")
    assert reached(both, "a.example", 443, "10.0.0.1")
    assert not reached(both, "a.example", 443, "10.0.0.2")
    assert not reached(both, "b.example", 443, "1.1.1.1")
    assert not reached(both, "a.example", 25, "1.1.1.1")
    assert both.restricts


def test_no_policy_at_all_permits_what_is_public() -> None:
    assert reached(Policies(), "example.org", 80, "93.184.216.34")
    assert not reached(Policies(), "localhost", 80, "127.0.0.1")
    assert not Policies().restricts


def test_a_policy_joins_once() -> None:
    policies = Policies().joined(NetworkPolicy()).joined(NetworkPolicy([])).joined(NetworkPolicy())
    assert policies == Policies((NetworkPolicy(), NetworkPolicy([])))
    assert policies.restricts
    assert policies.forbids_all


# ---- against a slow reading of the rules, on a small world

BITS = {
    "1.1.1.1": "00000001000000010000000100000001",
    "10.0.0.1": "00001010000000000000000000000001",
    "127.0.0.1": "01111111000000000000000000000001",
}
PRIVATE = ("10.0.0.1", "127.0.0.1")
TRANSLATED = {"::ffff:10.0.0.1": "10.0.0.1", "::ffff:1.1.1.1": "1.1.1.1"}
NAMES = ("test", "a.test", "b.a.test", "xa.test")
ENTRIES = ("*", "*.test", "*.a.test", *NAMES, *BITS, "10.0.0.0/8", "0.0.0.0/0", "1.1.1.0/24")
ports = st.sampled_from([80, 443])
entries = st.tuples(st.sampled_from(ENTRIES), st.none() | ports)
policies = st.tuples(st.none() | st.lists(entries, max_size=3), st.lists(entries, max_size=2))
Listed: TypeAlias = Sequence[tuple[str, int | None]]


def matches(entry: str, host: str) -> bool:
    if entry == "*":
        return True
    if entry.startswith("*."):
        below, labels = entry.split(".")[1:], host.split(".")
        return host not in BITS and len(labels) > len(below) and labels[-len(below) :] == below
    if "/" in entry:
        network, length = entry.split("/")
        bits = "".join(f"{int(byte):08b}" for byte in network.split("."))
        return host in BITS and BITS[host][: int(length)] == bits[: int(length)]
    return entry == host


def listed(entries: Listed, host: str, port: int) -> bool:
    return any(matches(entry, host) and on in (None, port) for entry, on in entries)


def permits(policy: tuple[Listed | None, Listed], host: str, port: int, addresses: Sequence[str]) -> bool:
    allow, block = policy
    if any(listed(block, each, port) for each in (host, *addresses)):
        return False
    if allow is not None and not listed(allow, host, port):
        return False
    named = [(entry, on) for entry, on in allow or () if entry[0].isdigit()]
    return all(listed(named, each, port) for each in (host, *addresses) if each in PRIVATE)


def written(policy: tuple[Listed | None, Listed]) -> NetworkPolicy:
    allow, block = (
        None if side is None else [entry if on is None else f"{entry}:{on}" for entry, on in side] for side in policy
    )
    return NetworkPolicy(allow, block or ())


@given(
    st.lists(policies, min_size=1, max_size=2),
    st.sampled_from([*NAMES, *BITS]),
    ports,
    st.lists(st.sampled_from([*BITS, *TRANSLATED]), max_size=2),
)
def test_the_decision_is_that_of_a_slow_reading_of_the_rules(
    several: list[tuple[Listed | None, Listed]], host: str, port: int, leads_to: list[str]
) -> None:
    addresses = [] if host in BITS else leads_to
    made = Policies(tuple(map(written, several)))
    plain = [TRANSLATED.get(address, address) for address in addresses]
    refusal = made.refusal(parse_host(host), port, [ip_address(address) for address in addresses])
    assert (refusal is None) == all(permits(policy, host, port, plain) for policy in several), refusal
    assert refusal or not made.forbids_all


@given(policies, st.sampled_from(NAMES), ports)
def test_what_is_not_restricted_is_reached_where_it_is_public(
    policy: tuple[Listed | None, Listed], host: str, port: int
) -> None:
    assert written(policy).restricts or reached(written(policy), host, port, "1.1.1.1")
