"""What an annotation means to a model: the JSON schema that it is shown, and how a value that it sends is read.

Both are made together, so that a value that fits the schema is one that the function can take. Nothing is coerced but
what JSON itself does not tell apart: 2.0 is a whole number, and 2 is a number. This module knows no functions.
"""

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from inspect import Parameter
from typing import Any, Literal, TypeAlias

from attrs import evolve, frozen

from rollout_fsm.messages import JSON

__all__ = ["MisfitError", "Shape", "shape_of", "spelling"]

SHOWN = 60
"""How many characters of a value that does not fit are shown."""

Read: TypeAlias = Callable[[JSON, str], object]


class MisfitError(ValueError):
    """A value does not fit its annotation. The message says where, what was expected and what came."""


@frozen(kw_only=True)
class Shape:
    """The schema of an annotation, and the function that reads a value of it: given the value and where it stands."""

    schema: Mapping[str, JSON]
    read: Read


def shape_of(annotation: object) -> Shape:
    """The shape of an annotation. Raises `TypeError` for one that has no counterpart in JSON.

    Taken are str, int, float, bool, None, list, tuple and set with items of one kind, dict with text as keys, Optional
    and Union, Literal, enums, Any, and `Annotated[kind, "what it is"]`, whose text is the description.
    """
    if annotation in _ANYTHING:
        return Shape(schema={}, read=lambda value, _: value)
    if annotation is None or (isinstance(annotation, type) and annotation in _SCALARS):
        return _SCALARS[annotation or types.NoneType]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(annotation)
    origin, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin is typing.Annotated:
        return _described(shape_of(arguments[0]), arguments[1:])
    if origin is Literal:
        return _choice([(option, option) for option in arguments], "one of")
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin in _ARRAYS:
        return _array(_ARRAYS[origin], arguments, annotation)
    if origin in (dict, Mapping):
        return _object(arguments, annotation)
    raise TypeError(
        f"{_spelled(annotation)} has no counterpart in JSON; use str, int, float, bool, None, list, tuple, set, dict, "
        "Optional, Union, Literal, an enum or Any"
    )


_ANYTHING: tuple[object, ...] = (Any, object, Parameter.empty, JSON)

_ARRAYS: Mapping[object, Callable[[list[object]], object]] = {
    list: list,
    Sequence: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


def _text(value: JSON, where: str) -> object:
    return value if isinstance(value, str) else _misfit(value, where, "a string")


def _flag(value: JSON, where: str) -> object:
    return value if isinstance(value, bool) else _misfit(value, where, "true or false")


def _whole(value: JSON, where: str) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else _misfit(value, where, "a whole number")


def _number(value: JSON, where: str) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _misfit(value, where, "a number")
    try:
        return float(value)
    except OverflowError:
        return _misfit(value, where, "a number that fits a float")


def _nothing(value: JSON, where: str) -> object:
    return None if value is None else _misfit(value, where, "null")


_SCALARS: Mapping[object, Shape] = {
    str: Shape(schema={"type": "string"}, read=_text),
    bool: Shape(schema={"type": "boolean"}, read=_flag),
    int: Shape(schema={"type": "integer"}, read=_whole),
    float: Shape(schema={"type": "number"}, read=_number),
    types.NoneType: Shape(schema={"type": "null"}, read=_nothing),
}


def _enum(enum: type[Enum]) -> Shape:
    return _choice([(spelling(member), member) for member in enum], f"a {enum.__name__}, one of")


def spelling(member: Enum) -> JSON:
    """How a model spells an enum's member: by its value, if every member's is one that JSON has, else by its name."""
    by_value = all(isinstance(other.value, str | int | float) for other in type(member))
    value: JSON = member.value if by_value else member.name
    return value


def _choice(options: Sequence[tuple[Any, object]], expected: str) -> Shape:
    if strange := [option for option, _ in options if not isinstance(option, str | int | float | None)]:
        raise TypeError(f"{strange[0]!r} is no choice that JSON has; use strings, numbers, true and false")
    listed = ", ".join(repr(option) for option, _ in options)

    def read(value: JSON, where: str) -> object:
        for option, meaning in options:
            if type(option) is type(value) and option == value:
                return meaning
        return _misfit(value, where, f"{expected} {listed}")

    return Shape(schema={"enum": [option for option, _ in options]}, read=read)


def _union(arguments: Sequence[object]) -> Shape:
    shapes = [shape_of(argument) for argument in arguments]

    def read(value: JSON, where: str) -> object:
        faults: list[str] = []
        for shape in shapes:
            try:
                return shape.read(value, where)
            except MisfitError as misfit:
                faults.append(str(misfit))
        raise MisfitError(" or ".join(dict.fromkeys(faults)))

    return Shape(schema={"anyOf": [dict(shape.schema) for shape in shapes]}, read=read)


def _array(make: Callable[[list[object]], object], arguments: Sequence[object], annotation: object) -> Shape:
    items = [argument for argument in arguments if argument is not Ellipsis]
    if len(items) > 1 or (make is tuple and len(arguments) == 1):
        raise TypeError(f"{_spelled(annotation)} has items of several kinds; use a list or tuple[…, ...] of one kind")
    item = shape_of(items[0] if items else Any)

    def read(value: JSON, where: str) -> object:
        if not isinstance(value, list):
            return _misfit(value, where, "an array")
        read_items = [item.read(entry, f"{where}[{place}]") for place, entry in enumerate(value)]
        try:
            return make(read_items)
        except TypeError:
            return _misfit(value, where, "an array of strings or numbers")

    return Shape(schema={"type": "array", "items": dict(item.schema)}, read=read)


def _object(arguments: Sequence[object], annotation: object) -> Shape:
    if arguments and arguments[0] is not str:
        raise TypeError(f"{_spelled(annotation)}: the keys of a JSON object are strings; use dict[str, …]")
    item = shape_of(arguments[1] if arguments else Any)

    def read(value: JSON, where: str) -> object:
        if not isinstance(value, dict):
            return _misfit(value, where, "an object")
        return {name: item.read(entry, f"{where}.{name}") for name, entry in value.items()}

    return Shape(schema={"type": "object", "additionalProperties": dict(item.schema)}, read=read)


def _described(shape: Shape, notes: Sequence[object]) -> Shape:
    description = next((note for note in notes if isinstance(note, str)), None)
    return shape if description is None else evolve(shape, schema={**shape.schema, "description": description})


def _misfit(value: JSON, where: str, expected: str) -> typing.NoReturn:
    text = repr(value)
    raise MisfitError(f"{where}: expected {expected}, got {text if len(text) <= SHOWN else f'{text[:SHOWN]}…'}")


def _spelled(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)
