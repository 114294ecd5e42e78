"""Tasks from rows and back: exact types, no unknown columns, every fault at once."""

import gc
import json
import math
import weakref
from collections.abc import Mapping
from typing import Any, Literal

import pytest
from attrs import field, frozen, validators
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.limits import RolloutTimeouts
from rollout_fsm.messages import JSON, AssistantMessage, Message, SystemMessage, TextPart, ToolCall, UserMessage
from rollout_fsm.rows import FormatError, structure_task, task_row
from rollout_fsm.task import Task
from tests.trace_strategies import json_objects, maybe, messages, numbers, texts


@frozen(kw_only=True)
class Sum(Task):
    answer: str


@frozen(kw_only=True)
class Limits:
    low: int = 0
    high: int | None = 9


@frozen(kw_only=True)
class Rich(Task):
    answer: str
    tolerance: float = 0.0
    strict: bool = False
    hints: tuple[str, ...] = ()
    files: Mapping[str, str] | None = None
    meta: dict[str, JSON] | None = None
    anything: JSON = None
    kind: Literal["easy", "hard"] = "easy"
    either: int | str | None = None
    limits: Limits | None = None
    pair: tuple[int, str] = (0, "")
    tags: frozenset[str] = frozenset()


def refused(cls: type[Task], row: Mapping[str, Any]) -> tuple[str, ...]:
    with pytest.raises(FormatError) as error:
        structure_task(cls, row)
    assert str(error.value) == f"the row does not fit {cls.__name__}: {'; '.join(error.value.faults)}"
    return error.value.faults


def test_a_row_of_text_is_a_task_and_back() -> None:
    row: dict[str, JSON] = {"prompt": "2 + 2?", "answer": "4", "idx": 7}
    task = structure_task(Sum, row)
    assert task == Sum(prompt="2 + 2?", answer="4", idx=7)
    assert task_row(task) == row


def test_a_prompt_may_be_messages_as_the_chat_format_has_them() -> None:
    nested: JSON = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    row: dict[str, JSON] = {
        "answer": "4",
        "prompt": [
            {"role": "system", "content": "s", "name": None},
            {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},
            {"role": "assistant", "content": None, "tool_calls": [nested], "refusal": None},
        ],
    }
    task = structure_task(Sum, row)
    assert task.prompt == (
        SystemMessage("s"),
        UserMessage((TextPart("2 + 2?"),)),
        AssistantMessage(None, tool_calls=(ToolCall(id="1", name="add", arguments="{}"),)),
    )
    assert structure_task(Sum, task_row(task)) == task


def test_a_misspelt_column_is_refused_with_the_nearest_name() -> None:
    assert refused(Sum, {"anwser": "4"}) == (
        "column 'anwser': Sum has no such column; did you mean 'answer'?",
        "answer: missing",
    )


def test_a_column_like_no_other_is_refused_with_the_names_there_are() -> None:
    (fault,) = refused(Sum, {"answer": "4", "zzzz": None})
    assert fault == (
        "column 'zzzz': Sum has no such column; there are prompt, system_prompt, name, idx, timeouts, network, answer"
    )


def test_a_subclass_that_was_not_decorated_is_told_so() -> None:
    class Plain(Sum):
        extra: str

    (fault,) = refused(Plain, {"answer": "4", "extra": "x"})
    assert "Plain declares it but is no attrs class; decorate the class with @frozen(kw_only=True)" in fault


