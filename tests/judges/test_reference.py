"""The judge that compares the last reply with the task's reference answer."""

from typing import Any

import pytest
from attrs import frozen

from rollout_fsm import ReferenceJudge, ScriptedModel, Task
from rollout_fsm.trace import Reward
from tests.judges.judged import Asked, Sum, judged, record


@pytest.mark.parametrize(("answer", "score"), [("VERDICT: correct", 1.0), ("VERDICT: incorrect", 0.0)])
async def test_a_reply_is_correct_or_incorrect(answer: str, score: float) -> None:
    trace = await judged(ReferenceJudge(model=ScriptedModel([answer]), weight=2))
    assert trace.rewards["reference"] == Reward(score=score, weight=2)


async def test_it_shows_the_task_the_reference_and_the_last_reply_only() -> None:
    model = Asked(["VERDICT: correct"])
    await judged(ReferenceJudge(model=model), task=Sum(answer=["four", 4], system_prompt="Be brief."))
    assert 'The reference answer, which is right, is:\n["four", 4]\n' in model.question
    assert "\n2 + 2?\n" in model.question
    assert "\nIt is 4.\n" in model.question
    assert "Be brief." not in model.question


async def test_field_prompt_and_choices_may_be_ones_own() -> None:
    @frozen(kw_only=True)
    class Capital(Task):
        city: str

    judge = ReferenceJudge(
        model=ScriptedModel(["VERDICT: close"]),
        answer="city",
        prompt="Is {last_reply} near {reference}? ({task.city})",
        choices={"there": 1, "close": 0.5, "far": 0},
        name="near",
    )
    trace = await judged(judge, task=Capital(prompt="?", city="Rome"))
    assert trace.rewards == {"near": Reward(score=0.5)}
    assert "near Rome? (Rome)" in record(trace, "near")["prompt"]


async def test_a_task_without_the_field_is_a_failure_of_the_signal() -> None:
    model = Asked(["VERDICT: correct"])
    trace = await judged(ReferenceJudge(model=model), task=Task(prompt="?"))
    assert (trace.ok, trace.rewards, model.requests) == (False, {"reference": None}, [])
    assert "the judge is to see the task's field 'answer', and Task has none" in trace.errors[0].message


async def test_what_it_takes_besides_is_what_every_judge_takes() -> None:
    options: dict[str, Any] = {"attempts": 1, "max_characters": 50, "max_concurrent": 1}
    trace = await judged(ReferenceJudge(model=ScriptedModel(["hm"]), **options))
    assert "gave no verdict in 1 attempt:" in trace.errors[0].message
    with pytest.raises(ValueError, match="there are conversation, last_reply, prompt, system_prompt, reference"):
        ReferenceJudge(model=ScriptedModel([]), prompt="{nothing}")
