"""Plain functions as tools: what a model is shown of them, and what becomes of what it sends."""

import json
from collections.abc import Callable
from enum import Enum, IntEnum
from functools import partial
from typing import Annotated, Any, Literal

import pytest
import trio

from rollout_fsm.function_tool import ArgumentsError, FunctionTool
from rollout_fsm.messages import JSON, Tool


class Unit(Enum):
    METRE = "m"
    INCH = "in"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Corner(Enum):
    NORTH_WEST = (0, 0)
    SOUTH_EAST = (1, 1)


ARRAY_OF_UNITS: JSON = {"type": "array", "items": {"type": "object", "additionalProperties": {"enum": ["m", "in"]}}}


async def called(function: Callable[..., object], **arguments: JSON) -> str:
    return await FunctionTool.of(function).call(json.dumps(arguments))


async def refused(function: Callable[..., object], arguments: str) -> str:
    with pytest.raises(ArgumentsError) as error:
        await FunctionTool.of(function).call(arguments)
    return str(error.value)


def test_a_model_is_shown_name_docstring_and_annotations() -> None:
    def convert(
        value: Annotated[float, "what to convert"],
        unit: Unit = Unit.METRE,
        digits: int = 2,
        tags: list[str] | None = None,
        mode: Literal["up", "down", 3] = "up",
    ) -> str:
        """Convert a length.

        Into another unit.
        """
        return f"{value} {unit} {digits} {tags} {mode}"

    assert FunctionTool.of(convert).tool == Tool(
        name="convert",
        description="Convert a length.\n\nInto another unit.",
        parameters={
            "type": "object",
            "properties": {
                "value": {"type": "number", "description": "what to convert"},
                "unit": {"enum": ["m", "in"], "default": "m"},
                "digits": {"type": "integer", "default": 2},
                "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
                "mode": {"enum": ["up", "down", 3], "default": "up"},
            },
            "required": ["value"],
            "additionalProperties": False,
        },
    )


@pytest.mark.parametrize(
    ("annotation", "schema", "sent", "arrives"),
    [
        (str, {"type": "string"}, "a", "a"),
        (int, {"type": "integer"}, 3, 3),
        (int, {"type": "integer"}, 3.0, 3),
        (float, {"type": "number"}, 3, 3.0),
        (bool, {"type": "boolean"}, True, True),
        (None, {"type": "null"}, None, None),
        (list, {"type": "array", "items": {}}, [1, "a"], [1, "a"]),
        (list[int], {"type": "array", "items": {"type": "integer"}}, [1, 2.0], [1, 2]),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, [1, 2], (1, 2)),
        (set[str], {"type": "array", "items": {"type": "string"}}, ["a", "a"], {"a"}),
        (dict, {"type": "object", "additionalProperties": {}}, {"a": [1]}, {"a": [1]}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}, {"a": 1}, {"a": 1.0}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "1", "1"),
        (Literal[1, True], {"enum": [1, True]}, True, True),
        (Unit, {"enum": ["m", "in"]}, "in", Unit.INCH),
        (Level, {"enum": [1, 2]}, 2, Level.HIGH),
        (Corner, {"enum": ["NORTH_WEST", "SOUTH_EAST"]}, "SOUTH_EAST", Corner.SOUTH_EAST),
        (Any, {}, {"a": [None]}, {"a": [None]}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}, 1, 1),
        (list[dict[str, Unit]], ARRAY_OF_UNITS, [{"a": "m"}], [{"a": Unit.METRE}]),
    ],
)  # fmt: skip
async def test_a_value_of_an_annotation_arrives_as_the_function_expects_it(
    annotation: object, schema: JSON, sent: JSON, arrives: object
) -> None:
    arrived: list[object] = []

    def take(value: object) -> None:
        arrived.append(value)

    take.__annotations__["value"] = annotation
    tool = FunctionTool.of(take)
    assert tool.tool.parameters["properties"] == {"value": schema}
    await tool.call(json.dumps({"value": sent}))
    assert arrived == [arrives]
    assert type(arrived[0]) is type(arrives)


@pytest.mark.parametrize(
    ("annotation", "sent", "fault"),
    [
        (str, 3, "value: expected a string, got 3"),
        (int, "3", "value: expected a whole number, got '3'"),
        (int, 3.5, "value: expected a whole number, got 3.5"),
        (int, True, "value: expected a whole number, got True"),
        (float, False, "value: expected a number, got False"),
        (float, 10**400, "value: expected a number that fits a float, got 1000"),
        (bool, 1, "value: expected true or false, got 1"),
        (list[int], [1, "b"], "value[1]: expected a whole number, got 'b'"),
        (list[int], "12", "value: expected an array, got '12'"),
        (set[Any], [[]], "value: expected an array of strings or numbers, got [[]]"),
        (dict[str, list[int]], {"a": [1, None]}, "value.a[1]: expected a whole number, got None"),
        (dict, [], "value: expected an object, got []"),
        (int | None, "x", "value: expected a whole number, got 'x' or value: expected null, got 'x'"),
        (Literal["a", 1], True, "value: expected one of 'a', 1, got True"),
        (Unit, "METRE", "value: expected a Unit, one of 'm', 'in', got 'METRE'"),
    ],
)
async def test_a_value_that_does_not_fit_is_told_with_its_place(annotation: object, sent: JSON, fault: str) -> None:
    def take(value: object) -> None:
        raise AssertionError(value)

    take.__annotations__["value"] = annotation
    told = await refused(take, json.dumps({"value": sent}))
    assert told.startswith(f"the arguments of take do not fit: {fault}")