def test_every_fault_is_told_at_once() -> None:
    row = {
        "awnser": "4",
        "answer": 4,
        "idx": 1.0,
        "tolerance": "0.5",
        "strict": 1,
        "hints": "abc",
        "files": {"a": 1},
        "kind": "medium",
        "either": 1.5,
        "limits": {"low": True, "hihg": 3},
        "pair": [1],
        "prompt": [{"role": "user", "content": "x", "name": "n"}, {"role": "oracle"}, 3],
        "timeouts": {"setup": "30"},
        "name": ["n"],
    }
    faults = refused(Rich, row)
    assert set(faults) >= {
        "column 'awnser': Rich has no such column; did you mean 'answer'?",
        "answer: expected a string, not 4 (a whole number)",
        "idx: expected a whole number, not 1.0 (a number)",
        "tolerance: expected a number, not '0.5' (a string)",
        "strict: expected true or false, not 1 (a whole number)",
        "hints: expected an array, not 'abc' (a string)",
        "files[a]: expected a string, not 1 (a whole number)",
        "kind: expected 'easy' or 'hard', not 'medium' (a string)",
        "limits.low: expected a whole number, not True (true or false)",
        "limits.hihg: unknown key; did you mean 'high'?",
        "pair: expected an array of 2, not of 1",
        "prompt[0].name: unknown key; there are content",
        "prompt[1]: expected a message whose role is assistant, system, tool, user, not 'oracle' (a string)",
        "prompt[2]: expected an object, not 3 (a whole number)",
        "timeouts.setup: expected a number, not '30' (a string)",
        "name: expected a string, not an array",
    }
    assert any(fault.startswith("either: ") for fault in faults)


def test_a_value_that_a_validator_refuses_is_a_fault_like_others() -> None:
    faults = refused(Sum, {"timeouts": {"setup": -1}})
    assert faults == (
        "timeouts: setup must be a number of seconds of at least 0, or None, not -1",
        "answer: missing",
    )


def test_a_number_that_is_none_is_refused() -> None:
    assert refused(Rich, {"answer": "4", "tolerance": math.nan}) == ("tolerance: expected a finite number, not nan",)


def test_a_whole_number_will_do_for_a_float_and_nothing_else_for_anything_else() -> None:
    assert structure_task(Rich, {"answer": "4", "tolerance": 1}).tolerance == 1
    assert refused(Rich, {"answer": "4", "tolerance": True})
    assert refused(Rich, {"answer": "4", "idx": True})


def test_null_stands_for_none_where_the_column_has_it() -> None:
    assert structure_task(Sum, {"answer": "4", "system_prompt": None, "prompt": None}) == Sum(answer="4")
    assert refused(Sum, {"answer": None}) == ("answer: expected a string, not None",)


def test_an_agent_budget_without_a_bound_is_spelt_as_text() -> None:
    task = Sum(answer="4", timeouts=RolloutTimeouts(agent=math.inf, setup=5))
    row = task_row(task)
    assert row["timeouts"] == {"setup": 5, "agent": "inf"}
    assert structure_task(Sum, json.loads(json.dumps(row, allow_nan=False))) == task
    assert refused(Sum, {"answer": "4", "timeouts": {"setup": "inf"}})


@frozen(kw_only=True)
class Patience(RolloutTimeouts):
    patience: float | None = None


class Call(ToolCall):
    """Only behaves otherwise."""


class Question(UserMessage):
    """The same."""


@frozen(kw_only=True)
class Told(Task):
    question: Question
    answer: AssistantMessage
    call: Call
    waits: Patience


def test_a_column_of_a_class_of_the_tasks_own_is_read_back_as_that_class() -> None:
    task = Told(
        question=Question((TextPart("2 + 2?"),)),
        answer=AssistantMessage("4"),
        call=Call(id="1", name="add", arguments="{}"),
        waits=Patience(agent=math.inf, patience=2.0),
    )
    row = task_row(task)
    assert row == {
        "question": {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},
        "answer": {"role": "assistant", "content": "4"},
        "call": {"id": "1", "name": "add", "arguments": "{}", "type": "function"},
        "waits": {"agent": "inf", "patience": 2.0},
    }
    assert structure_task(Told, row) == task
    nested: JSON = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    assert structure_task(Told, {**row, "call": nested}) == task
    assert refused(Told, {**row, "answer": {"role": "user", "content": "4"}}) == (
        "answer: expected a message whose role is assistant, not 'user' (a string)",
    )


