"""What somebody else wrote as JSON is read only if it can be written again."""

import json
import math
import uuid
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import msgspec
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


def test_a_text_of_a_class_of_its_own_is_read_as_the_text_that_it_is() -> None:
    assert parse_json(Text('{"a": ["b"]}')) == {"a": ["b"]}
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(Text("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2)))
    with pytest.raises(TypeError, match="must be str, bytes or bytearray"):
        parse_json(None)  # type: ignore[arg-type]


@given(VALUES | SURROGATES | st.lists(st.integers(-(2**200), 2**200)))
def test_what_is_written_is_what_is_read(value: object) -> None:
    for written in (json_bytes(value), ascii_json_bytes(value)):  # type: ignore[arg-type]
        assert exactly(json.loads(written)) == exactly(value)
    assert ascii_json_bytes(value).isascii()  # type: ignore[arg-type]
    json_bytes(value).decode()  # type: ignore[arg-type]


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Number(float):
    def __repr__(self) -> str:
        return f"Number({float(self)!r})"


class Array(list[object]):
    pass


class Object(dict[str, object]):
    pass


class Kind(StrEnum):
    A = "a"


class Place(IntEnum):
    FIRST = 1


class Colour(Enum):
    RED = "red"


Pair = namedtuple("Pair", "left right")


@dataclass
class Data:
    a: int = 1


@attrs.frozen
class Record:
    a: int = 1


class Struct(msgspec.Struct):
    a: int = 1


class Refusing:
    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError


def itself() -> list[object]:
    value: list[object] = []
    value += [value, value]
    return value


SUBCLASSES = [
    *(Text("a"), Whole(2), Number(0.5), Array([1]), Object(a=1), OrderedDict(a=1), Kind.A, Place.FIRST, Pair(1, "b")),
    *({Text("a"): 1}, {Kind.A: 1}, Text("\ud800"), Whole(2**70), (1, ("a",)), {}, [], ()),
]
ODD_KEYS = [{1: 1}, {True: 1}, {None: 1}, {0.5: 1}, {Whole(2): 1}, {2**70: 1}, {math.nan: 1}, {(1,): 1}, {b"a": 1}]
NO_NUMBERS = [math.nan, math.inf, -math.inf, Number("nan"), Number("-inf")]
NO_JSON = [
    *(b"a", bytearray(b"a"), memoryview(b"a"), {1}, {"a", "b"}, frozenset("a"), Decimal("1.5"), Fraction(1, 2), 1j),
    *(datetime.now(UTC), date(2026, 1, 1), time(12), timedelta(seconds=1), uuid.UUID(int=1), Colour.RED),
    *(Data(), Record(), Struct(), Refusing(), msgspec.Raw(b"1"), msgspec.UNSET),
    *(Path("a"), object(), int, ..., range(2), iter([1]), MappingProxyType({"a": 1}), itself()),
]


def kind(value: object) -> str:
    return type(value).__name__


PLACES: list[Callable[[Any], Any]] = [
    lambda value: value,
    lambda value: {"a": [None, {"b": value}]},
    lambda value: ["é", (value,)],
]


def outcome(write: Callable[[Any], bytes], value: Any) -> tuple[object, ...]:
    """What is read from what was written, or why it was not."""
    try:
        written = write(value)
    except Exception as error:  # noqa: BLE001  (whatever it is: it is compared)
        return type(error), str(error)
    return (exactly(json.loads(written)),)


@pytest.mark.parametrize("value", [*SUBCLASSES, *ODD_KEYS, *NO_NUMBERS, *NO_JSON], ids=kind)
def test_whatever_is_written_comes_to_what_it_comes_to_in_the_standard_library(value: object) -> None:
    def by_the_library(value: object) -> bytes:
        return json.dumps(value).encode()

    for placed in (place(value) for place in PLACES):
        for write in (json_bytes, ascii_json_bytes):
            assert outcome(write, placed) == outcome(by_the_library, placed)


@pytest.mark.parametrize("value", [value for value in NO_JSON if not isinstance(value, list)], ids=kind)
def test_what_is_no_json_is_refused_and_not_written_as_something_else(value: object) -> None:
    with pytest.raises(TypeError, match="is not JSON serializable"):
        json_bytes({"a": value})  # type: ignore[dict-item]


def test_a_number_of_a_class_of_its_own_is_sent_as_the_number_that_it_is() -> None:
    assert json_bytes({"temperature": Number(0.5), "stop": [Text("a")]}) == b'{"temperature":0.5,"stop":["a"]}'


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