async def test_all_faults_are_told_at_once() -> None:
    def add(left: int, right: int, digits: int = 0) -> int:
        return left + right

    assert await refused(add, '{"left": "1", "rigth": 2}') == (
        "the arguments of add do not fit: rigth: there is no such argument; did you mean 'right'?; "
        "left: expected a whole number, got '1'; right: it is required"
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("{", "the arguments of ping are not JSON: "),
        ('{"a": NaN}', "the arguments of ping are not JSON: NaN is no JSON number"),
        ("[1]", "the arguments of ping are a JSON list; give an object"),
        ("[" * 100_000, "the arguments of ping are not JSON: "),
        ('{"a": ' + "1" * 10_000 + "}", "the arguments of ping are not JSON: "),
    ],
)
async def test_arguments_that_are_no_json_object_are_told(arguments: str, why: str) -> None:
    def ping(a: int = 0) -> str:
        raise AssertionError(a)

    assert (await refused(ping, arguments)).startswith(why)


async def test_no_arguments_at_all_are_an_empty_object() -> None:
    def ping(host: str = "here") -> str:
        return f"pong from {host}"

    for nothing in ("", "  ", "{}"):
        assert await FunctionTool.of(ping).call(nothing) == "pong from here"


async def test_defaults_stay_and_positional_and_keyword_only_arguments_arrive() -> None:
    def place(first: int, second: int = 2, /, third: int = 3, *, fourth: int = 4) -> list[int]:
        return [first, second, third, fourth]

    assert await called(place, first=1) == "[1, 2, 3, 4]"
    assert await called(place, first=1, third=30) == "[1, 2, 30, 4]"
    assert await called(place, fourth=40, second=20, first=10) == "[10, 20, 3, 40]"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is", "as it is"),
        (None, "null"),
        (3.5, "3.5"),
        ({"é": [1, None]}, '{"é": [1, null]}'),
        (Unit.INCH, "Unit.INCH"),
        ({1, }, "{1}"),
    ],
)  # fmt: skip
async def test_a_result_is_a_text_as_it_is_or_json_or_else_its_words(result: object, text: str) -> None:
    def give() -> object:
        return result

    assert await called(give) == text


async def test_async_functions_methods_partials_with_a_name_and_callable_objects_are_tools() -> None:
    async def later(value: int) -> int:
        await trio.sleep(5)
        return value

    class Counter:
        __name__ = "counter"

        def __call__(self, by: int) -> int:
            return by + 1

        def method(self, by: int) -> int:
            return by + 2

    bound = partial(later, value=7)
    bound.__name__ = "bound"  # type: ignore[attr-defined]
    assert FunctionTool.of(later).is_async
    assert await called(later, value=3) == "3"
    assert await called(Counter(), by=1) == "2"
    assert await called(Counter().method, by=1) == "3"
    assert await called(bound) == "7"
    assert not FunctionTool.of(Counter().method).is_async


def spread(*values: int) -> None: ...


def rest(**values: int) -> None: ...


def unclear(value: complex) -> None: ...


def mixed(value: tuple[int, str]) -> None: ...


def keyed(value: dict[int, str]) -> None: ...


def unknown(value: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (spread, "tool spread, argument values: a model gives arguments by name; write out what *args or **kwargs"),
        (rest, "tool rest, argument values: a model gives arguments by name"),
        (unclear, "tool unclear, argument value: complex has no counterpart in JSON; use str, int, float"),
        (mixed, "tool mixed, argument value: tuple[int, str] has items of several kinds"),
        (keyed, "tool keyed, argument value: dict[int, str]: the keys of a JSON object are strings; use dict[str, …]"),
        (unknown, "tool unknown: an annotation cannot be resolved: name 'Nowhere' is not defined"),
        (lambda value: value, "cannot be a tool: a tool is a function with a name of letters, digits, _ and -"),
        (partial(spread), "cannot be a tool: a tool is a function with a name"),
        ("spread", "'spread' cannot be a tool"),
    ],
)
def test_a_function_that_a_model_cannot_call_is_refused(function: Callable[..., object], why: str) -> None:
    with pytest.raises(TypeError) as refusal:
        FunctionTool.of(function)
    assert why in str(refusal.value)
