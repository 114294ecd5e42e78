"""A judge with several criteria: a number from 0 to 1 for each, all in one answer, and their weighted mean as the
score."""

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias, Unpack

from attrs import field, frozen

from rollout_fsm.grading.verdict import Reader, Verdict
from rollout_fsm.judge import Judge, JudgeOptions
from rollout_fsm.messages import JSON
from rollout_fsm.model import Model
from rollout_fsm.task import Task

__all__ = ["PLACEHOLDERS", "PROMPT", "Criterion", "RubricJudge", "criteria_of"]

PLACEHOLDERS = ("criteria",)
"""What its prompts may show beside what every judge's may."""

PROMPT = """\
Grade the conversation by each of these criteria, with a number from 0 (not at all) to 1 (fully):
{criteria}

{conversation}"""

REASONS = "reasons"
"""The field in which the judge thinks before it gives numbers."""


def _named(_criterion: object, _field: object, value: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"a criterion needs a name and a text, not {value!r}")


def _weight(_criterion: object, _field: object, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"the weight of a criterion is a finite number of at least 0, not {value!r}")


@frozen(kw_only=True)
class Criterion:
    """What is looked at, and how much it counts beside the others."""

    name: str = field(validator=_named)
    text: str = field(validator=_named)
    weight: float = field(default=1.0, validator=_weight)


Criteria: TypeAlias = Mapping[str, str] | Iterable[Criterion | Mapping[str, object]]
"""By name, or as records (`{"name": …, "text": …, "weight": …}`) where they have weights."""


class RubricJudge(Judge):
    """Grades by several criteria at once: `RubricJudge(model=…, criteria={"clear": "The reply is easy to follow."})`.

    Each criterion gets a number from 0 to 1 in one answer of the model; the score is their weighted mean, and the
    numbers stand in the record. A `prompt` of one's own shows them by `{criteria}`. All else is as for `Judge`.
    """

    name = "rubric"
    _own_placeholders = PLACEHOLDERS

    def __init__(
        self, *, model: Model, criteria: Criteria, prompt: str = PROMPT, **options: Unpack[JudgeOptions]
    ) -> None:
        self._criteria = criteria_of(criteria)
        super().__init__(model=model, prompt=prompt, schema=_schema(self._criteria), **options)
        self._reader = _WeightedMean(self._reader, self._criteria)

    def _words(self, task: Task) -> Mapping[str, str]:
        return {"criteria": "\n".join(f"- {each.name}: {each.text}" for each in self._criteria)}


def criteria_of(given: Criteria) -> tuple[Criterion, ...]:
    """The criteria. Raises `ValueError` with every fault: two of one name, say."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"criteria are texts by their names, or a list of records, not {given!r}")
    listed: Iterable[object] = given
    if isinstance(given, Mapping):
        listed = [{"name": name, "text": text} for name, text in given.items()]
    criteria: dict[str, Criterion] = {}
    faults: list[str] = []
    for place, each in enumerate(listed):
        try:
            made = each if isinstance(each, Criterion) else Criterion(**each)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            faults.append(f"[{place}]: {str(error).removeprefix('Criterion.__init__() ')}")
            continue
        if made.name in (*criteria, REASONS):
            faults.append(f"[{place}]: the name {made.name!r} is taken; give each criterion one of its own")
        criteria[made.name] = made
    if not faults and not sum(each.weight for each in criteria.values()):
        faults.append("there is no criterion that counts" if criteria else "there is no criterion")
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(criteria.values())


@frozen
class _WeightedMean:
    """What numbers come to as one score."""

    numbers: Reader
    criteria: tuple[Criterion, ...]

    @property
    def form(self) -> str:
        return self.numbers.form

    def read(self, answer: str) -> Verdict:
        verdict = self.numbers.read(answer)
        score = verdict.score
        numbers = score if isinstance(score, Mapping) else {self.criteria[0].name: score}
        total = sum(each.weight * numbers[each.name] for each in self.criteria)
        return Verdict(verdict.said, total / sum(each.weight for each in self.criteria))


def _schema(criteria: tuple[Criterion, ...]) -> dict[str, JSON]:
    """Reasons first, so that the judge thinks before it gives numbers."""
    number: dict[str, JSON] = {"type": "number", "minimum": 0, "maximum": 1}
    names = [each.name for each in criteria]
    return {
        "type": "object",
        "properties": {REASONS: {"type": "string"}, **dict.fromkeys(names, number)},
        "required": [REASONS, *names],
        "additionalProperties": False,
    }
