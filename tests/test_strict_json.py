"""What somebody else wrote as JSON is read only if it can be written again."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.strict_json import MAX_DEPTH, ascii_json_bytes, json_bytes, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


SURROGATES = st.text(st.characters())


def exactly(value: object) -> str:
    """All that a value says, kinds of numbers and signs of zeros included."""
    return json.dumps(value, sort_keys=True)


@given(VALUES)
def test_what_is_read_is_what_was_written(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


@given(VALUES | SURROGATES | st.lists(st.integers(-(2**200), 2**200)), st.booleans())
def test_what_is_read_is_what_the_standard_library_reads(value: object, ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii)
    data = text.encode("utf-8", "surrogatepass")
    for form in (text, data, bytearray(data)):
        assert exactly(parse_json(form)) == exactly(json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2, "b": {"a": 3, "a": 4}}',
        "[-0, -0.0, 1E5, 1e-400, 18446744073709551616, 123456789012345678901234567890.5]",
        r'["\ud800", "\udc00x", "\ud83d\ude00", "\u0000", "\/"]',
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_odd_json_is_read_as_the_standard_library_reads_it(text: str, encoding: str) -> None:
    data = text.encode(encoding)
    assert exactly(parse_json(data)) == exactly(json.loads(data))


@given(VALUES | SURROGATES | st.lists(st.integers(-(2**200), 2**200)))
def test_what_is_written_is_what_is_read(value: object) -> None:
    for written in (json_bytes(value), ascii_json_bytes(value)):  # type: ignore[arg-type]
        assert exactly(json.loads(written)) == exactly(value)
    assert ascii_json_bytes(value).isascii()  # type: ignore[arg-type]
    json_bytes(value).decode()  # type: ignore[arg-type]


class Text(str):
    """Text as a template engine or an array of texts has it."""


class Number(float):
    """A number as an array of numbers has it."""


class Whole(int):
    """The same of whole numbers."""


def test_kinds_of_text_and_numbers_of_others_making_are_written_as_what_they_are() -> None:
    value = {Text("a"): [Text("\u20ac"), Number(0.1), Whole(7)], "b": None}
    for written in (json_bytes(value), ascii_json_bytes(value)):
        assert json.loads(written) == {"a": ["\u20ac", 0.1, 7], "b": None}


def test_text_of_anothers_making_is_read_as_what_it_is() -> None:
    assert parse_json(Text('{"a": 1}')) == {"a": 1}


def test_what_is_no_json_at_all_is_not_written() -> None:
    for write in (json_bytes, ascii_json_bytes):
        with pytest.raises(TypeError, match="not JSON serializable"):
            write({"a": object()})  # type: ignore[dict-item]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_json_does_not_have_is_not_silently_nothing(number: float) -> None:
    assert (
        json_bytes({"a": [None, {"b": number}]})
        == json.dumps({"a": [None, {"b": number}]}, separators=(",", ":")).encode()
    )


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
