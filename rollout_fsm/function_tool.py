"""A plain function as a tool of a model: name, description and schema from its signature, calls from the model's text.

What a model sends is never trusted: it is JSON or it is not, it fits the annotations or it does not, and all faults are
told at once, in words that the model can act on.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NoReturn, TypeAlias

import trio
from attrs import field, frozen

from rollout_fsm.foreign import ask
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.messages import JSON, Tool
from rollout_fsm.shapes import MisfitError, Shape, shape_of, spelling

__all__ = ["ArgumentsError", "FunctionTool", "as_text", "parsed", "told"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ONE_VALUE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


_NOTHING: Mapping[str, object] = MappingProxyType({})


class ArgumentsError(ValueError):
    """The arguments of a call are not what the function takes; the message is for the model."""


Given: TypeAlias = Callable[[str, inspect.Parameter], str | None]
"""Says of a tool's parameter what it is given instead of an argument of the model's; None: it is the model's."""


def _all_the_models(tool: str, parameter: inspect.Parameter) -> str | None:
    return None


@frozen(kw_only=True, eq=False)
class FunctionTool:
    """A function, sync or async, that a model may call."""

    tool: Tool
    """What the model is shown."""
    is_async: bool
    _function: Callable[..., object] = field(repr=False)
    _signature: inspect.Signature = field(repr=False)
    _shapes: Mapping[str, Shape] = field(repr=False)
    _given: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(
        cls,
        function: Callable[..., object],
        *,
        name: str | None = None,
        description: str | None = None,
        given: Given = _all_the_models,
    ) -> "FunctionTool":
        """The tool that a function is. Its docstring is the description, `Annotated[int, "…"]` describes an argument.

        `name` and `description` stand instead of the function's own. `given` tells the parameters that are no argument
        of the model's: it is not shown them, and `call` fills them from what is `available`.

        Raises `TypeError` for what cannot be called with a JSON object: no name, `*args`, `**kwargs`, or an annotation
        that has no counterpart in JSON.
        """
        name = getattr(function, "__name__", None) if name is None else name
        if not callable(function) or not isinstance(name, str) or not _NAME.fullmatch(name):
            raise TypeError(
                f"{function!r} cannot be a tool: a tool is a function with a name of letters, digits, _ and -"
            )
        try:
            signature = inspect.signature(function, eval_str=True)
        except NameError as error:
            raise TypeError(f"tool {name}: an annotation cannot be resolved: {error}") from error
        parameters = signature.parameters.values()
        fillings = {parameter.name: filling for parameter in parameters if (filling := given(name, parameter))}
        asked = [parameter for parameter in parameters if parameter.name not in fillings]
        shapes = {parameter.name: _shape(name, parameter) for parameter in asked}
        schema: dict[str, JSON] = {
            "type": "object",
            "properties": {parameter.name: _property(shapes[parameter.name], parameter) for parameter in asked},
            "required": [parameter.name for parameter in asked if parameter.default is inspect.Parameter.empty],
            "additionalProperties": False,
        }
        description = (inspect.getdoc(function) or "") if description is None else description
        return cls(
            tool=Tool(name=name, description=description, parameters=schema),
            is_async=inspect.iscoroutinefunction(function),
            function=function,
            signature=signature,
            shapes=shapes,
            given=fillings,
        )

    @property
    def name(self) -> str:
        """What the model calls it by."""
        return self.tool.name

    async def call(self, arguments: str) -> str:
        """Call the function with what the model wrote, and return its result as text: a string as it is, else JSON.

        A plain function runs inline and must not block. Raises `ArgumentsError`, and what the function raises.
        """
        return as_text(await self.run(parsed(self.name, arguments)))

    async def run(self, arguments: Mapping[str, JSON], available: Mapping[str, object] = _NOTHING) -> object:
        """Call the function with what the model gave, and what it is given besides. Returns its result as it is."""
        bound = self._bound(arguments, available)
        return await _run(self._function, bound)

    def _bound(self, given: Mapping[str, JSON], available: Mapping[str, object]) -> inspect.BoundArguments:
        takes = self._shapes
        faults = [
            f"{name}: there is no such argument{suggestion(name, takes) if takes else ''}"
            for name in given
            if name not in takes
        ]
        values: dict[str, object] = {}
        for name, parameter in self._signature.parameters.items():
            if name in self._given:
                values[name] = available[self._given[name]]
            elif name in given:
                try:
                    values[name] = takes[name].read(given[name], name)
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


def parsed(name: str, arguments: str) -> dict[str, JSON]:
    """What a model wrote as the arguments of a tool. Raises `ArgumentsError` for what is no JSON object."""
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


def as_text(result: object) -> str:
    """A tool's result as the model reads it: a string as it is, else JSON, else its words."""
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(result)


@trio.lowlevel.enable_ki_protection  # a Ctrl-C is no message's, and comes afterwards
def told(error: BaseException) -> str:
    """What a model is told of a tool that raised."""
    if isinstance(error, ArgumentsError):
        return f"Error: {error}"
    try:
        return f"Error: {type(error).__name__}: {error}".removesuffix(": ")
    except BaseException:  # noqa: BLE001  (a message that cannot be shown: its code may raise anything)
        return f"Error: {type(error).__name__}"
