"""Arguments of tool calls: every text has an object, from which it comes back as the same call."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.arguments import UNREAD, as_object, as_text, canonical

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)
TEXTS = (
    st.text() | OBJECTS.map(json.dumps) | VALUES.map(json.dumps) | OBJECTS.map(json.dumps).map(lambda text: text[:-1])
)


@given(TEXTS)
def test_a_text_comes_back_from_its_object_as_the_same_call(text: str) -> None:
    carried = json.loads(json.dumps(as_object(text)))
    assert canonical(as_text(carried)) == canonical(text)


@given(OBJECTS)
def test_an_object_is_the_same_call_however_it_is_spelt(given: dict[str, object]) -> None:
    turned = dict(reversed(given.items()))
    assert canonical(json.dumps(given, indent=2)) == canonical(as_text(turned))


def test_numbers_are_those_of_a_reader_that_knows_floats_only() -> None:
    assert canonical('{"a":1.0,"b":12345678901234567890,"c":1e3}') == canonical(
        '{"a":1,"b":12345678901234567000,"c":1000}'
    )
    assert canonical('{"a":1.5}') != canonical('{"a":1}')


@pytest.mark.parametrize("text", ["", " ", "{}", " { } "])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert as_object(text) == {}
    assert canonical(text) == "{}"


@pytest.mark.parametrize("text", ["x", "[1]", '{"a":', "3", '{"a":NaN}', '{"a":1e999}', "[" * 100_000])
def test_a_text_that_spells_no_object_is_carried_whole(text: str) -> None:
    assert as_object(text) == {UNREAD: text}
    assert as_text({UNREAD: text}) == text
    assert canonical(text) != canonical("{}")
