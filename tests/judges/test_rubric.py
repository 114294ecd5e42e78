"""The judge with several criteria: a number for each, and their weighted mean."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm import Criterion, RubricJudge, ScriptedModel
from rollout_fsm.trace import Reward
from tests.judges.judged import Asked, judged, record

CLEAR_AND_SHORT: Any = [
    {"name": "clear", "text": "It is easy to follow.", "weight": 3},
    Criterion(name="short", text="It says nothing twice."),
]


def answer(**numbers: Any) -> str:
    return json.dumps({"reasons": "for reasons", **numbers})


async def test_the_score_is_the_weighted_mean_and_each_number_is_on_record() -> None:
    model = Asked([answer(clear=0.5, short=1)])
    trace = await judged(RubricJudge(model=model, criteria=CLEAR_AND_SHORT, weight=2))
    assert trace.rewards["rubric"] == Reward(score=0.625, weight=2)
    told = record(trace, "rubric")
    assert (told["verdict"], told["score"]) == ({"reasons": "for reasons", "clear": 0.5, "short": 1}, 0.625)
    assert "- clear: It is easy to follow.\n- short: It says nothing twice.\n\n<conversation " in model.question


async def test_criteria_may_be_texts_by_their_names() -> None:
    judge = RubricJudge(model=ScriptedModel([answer(a=0, b=1)]), criteria={"a": "A?", "b": "B?"}, name="both")
    assert (await judged(judge)).rewards["both"] == Reward(score=0.5)


async def test_a_single_criterion_is_the_score() -> None:
    judge = RubricJudge(model=ScriptedModel([answer(a=0.25)]), criteria={"a": "A?"})
    assert (await judged(judge)).rewards["rubric"] == Reward(score=0.25)


@pytest.mark.parametrize(
    "said",
    [answer(clear=0.5), answer(clear=2, short=0), answer(clear=None, short=1), answer(clear=0, short=0, kind=1), "0.5"],
)
async def test_a_criterion_without_its_number_is_no_verdict(said: str) -> None:
    trace = await judged(RubricJudge(model=ScriptedModel([said]), criteria=CLEAR_AND_SHORT, attempts=1))
    assert (trace.ok, trace.rewards["rubric"]) == (False, None)


async def test_an_endpoint_can_be_held_to_the_form_and_the_prompt_be_ones_own() -> None:
    model = Asked([answer(clear=1, short=1)])
    judge = RubricJudge(
        model=model, criteria=CLEAR_AND_SHORT, prompt="{last_reply}: {criteria}?", structured_output=True
    )
    assert (await judged(judge)).rewards["rubric"] == Reward(score=1.0)
    asked: Any = model.samplings[0].extra["response_format"]
    assert [*asked["json_schema"]["schema"]["properties"]] == ["reasons", "clear", "short"]
    assert "conversation" not in model.question


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name.strip() and name != "reasons"),
        st.tuples(st.floats(0, 1), st.floats(0.001, 100)),
        min_size=1,
        max_size=5,
    )
)
def test_the_score_lies_between_the_least_and_the_greatest_number(given: dict[str, tuple[float, float]]) -> None:
    criteria = [Criterion(name=name, text="?", weight=weight) for name, (_, weight) in given.items()]
    judge = RubricJudge(model=ScriptedModel([]), criteria=criteria)
    numbers = {name: number for name, (number, _) in given.items()}
    score = judge._reader.read(json.dumps({"reasons": "", **numbers})).score
    assert isinstance(score, float)
    assert min(numbers.values()) - 1e-9 <= score <= max(numbers.values()) + 1e-9


@pytest.mark.parametrize(
    ("criteria", "fault"),
    [
        ([], "there is no criterion"),
        ({}, "there is no criterion"),
        ("clear", "criteria are texts by their names, or a list of records, not 'clear'"),
        (3, "criteria are texts by their names"),
        ({"a": ""}, "[0]: a criterion needs a name and a text, not ''"),
        ([{"name": "a"}], "[0]: missing 1 required keyword-only argument: 'text'"),
        ([{"name": "a", "text": "A?", "wait": 1}], "[0]: got an unexpected keyword argument 'wait'"),
        (
            [{"name": "a", "text": "A?", "weight": -1}],
            "[0]: the weight of a criterion is a finite number of at least 0",
        ),
        ([{"name": "a", "text": "A?", "weight": True}], "[0]: the weight of a criterion"),
        ([{"name": "a", "text": "A?", "weight": 0}], "there is no criterion that counts"),
        ([{"name": "a", "text": "A?"}] * 2, "[1]: the name 'a' is taken"),
        ({"reasons": "Why?"}, "[0]: the name 'reasons' is taken"),
        ([3, {"name": "a"}], "[0]: "),
        (["clear"], "[0]: "),
    ],
)
def test_criteria_that_cannot_be_are_refused_with_their_places(criteria: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=r"criteri|\[") as refused:
        RubricJudge(model=ScriptedModel([]), criteria=criteria)
    assert fault in str(refused.value)


def test_all_faults_of_criteria_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"^\[0\]: .*; \[2\]: the name 'b' is taken"):
        RubricJudge(
            model=ScriptedModel([]),
            criteria=[{"name": ""}, {"name": "b", "text": "B?"}, {"name": "b", "text": "B?"}],
        )
