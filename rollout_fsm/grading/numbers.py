"""A verdict that is a JSON object with numbers in it. The answer has to be the object, and it has to fit a schema."""

import json
from collections.abc import Mapping
from typing import Self

from attrs import frozen

from rollout_fsm.exact_json import plain
from rollout_fsm.grading.verdict import NoVerdictError, Verdict, spoken
from rollout_fsm.messages import JSON
from rollout_fsm.strict_json import parse_json

SHOWN = 200
"""Characters of a fault: it may quote what came."""

_FENCE = "```"


@frozen
class Numbers:
    """A JSON object that fits a schema. Its numbers (true is 1) are the scores; what else it holds explains them."""

    schema: Mapping[str, JSON]
    scores: tuple[str, ...]
    """The fields that are scores. With one of them the score is its number, with several it is a mapping."""

    @classmethod
    def of(cls, schema: Mapping[str, JSON], field: str | None = None) -> Self:
        """`field` is the only score, where a schema has several. Raises `ValueError` for a schema that is none, or that
        does not require its scores."""
        from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]  # slow to import

        read = plain(schema, "the schema is not JSON")
        try:
            Draft202012Validator.check_schema(read)
        except SchemaError as error:
            raise ValueError(f"the schema is no JSON schema: {error.message}") from None
        fields = read.get("properties") if isinstance(read, dict) else None
        if not isinstance(read, dict) or read.get("type") != "object" or not isinstance(fields, dict):
            raise ValueError('the schema is to be of an object: {"type": "object", "properties": {…}, "required": […]}')
        numbers = [name for name, inner in fields.items() if isinstance(inner, dict) and _is_score(inner.get("type"))]
        if field is not None and field not in numbers:
            raise ValueError(f"the schema has no number {field!r}; it has {', '.join(numbers) or 'none at all'}")
        scores = numbers if field is None else [field]
        if not scores:
            raise ValueError("the schema has no field that is a number or a boolean, so nothing in it is a score")
        required = read.get("required")
        if missing := [name for name in scores if not isinstance(required, list) or name not in required]:
            raise ValueError(
                f"the schema does not require {', '.join(missing)}: a score that is left out would be none"
            )
        return cls(read, tuple(scores))

    @property
    def form(self) -> str:
        """The form of the answer, as its author is told."""
        return f"Answer with one JSON object and nothing else. It has to fit this schema:\n{json.dumps(self.schema)}"

    def read(self, answer: str) -> Verdict:
        """The object, which has to be the whole answer, in a fence or without."""
        text = _unfenced(spoken(answer).strip())
        try:
            value = parse_json(text)
        except ValueError as error:
            raise NoVerdictError(f"it is not JSON: {error}") from None
        json.loads(text, object_pairs_hook=_once)
        if not isinstance(value, dict):
            raise NoVerdictError("it is no JSON object")
        if (fault := self._fault(value)) is not None:
            raise NoVerdictError(f"it does not fit the schema: {fault}")
        numbers = {name: _number(value[name]) for name in self.scores}
        return Verdict(value, numbers if len(numbers) > 1 else numbers[self.scores[0]])

    def _fault(self, value: JSON) -> str | None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import best_match  # type: ignore[import-untyped]
        from referencing import Registry

        validator = Draft202012Validator(self.schema, registry=Registry())  # which fetches nothing
        error = best_match(validator.iter_errors(value))
        return None if error is None else f"{error.json_path}: {error.message[:SHOWN]}"


def _unfenced(text: str) -> str:
    opening, _, rest = text.partition("\n")
    fenced = opening.rstrip().lower() in (_FENCE, f"{_FENCE}json") and rest.endswith(_FENCE)
    return rest.removesuffix(_FENCE) if fenced else text


def _once(pairs: list[tuple[str, object]]) -> None:
    names = [name for name, _ in pairs]
    if len({*names}) < len(names):
        raise NoVerdictError(f"it says {next(name for name in names if names.count(name) > 1)!r} twice")


def _is_score(kind: JSON) -> bool:
    return kind in ("number", "integer", "boolean")


def _number(value: JSON) -> float:
    assert isinstance(value, int | float)
    try:
        return float(value)
    except OverflowError:
        raise NoVerdictError("it has a number that is beyond any score") from None
