"""A judge that compares the last reply with the task's reference answer."""

from collections.abc import Mapping
from typing import Unpack

from rollout_fsm.grading.material import task_field
from rollout_fsm.judge import Judge, JudgeOptions
from rollout_fsm.model import Model
from rollout_fsm.task import Task

__all__ = ["PLACEHOLDERS", "PROMPT", "ReferenceJudge"]

PLACEHOLDERS = ("reference",)
"""What its prompts may show beside what every judge's may."""

PROMPT = """\
The task was:
{prompt}

The reference answer, which is right, is:
{reference}

The reply was:
{last_reply}

Does the reply come to the same answer as the reference? Wording, notation and explanations are no matter. A reply \
that gives several answers, or none, is incorrect."""

CHOICES: Mapping[str, float] = {"correct": 1.0, "incorrect": 0.0}


class ReferenceJudge(Judge):
    """Whether the last reply says what the task's reference answer says: `ReferenceJudge(model=OpenAIModel(…))`.

    `answer` names the field of the task that holds the reference, of whatever type; a task without it is a failure of
    the signal. A `prompt` of one's own shows it by `{reference}`. `choices` may grade more finely than correct (1) and
    incorrect (0). All else is as for `Judge`.
    """

    name = "reference"
    _own_placeholders = PLACEHOLDERS

    def __init__(
        self,
        *,
        model: Model,
        answer: str = "answer",
        prompt: str = PROMPT,
        choices: Mapping[str, float] = CHOICES,
        **options: Unpack[JudgeOptions],
    ) -> None:
        super().__init__(model=model, prompt=prompt, choices=choices, **options)
        self._answer = answer

    def _words(self, task: Task) -> Mapping[str, str]:
        return {"reference": task_field(task, self._answer)}
