"""Server-sent events are split the same, however the bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.models.event_stream import Event, EventStream


def split(*pieces: bytes) -> list[Event]:
    stream = EventStream()
    return [event for piece in pieces for event in stream.feed(piece)] + list(stream.end())


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\n", [Event(data="a")]),
        (b"data:a\n\ndata:  b\n\n", [Event(data="a"), Event(data=" b")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [Event(data="a"), Event(data="b")]),
        (b"data: a\r\rdata: b\r\r", [Event(data="a"), Event(data="b")]),
        (b"data: a\ndata: b\n\n", [Event(data="a\nb")]),
        (b": a comment\n\ndata: a\n\n", [Event(data="a")]),
        (b"event: error\ndata: a\n\n", [Event(name="error", data="a")]),
        (b"event: error\n\n", [Event(name="error")]),
        (b"id: 7\nretry: 9\ndata: a\n\n", [Event(data="a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event(data="a")]),
        ("data: grün\n\n".encode(), [Event(data="grün")]),
        (b"data: \xff\n\n", [Event(data="\ufffd")]),
        (b"data: a\n\ndata: left open", [Event(data="a"), Event(data="left open")]),
        (b"data: a\n\ndata: left open\n", [Event(data="a"), Event(data="left open")]),
        (b"data\n\n", [Event(data="")]),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_events_are_read_whole_and_byte_by_byte(data: bytes, events: list[Event]) -> None:
    assert split(data) == events
    assert split(*(data[place : place + 1] for place in range(len(data)))) == events


@given(
    texts=st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(min_value=0, max_value=200), max_size=8),
)
def test_what_was_sent_is_read_however_it_is_cut(texts: list[str], end: str, cuts: list[int]) -> None:
    data = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(edges)]
    assert [event.data for event in split(*pieces)] == texts
