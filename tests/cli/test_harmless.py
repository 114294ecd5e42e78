"""Foreign text on a terminal: shown, never obeyed, and never longer than there is room."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.cli.harmless import harmless, one_line

ANY = st.text(st.characters(exclude_categories=[]))


@given(ANY)
def test_nothing_that_acts_is_left_of_any_text(text: str) -> None:
    shown = harmless(text, keep="")

    assert {unicodedata.category(char) for char in shown if char not in "\u200c\u200d"}.isdisjoint(
        {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    )
    shown.encode()


@given(ANY, st.integers(30, 200))
def test_one_line_is_one_line_within_its_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)

    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("naïve 日本 👩\u200d💻", "naïve 日本 👩\u200d💻"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202eesrever", "\\u202eesrever"),
        ("half \ud800", "half \\ud800"),
        ("bell\x07 back\x08", "bell\\x07 back\\x08"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("carriage\rreturn", "carriage\\rreturn"),
    ],
)
def test_what_acts_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_what_is_cut_is_counted() -> None:
    assert one_line("a " * 1000, 40) == "a a a a a a a a a a… (2,000 characters)"
    assert one_line("a\nb", 40) == "a b"
