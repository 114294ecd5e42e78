"""Numbers for a verdict: one object that fits its schema, or none; never a guess, never a crash."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.grading import NoVerdictError, Numbers, Verdict


def schema(required: tuple[str, ...] | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": [*(fields if required is None else required)]}


UNIT = {"type": "number", "minimum": 0, "maximum": 1}
STYLE = schema(style=UNIT, polite={"type": "boolean"}, why={"type": "string"})


@pytest.mark.parametrize("dressed", ["{}", "  {}\n", "```json\n{}\n```", "```\n{}```", "<think>{{}}</think>\n{}"])
def test_an_object_that_fits_is_read_and_its_numbers_are_the_scores(dressed: str) -> None:
    given = {"style": 0.5, "polite": True, "why": "for {a} reason"}
    verdict = Numbers.of(STYLE).read(dressed.format(json.dumps(given)))
    assert verdict == Verdict(given, {"style": 0.5, "polite": 1.0})  # type: ignore[arg-type]


def test_one_number_is_the_score_itself_whether_it_is_the_only_one_or_named() -> None:
    assert Numbers.of(schema(style=UNIT)).read('{"style": 1}').score == 1.0
    assert Numbers.of(STYLE, "style").read('{"style": 0.5, "polite": true, "why": ""}').score == 0.5


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "it is not JSON"),
        ("0.5", "it is no JSON object"),
        ('Fine: {"style": 1}', "it is not JSON"),
        ('{"style": 1} {"style": 0}', "it is not JSON: Extra data"),
        ('{"style": 1, "style": 0}', "it says 'style' twice"),
        ('{"style": 1, "why": {"a": 1, "a": 1}}', "it says 'a' twice"),
        ('{"style": 2}', "it does not fit the schema: $.style: 2 is greater than the maximum of 1"),
        ('{"style": "1"}', "it does not fit the schema: $.style: '1' is not of type 'number'"),
        ('{"style": true}', "it does not fit the schema: $.style: True is not of type 'number'"),
        ('{"style": NaN}', "it is not JSON: NaN is not a number"),
        ('{"style": 1e999}', "it is not JSON"),
        ("{}", "it does not fit the schema: $: 'style' is a required property"),
        ("[" * 5000, "it is not JSON: nested too deeply"),
    ],
)
def test_what_is_no_object_that_fits_has_no_verdict(answer: str, why: str) -> None:
    with pytest.raises(NoVerdictError) as none:
        Numbers.of(schema(style=UNIT)).read(answer)
    assert str(none.value).startswith(why)


def test_a_number_beyond_any_score_is_no_verdict() -> None:
    with pytest.raises(NoVerdictError, match="beyond any score"):
        Numbers.of(schema(n={"type": "integer"})).read(f'{{"n": 1{"0" * 400}}}')


@given(st.text(st.sampled_from('{}[]":,.0123456789eE-+ `\njsontyle') | st.characters(), max_size=60))
def test_no_text_crashes_the_reader_of_numbers(text: str) -> None:
    for answer in (text, f'{{"style": {text}}}', f"```json\n{text}\n```"):
        try:
            score = Numbers.of(schema(style=UNIT)).read(answer).score
        except NoVerdictError:
            continue
        assert not isinstance(score, Mapping)
        assert 0 <= score <= 1


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ([], "is no JSON schema"),
        (True, "is to be of an object"),
        ({"type": "number"}, "is to be of an object"),
        ({"type": "object"}, "is to be of an object"),
        ({"type": 3}, "is no JSON schema"),
        (schema(style={"type": "number", "minimum": "0"}), "is no JSON schema"),
        (schema(why={"type": "string"}), "nothing in it is a score"),
        (schema((), style=UNIT), "does not require style"),
        ({"type": "object", "properties": {"style": UNIT}}, "does not require style"),
        (schema(style=UNIT, at=object()), "is not JSON"),
        (schema(style={"type": ["number", "null"]}), "nothing in it is a score"),
    ],
)
def test_a_schema_that_would_give_no_score_is_refused(given: Any, fault: str) -> None:
    with pytest.raises(ValueError, match="schema") as refused:
        Numbers.of(given)
    assert fault in str(refused.value)


def test_a_score_that_the_schema_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no number 'why'; it has style, polite"):
        Numbers.of(STYLE, "why")


def test_a_schema_that_points_elsewhere_fetches_nothing() -> None:
    numbers = Numbers.of(schema(style=UNIT, more={"$ref": "http://127.0.0.1:1/schema"}))
    with pytest.raises(Exception, match="Unresolvable"):
        numbers.read('{"style": 1, "more": 2}')