def test_messages_of_a_class_of_ones_own_are_a_prompt_that_is_read_back() -> None:
    @frozen
    class Mine(UserMessage):
        """With something that no row has."""

        who: object = None

    row = task_row(Sum(answer="4", prompt=(Mine("2 + 2?", object()),)))
    assert structure_task(Sum, row) == Sum(answer="4", prompt=(UserMessage("2 + 2?"),))


def test_a_none_that_is_no_default_is_kept() -> None:
    task = Rich(answer="4", limits=Limits(high=None))
    assert task_row(task)["limits"] == {"low": 0, "high": None}
    assert structure_task(Rich, task_row(task)) == task


def test_a_field_that_json_cannot_carry_is_refused_with_its_name() -> None:
    with pytest.raises(FormatError) as error:
        task_row(Rich(answer="4", meta={"x": math.inf}, tolerance=math.nan))
    assert set(error.value.faults) == {
        "tolerance: nan is not a number that JSON has",
        "meta.x: inf is not a number that JSON has",
    }


_timeouts = st.builds(
    RolloutTimeouts, setup=maybe(st.floats(0, 1e6)), agent=maybe(st.floats(0, 1e6) | st.just(math.inf))
)
_prompts = st.none() | texts | st.lists(messages, max_size=3).map(tuple)


@given(
    st.builds(
        Rich,
        prompt=_prompts,
        system_prompt=maybe(texts),
        name=maybe(texts),
        idx=maybe(st.integers()),
        timeouts=maybe(_timeouts),
        answer=texts,
        tolerance=numbers,
        strict=st.booleans(),
        hints=st.lists(texts, max_size=3).map(tuple),
        files=maybe(st.dictionaries(texts, texts, max_size=2)),
        meta=maybe(json_objects),
        anything=json_objects,
        kind=st.sampled_from(["easy", "hard"]),
        either=maybe(texts | st.integers()),
        limits=maybe(st.builds(Limits, low=st.integers(), high=maybe(st.integers()))),
        pair=st.tuples(st.integers(), texts),
        tags=st.frozensets(texts, max_size=3),
    )
)
def test_a_task_is_read_back_from_its_row_equal(task: Rich) -> None:
    row = json.loads(json.dumps(task_row(task), allow_nan=False))
    again = structure_task(Rich, row)
    assert again == task
    assert task_row(again) == row


def test_a_message_prompt_is_written_with_its_roles() -> None:
    prompt: tuple[Message, ...] = (SystemMessage("s"), UserMessage("u"))
    assert task_row(Sum(answer="4", prompt=prompt))["prompt"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
    ]


def test_a_validator_of_a_tasks_own_sees_the_whole_task_and_what_a_converter_made() -> None:
    @frozen(kw_only=True)
    class Careful(Task):
        low: int = 0
        high: int = field(default=9)
        kind: str = field(default="easy", converter=str.lower, validator=validators.in_(["easy", "hard"]))

        @high.validator
        def above(self, attribute: object, value: int) -> None:
            if value < self.low:
                raise ValueError(f"high must be at least {self.low}, not {value}")

    made = structure_task(Careful, {"prompt": "?", "low": 1, "high": 2, "kind": "HARD"})
    assert isinstance(made, Careful)
    assert (made.high, made.kind) == (2, "hard")
    with pytest.raises(FormatError, match="high must be at least 3, not 2"):
        structure_task(Careful, {"prompt": "?", "low": 3, "high": 2})


def test_a_class_that_only_adds_behaviour_has_the_rows_of_the_one_that_declares_the_fields() -> None:
    class Graded(Sum):
        """Adds no field."""

    assert task_row(Graded(prompt="2 + 2?", answer="4")) == task_row(Sum(prompt="2 + 2?", answer="4"))


def test_a_class_that_only_adds_behaviour_is_let_go_of_when_its_last_task_is() -> None:
    made = type("Passing", (Sum,), {})
    task_row(made(prompt="?", answer="4"))
    kind = weakref.ref(made)
    del made
    gc.collect()
    assert kind() is None
