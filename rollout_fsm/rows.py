"""A task and its row: what a JSONL file of tasks has in a line, and what stands on a trace as `task.data` (L84).

Columns are a task's fields by name. Values have exactly the types that the fields declare; nothing is coerced, and a
column that the task does not have is refused: a misspelt one would otherwise be a default. What is written is read back
equal.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs
from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

from rollout_fsm.exact_json import FormatError, check_fields, exact_converter, is_a, plain, require, structured
from rollout_fsm.limits import RolloutTimeouts
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.message_json import register_messages
from rollout_fsm.messages import JSON, Message
from rollout_fsm.network import NetworkPolicy
from rollout_fsm.task import Task

__all__ = ["FormatError", "structure_task", "task_row"]

TaskT = TypeVar("TaskT", bound=Task)
TimeoutsT = TypeVar("TimeoutsT", bound=RolloutTimeouts)

UNBOUNDED = "inf"
"""How a row spells an agent budget without a bound: JSON has no infinity."""

_PROMPT = str | tuple[Message, ...] | None


def task_row(task: Task) -> dict[str, JSON]:
    """The row of a task: its fields in JSON, messages with their role; a None that is the default is left out.

    Raises `FormatError` for fields that JSON cannot carry.
    """
    kind = type(task)
    doing = f"the row of a {kind.__name__} cannot be written as JSON"
    row = plain(_CONVERTER.unstructure(task, _declaring(kind)), doing)
    assert isinstance(row, dict)
    return row


def _declaring(kind: type[Task]) -> type[Task]:
    """The class that declares the fields: one that only adds behaviour needs no writer of its own, which the converter
    would keep for ever, and the class with it."""
    return next(base for base in kind.__mro__ if "__attrs_attrs__" in vars(base))


def structure_task(cls: type[TaskT], row: Mapping[str, JSON]) -> TaskT:
    """A task of the class from its row. `prompt` is text or a list of messages as OpenAI's chat format has them.

    Raises `FormatError` with every fault: columns that the class does not have (naming the nearest one that it has),
    missing ones, and values of another type than declared. A whole number will do for a float.
    """
    doing = f"the row does not fit {cls.__name__}"
    columns = [attribute.name for attribute in attrs.fields(cls) if attribute.init]
    faults = [f"column {name!r}: {_no_column(cls, name, columns)}" for name in row if name not in columns]
    known = {name: value for name, value in row.items() if name in columns}
    try:
        task = structured(_CONVERTER, known, cls, doing)
    except FormatError as error:
        raise FormatError(doing, [*faults, *error.faults]) from None
    if faults:
        raise FormatError(doing, faults)
    return task


def _no_column(cls: type[Task], name: str, columns: list[str]) -> str:
    if any(name in vars(base).get("__annotations__", ()) for base in cls.__mro__):
        return f"{cls.__name__} declares it but is no attrs class; decorate the class with @frozen(kw_only=True)"
    return f"{cls.__name__} has no such column{suggestion(name, columns)}"


def _prompt(value: object, _: object) -> str | tuple[Message, ...] | None:
    if value is None or isinstance(value, str):
        return value
    require(value, list, "text or an array of messages")
    messages: tuple[Message, ...] = _CONVERTER.structure(value, tuple[Message, ...])
    return messages


def _read_timeouts(kind: type[TimeoutsT], converter: Converter) -> Callable[[object, object], TimeoutsT]:
    inner = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)

    def structure_timeouts(value: object, type_: Any) -> TimeoutsT:
        data: dict[str, JSON] = require(value, dict)
        if data.get("agent") != UNBOUNDED:
            return inner(data, type_)
        bounded = inner({name: seconds for name, seconds in data.items() if name != "agent"}, type_)
        return attrs.evolve(bounded, agent=math.inf)

    return structure_timeouts


def _timeouts_to_json(kind: type[TimeoutsT], converter: Converter) -> Callable[[TimeoutsT], dict[str, object]]:
    inner = make_dict_unstructure_fn(kind, converter)

    def unstructure_timeouts(timeouts: TimeoutsT) -> dict[str, object]:
        said = {name: seconds for name, seconds in inner(timeouts).items() if seconds is not None}
        return {name: UNBOUNDED if seconds == math.inf else seconds for name, seconds in said.items()}

    return unstructure_timeouts


_CONVERTER = exact_converter(forbid_extra_keys=True)
register_messages(_CONVERTER)
_CONVERTER.register_structure_hook_func(lambda type_: type_ == _PROMPT, _prompt)
_CONVERTER.register_structure_hook_factory(is_a(RolloutTimeouts), _read_timeouts)
_CONVERTER.register_unstructure_hook_factory(is_a(RolloutTimeouts), _timeouts_to_json)
check_fields(_CONVERTER, NetworkPolicy)
