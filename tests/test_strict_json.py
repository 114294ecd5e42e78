"""What somebody else wrote as JSON is read only if it can be written again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.strict_json import MAX_DEPTH, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_read_is_what_was_written(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1e999", "1e999 is beyond the numbers that can be held"),
        ("[-1e400]", "beyond the numbers"),
        ("NaN", "NaN is not a number that JSON has"),
        ('{"a": -Infinity}', "-Infinity is not a number that JSON has"),
        ("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("{", "Expecting property name"),
    ],
)
def test_what_could_not_be_written_again_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_json(text)


def test_the_deepest_that_is_allowed_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json.dumps(parse_json(text)) == text
