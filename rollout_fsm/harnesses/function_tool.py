"""A plain function as a tool of a model: name, description and schema from its signature, calls from the model's text.

What a model sends is never trusted: it is JSON or it is not, it fits the annotations or it does not, and all faults are
told at once, in words that the model can act on.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NoReturn

import trio
from attrs import field, frozen

from rollout_fsm.foreign import ask
from rollout_fsm.harnesses.shapes import MisfitError, Shape, shape_of, spelling
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.messages import JSON, Tool

__all__ = ["ArgumentsError", "FunctionTool"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ONE_VALUE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


class ArgumentsError(ValueError):
    """The arguments of a call are not what the function takes; the message is for the model."""


@frozen(kw_only=True, eq=False)
class FunctionTool:
    """A function, sync or async, that a model may call."""

    tool: Tool
    """What the model is shown."""
    is_async: bool
    _function: Callable[..., object] = field(repr=False)
    _signature: inspect.Signature = field(repr=False)
    _shapes: Mapping[str, Shape] = field(repr=False)

    @classmethod
    def of(cls, function: Callable[..., object]) -> "FunctionTool":
        """The tool that a function is. Its docstring is the description, `Annotated[int, "…"]` describes an argument.

        Raises `TypeError` for what cannot be called with a JSON object: no name, `*args`, `**kwargs`, or an annotation
        that has no counterpart in JSON.
        """
        name = getattr(function, "__name__", None)
        if not callable(function) or not isinstance(name, str) or not _NAME.fullmatch(name):
            raise TypeError(
                f"{function!r} cannot be a tool: a tool is a function with a name of letters, digits, _ and -"
            )
        try:
            signature = inspect.signature(function, eval_str=True)
        except NameError as error:
            raise TypeError(f"tool {name}: an annotation cannot be resolved: {error}") from error
        shapes = {parameter.name: _shape(name, parameter) for parameter in signature.parameters.values()}
        parameters: dict[str, JSON] = {
            "type": "object",
            "properties": {
                parameter.name: _property(shapes[parameter.name], parameter)
                for parameter in signature.parameters.values()
            },
            "required": [
                parameter.name
                for parameter in signature.parameters.values()
                if parameter.default is inspect.Parameter.empty
            ],
            "additionalProperties": False,
        }
        return cls(
            tool=Tool(name=name, description=inspect.getdoc(function) or "", parameters=parameters),
            is_async=inspect.iscoroutinefunction(function),
            function=function,
            signature=signature,
            shapes=shapes,
        )

    @property
    def name(self) -> str:
        """The function's name."""
        return self.tool.name

    async def call(self, arguments: str) -> str:
        """Call the function with what the model wrote, and return its result as text: a string as it is, else JSON.

        A plain function runs inline and must not block. Raises `ArgumentsError`, and what the function raises.
        """
        bound = self._bound(arguments)
        return _as_text(await _run(self._function, bound))

    def _bound(self, arguments: str) -> inspect.BoundArguments:
        given = _parsed(self.name, arguments)
        takes = self._signature.parameters
        faults = [
            f"{name}: there is no such argument{suggestion(name, takes) if takes else ''}"
            for name in given
            if name not in takes
        ]
        values: dict[str, object] = {}
        for name, parameter in takes.items():
            if name in given:
                try:
                    values[name] = self._shapes[name].read(given[name], name)
                except MisfitError as misfit:
                    faults.append(str(misfit))
            elif parameter.default is inspect.Parameter.empty:
                faults.append(f"{name}: it is required")
        if faults:
            raise ArgumentsError(f"the arguments of {self.name} do not fit: {'; '.join(faults)}")
        bound = self._signature.bind_partial()
        bound.arguments.update(values)
        bound.apply_defaults()  # a positional-only argument that is left out would hide those behind it
        return bound


@trio.lowlevel.disable_ki_protection
async def _run(function: Callable[..., object], bound: inspect.BoundArguments) -> object:
    return await ask(function, *bound.args, **bound.kwargs)


def _shape(tool: str, parameter: inspect.Parameter) -> Shape:
    where = f"tool {tool}, argument {parameter.name}"
    if parameter.kind not in _ONE_VALUE:
        raise TypeError(f"{where}: a model gives arguments by name; write out what *args or **kwargs stand for")
    try:
        return shape_of(parameter.annotation)
    except TypeError as error:
        raise TypeError(f"{where}: {error}") from None


def _property(shape: Shape, parameter: inspect.Parameter) -> JSON:
    default = parameter.default
    if isinstance(default, Enum):
        default = spelling(default)
    if isinstance(default, str | int | float):
        return {**shape.schema, "default": default}
    return dict(shape.schema)


def _parsed(name: str, arguments: str) -> dict[str, JSON]:
    if not arguments.strip():
        return {}  # how some servers spell a call without arguments
    try:
        given = json.loads(arguments, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ArgumentsError(f"the arguments of {name} are not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ArgumentsError(f"the arguments of {name} are a JSON {type(given).__name__}; give an object")
    return given


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _as_text(result: object) -> str:
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(result)
