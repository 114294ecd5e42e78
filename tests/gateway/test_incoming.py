"""What a client sends is taken apart the same however it is cut, and what is no HTTP/1.1 ends it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.gateway.incoming import END, HEAD_LIMIT, Ended, Event, Fault, Head, Incoming, Piece

LINE = b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: gateway\r\n"
BODY = LINE + b"Content-Length: 4\r\n\r\nfour"
CHUNKED = LINE + b"Transfer-Encoding: Chunked\r\n\r\n2\r\nfo\r\n2;x=1\r\nur\r\n0\r\nTrailer: x\r\n\r\n"
UPGRADE = LINE + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
"""What Java's own client sends first on a connection in the clear."""


def events(*pieces: bytes) -> list[Event]:
    incoming = Incoming()
    found: list[Event] = []
    for piece in pieces:
        incoming.feed(piece)
        while (event := incoming.next()) is not None:
            found.append(event)
    return found


def told(found: list[Event]) -> list[object]:
    """The events, without how bodies were cut."""
    said: list[object] = []
    for event in found:
        match event, said:
            case Piece(data=data), [*_, bytes(before)]:
                said[-1] = before + data
            case Piece(data=data), _:
                said.append(data)
            case Head(method=method, path=path), _:
                said.append((method, path))
            case Fault(status=status), _:
                said.append(status)
            case Ended(), _:
                said.append(END)
    return said


HEAD = ("POST", "/v1/chat/completions")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (BODY, [HEAD, b"four", END]),
        (CHUNKED, [HEAD, b"four", END]),
        (BODY + CHUNKED + BODY, [HEAD, b"four", END] * 3),
        (b"\r\n" + BODY, [HEAD, b"four", END]),
        (LINE + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\nfour", [HEAD, b"four", END]),
        (UPGRADE + b"Content-Length: 4\r\n\r\nfour" + BODY, [HEAD, b"four", END] * 2),
        (UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\n\r\n" + BODY, [HEAD, b"four", END] * 2),
        (UPGRADE.replace(b"POST", b"GET") + b"\r\n" + BODY, [("GET", HEAD[1]), END, HEAD, b"four", END]),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n" + BODY, [("CONNECT", "1"), END, HEAD, b"four", END]),
        (b"GET http://gateway/a?b HTTP/1.1\r\nHost: a\r\n\r\n", [("GET", "/a"), END]),
        (b"GET / HTTP/1.0\r\n\r\n", [("GET", "/"), END]),
        (b"GET / HTTP/1.1\r\n\r\n", [400]),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", [400]),
        (LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n4\r\nfour\r\n0\r\n\r\n", [501]),
        (LINE + b"Transfer-Encoding: gzip\r\n\r\nfour", [501]),
        (LINE + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n4\r\nfour\r\n0\r\n\r\n", [400]),
        (LINE + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nfour", [400]),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", [505]),
        (b"GET / HTTP/3.7\r\nHost: a\r\n\r\n", [505]),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [505]),
        (BODY + b"nonsense\r\n\r\n" + BODY, [HEAD, b"four", END, 400]),
        (LINE + b"Connection: close\r\n\r\n", [HEAD, END]),
    ],
)
def test_requests_are_read_whole_and_byte_by_byte(data: bytes, said: list[object]) -> None:
    assert told(events(data)) == said
    assert told(events(*(data[place : place + 1] for place in range(len(data))))) == said


@given(
    requests=st.lists(st.sampled_from([BODY, CHUNKED, UPGRADE + b"Content-Length: 4\r\n\r\nfour"]), max_size=4),
    cuts=st.lists(st.integers(min_value=0, max_value=600), max_size=6),
)
def test_requests_are_read_however_they_are_cut(requests: list[bytes], cuts: list[int]) -> None:
    data = b"".join(requests)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found = events(*(data[start:stop] for start, stop in pairwise(edges) if start < stop))
    assert told(found) == [HEAD, b"four", END] * len(requests)


def test_a_head_says_what_was_sent_and_whether_the_client_stays() -> None:
    (head, _) = events(b"GET / HTTP/1.1\r\nHOST:  a \r\nX: 1\r\nx:\t2\r\n\r\n")
    assert isinstance(head, Head)
    assert head.headers == ((b"host", b"a"), (b"x", b"1"), (b"x", b"2"))
    assert head.get(b"x") == b"1"
    assert (head.all(b"x"), head.all(b"y")) == (b"1, 2", b"")
    assert (head.keeps, head.modern) == (True, True)
    for data, modern in (
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\n\r\n", False),
    ):
        (head, _) = events(data)
        assert isinstance(head, Head)
        assert (head.keeps, head.modern) == (False, modern)


def test_each_chunk_is_told_once_however_it_is_cut() -> None:
    chunk = b"5\r\nabcde\r\n"
    data = LINE + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 3
    for found in (events(data), events(*(data[place : place + 1] for place in range(len(data))))):
        assert sum(event.begins_chunk for event in found if isinstance(event, Piece)) == 3
    assert not any(event.begins_chunk for event in events(BODY) if isinstance(event, Piece))


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /",
        LINE + b"X: ",
        LINE + b"Transfer-Encoding: chunked\r\n\r\n4;",
        LINE + b"Transfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\nX: ",
    ],
)
def test_what_must_arrive_whole_is_bounded(begun: bytes) -> None:
    *_, last = events(begun, *[b"x" * 1000] * (HEAD_LIMIT // 1000 + 1))
    assert isinstance(last, Fault)
    assert last.status == 431
    assert str(HEAD_LIMIT) in last.message


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"", [END]), (BODY, [HEAD, b"four", END, END]), (BODY[:-1], [HEAD, b"fou", 400]), (b"GE", [400])],
)
def test_the_end_of_the_clients_side_is_told(data: bytes, said: list[object]) -> None:
    assert told(events(*([data] if data else []), b"")) == said


def test_any_number_of_clients_wishes_for_another_protocol_is_declined() -> None:
    wish = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert told(events(wish * 1000)) == [("GET", "/"), END] * 1000


def test_nothing_is_read_after_a_fault() -> None:
    assert told(events(b"nonsense\r\n\r\n", BODY, b"")) == [400]
