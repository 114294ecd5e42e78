"""Whether a value is what a TypedDict of an SDK says: pydantic reads the iterables in it lazily, and cannot tell."""

import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict


def fault(value: Any, kind: Any, where: str = "body") -> str | None:
    """What is wrong with the value; None if nothing is."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Required, NotRequired, Annotated):
        return fault(value, arguments[0], where)
    if origin in (Union, types.UnionType):
        faults = [fault(value, each, where) for each in arguments]
        return None if None in faults else " / ".join(dict.fromkeys(filter(None, faults)))
    if origin is Literal:
        return None if value in arguments else f"{where}: {value!r} is none of {arguments}"
    if is_typeddict(kind):
        return _fault_of_object(value, kind, where)
    if origin in (list, Iterable, Sequence) or _is_sequence_not_str(origin):
        if not isinstance(value, list):
            return f"{where}: {value!r} is no list"
        found = (fault(item, arguments[0], f"{where}[{at}]") for at, item in enumerate(value))
        return next(filter(None, found), None)
    if origin in (dict, Mapping):
        return None if isinstance(value, dict) else f"{where}: {value!r} is no object"
    if kind is float:
        kind = (int, float)
    wanted = type(None) if kind is None else origin or kind
    return None if wanted is object or isinstance(value, wanted) else f"{where}: {value!r} is no {kind}"


def _is_sequence_not_str(origin: Any) -> bool:
    return getattr(origin, "__name__", "") == "SequenceNotStr"


def _fault_of_object(value: Any, kind: Any, where: str) -> str | None:
    if not isinstance(value, dict):
        return f"{where}: {value!r} is no object"
    hints = _hints(kind)
    if missing := kind.__required_keys__ - value.keys():
        return f"{where}: {sorted(missing)} missing"
    if unknown := value.keys() - hints.keys():
        return f"{where}: {sorted(unknown)} unknown"
    found = (fault(value[name], hints[name], f"{where}.{name}") for name in value)
    return next(filter(None, found), None)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
