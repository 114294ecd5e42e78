"""The capped buffer: what it keeps, what it says, and that it never holds more than it may."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.runtimes import HeadTail

NOTICE = re.compile(r"\n\[--- (\d+) of (\d+) bytes cut here ---\]\n")


def fed(chunks: list[bytes], cap: int) -> HeadTail:
    buffer = HeadTail(cap)
    for chunk in chunks:
        buffer.feed(chunk)
        assert buffer.held <= cap
    return buffer


@given(chunks=st.lists(st.binary(max_size=40)), spare=st.integers(0, 9))
def test_what_fits_is_kept_whole(chunks: list[bytes], spare: int) -> None:
    whole = b"".join(chunks)
    buffer = fed(chunks, len(whole) + spare)
    assert buffer.cut == 0
    assert buffer.text() == whole.decode(errors="replace")


@given(chunks=st.lists(st.binary(max_size=40)), cap=st.integers(0, 60))
def test_no_more_than_the_cap_is_held_and_every_byte_is_accounted_for(chunks: list[bytes], cap: int) -> None:
    buffer = fed(chunks, cap)
    assert buffer.total == len(b"".join(chunks))
    assert buffer.held == min(buffer.total, cap)
    assert buffer.held + buffer.cut == buffer.total


@given(
    letters=st.text(st.characters(codec="ascii", exclude_characters="[]\n"), min_size=1, max_size=120),
    cap=st.integers(0, 60),
    cuts=st.lists(st.integers(0, 120)),
)
def test_the_text_is_the_head_a_count_and_the_tail_whatever_the_chunks(letters: str, cap: int, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(letters)]
    chunks = [letters[a:b].encode() for a, b in pairwise(edges)]
    text = fed(chunks, cap).text()
    assert text == fed([letters.encode()], cap).text()
    if len(letters) <= cap:
        assert text == letters
        return
    notice = NOTICE.search(text)
    assert notice is not None
    head, tail = text[: notice.start()], text[notice.end() :]
    assert letters.startswith(head)
    assert letters.endswith(tail)
    assert (int(notice[1]), int(notice[2])) == (len(letters) - len(head) - len(tail), len(letters))
    assert 0 <= len(head) - len(tail) <= 1


@given(word=st.text(min_size=1, max_size=60), cap=st.integers(0, 100))
def test_a_cut_leaves_no_broken_character_in_text_that_was_sound(word: str, cap: int) -> None:
    data = word.encode()
    text = fed([data], cap).text()
    assert text.count("\N{REPLACEMENT CHARACTER}") <= word.count("\N{REPLACEMENT CHARACTER}")
    if len(data) > cap:
        notice = NOTICE.search(text)
        assert notice is not None
        assert len(data) - int(notice[1]) == len(text[: notice.start()].encode()) + len(text[notice.end() :].encode())


@given(data=st.binary(max_size=200), cap=st.integers(0, 60))
def test_garbage_becomes_text(data: bytes, cap: int) -> None:
    fed([data], cap).text().encode()


def test_a_negative_cap_is_refused() -> None:
    with pytest.raises(ValueError, match="cap"):
        HeadTail(-1)


def test_its_repr_says_how_much_it_holds() -> None:
    assert repr(fed([b"12345"], 4)) == "<HeadTail 4 of 5 bytes held, cap 4>"
