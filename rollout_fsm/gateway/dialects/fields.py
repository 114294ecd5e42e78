"""Reading the fields of somebody's JSON: each value is what was expected, or a `DialectError` names its path."""

import json
from collections.abc import Mapping
from typing import Final

from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.messages import JSON

SHOWN = 80
"""How many characters of an offending value an error shows."""

MISSING: Final = object()
"""In the place of a value that is not there."""


def require_whole(body: object, what: str) -> None:
    """A body, chunk or event has to be an object."""
    if not isinstance(body, Mapping):
        raise DialectError(f"{what}: expected a JSON object, got {shown(body)}")


def as_object(value: object, where: str, expected: str) -> dict[str, JSON]:
    """The value as the object that was expected."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    raise wrong(where, value, expected)


def as_list(value: object, where: str, expected: str) -> list[JSON]:
    """The value as the list that was expected."""
    if isinstance(value, list):
        return value
    if isinstance(value, tuple):
        return list(value)
    raise wrong(where, value, expected)


def as_string(value: object, where: str, expected: str = "a string") -> str:
    """The value as the string that was expected."""
    if isinstance(value, str):
        return value
    raise wrong(where, value, expected)


def get_string(body: Mapping[str, JSON], name: str, where: str = "") -> str | None:
    """The string in a field that need not be there."""
    value = body.get(name)
    return None if value is None else as_string(value, at(where, name))


def get_list(body: Mapping[str, JSON], name: str, where: str, expected: str) -> list[JSON]:
    """The list in a field that need not be there."""
    value = body.get(name)
    return [] if value is None else as_list(value, at(where, name), expected)


def get_flag(body: Mapping[str, JSON], name: str, where: str = "") -> bool | None:
    """The truth in a field that need not be there."""
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise wrong(at(where, name), value, "true or false")


def at(where: str, name: str) -> str:
    """The path of a field."""
    return f"{where}.{name}" if where else name


def count(value: JSON) -> int | None:
    """A number of tokens; None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def price(value: JSON) -> float | None:
    """What a call cost; None for what is no number."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def detail(body: Mapping[str, JSON], group: str, name: str) -> JSON:
    """A field of a field, None where either is missing."""
    details = body.get(group)
    return details.get(name) if isinstance(details, dict) else None


def wrong(where: str, value: object, expected: str) -> DialectError:
    """The error for a value that is not what was expected."""
    return DialectError(f"{where}: expected {expected}, got {shown(value)}", param=where)


def shown(value: object) -> str:
    """The value in short."""
    if value is MISSING:
        return "nothing"
    try:
        text = json.dumps(value, default=repr)
    except (ValueError, RecursionError):
        text = repr(type(value))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
