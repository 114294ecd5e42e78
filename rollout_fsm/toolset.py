"""The contract of a tool server that belongs to one rollout, and the usual way to write one: a class with `@tool`
methods.

Nothing here knows how tools are served. A `Toolset` that does not start a server of its own asks its context for one,
which is the engine's, with an address that only its rollout knows.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from attrs import field, frozen

from rollout_fsm.function_tool import FunctionTool
from rollout_fsm.runtime import Runtime
from rollout_fsm.shapes import MisfitError, shape_of
from rollout_fsm.trace import Trace

if TYPE_CHECKING:
    from rollout_fsm.task import Task

Function = TypeVar("Function", bound=Callable[..., object])

TOOL_TIMEOUT = 60.0

GIVEN = ("task", "trace", "runtime", "state")
"""The parameters of a tool that are the rollout's; all others are the model's to give."""

_MARK = "_rollout_fsm_tool"


async def _nowhere(toolset: "Toolset", context: "RolloutContext") -> str:
    raise TypeError(f"{type(toolset).__name__} needs an engine to serve its tools, and this context has none")


@frozen(kw_only=True, eq=False)
class RolloutContext:
    """What a tool server may see of its rollout. `trace.state` is shared with hooks and signals."""

    task: "Task"
    trace: Trace
    runtime: Runtime
    state_url: str = ""
    """Where a tool server in another process of the engine's host reads and writes `trace.state`; one in the box goes
    to `runtime.host_url` of it. Empty where the engine has no gateway.

    GET answers with the whole state as a JSON object and its version as `ETag`. PUT replaces the whole state; with
    `If-Match: <that ETag>` only if nobody has changed it since, else it is refused with 412: read again, and try again.
    Both send `Authorization: Bearer <state_secret>`.
    """
    state_secret: str = field(default="", repr=False)
    """The bearer token for `state_url`, and for nothing else."""
    _serve: Callable[["Toolset", "RolloutContext"], Awaitable[str]] = field(default=_nowhere, repr=False)

    async def serve(self, toolset: "Toolset") -> str:
        """Serve the tools of a toolset over streamable HTTP, for this rollout alone, and return the URL: who has it may
        call them. The engine ends it with the rollout, after the toolset's `stop` (L50).
        """
        return await self._serve(toolset, self)


@frozen(kw_only=True)
class _Mark:
    """What the decorator writes on a function."""

    name: str | None
    description: str | None


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[Function], Function]: ...
def tool(
    function: Function | None = None, /, *, name: str | None = None, description: str | None = None
) -> Function | Callable[[Function], Function]:
    """Makes a method of a `Toolset` a tool: name, description and schema are those of its signature, annotations and
    docstring, unless given here; `Annotated[int, "…"]` describes an argument.

    A parameter named `task`, `trace`, `runtime` or `state` (that is `trace.state`), or annotated `Trace`, is the
    rollout's, and the model is not shown it.
    """

    def decorate(function: Function) -> Function:
        setattr(function, _MARK, _Mark(name=name, description=description))
        return function

    return decorate if function is None else decorate(function)


class Toolset:
    """A tool server of one rollout: built in setup, served before the exchange, stopped after it (L5, L8, L50).

    Its `@tool` methods, plain or async, are its tools; the most derived one counts, and an undecorated override removes
    a tool. A plain method runs inline and must not block. What a tool returns is its result: text as it is, anything
    else as JSON. What it raises is told to the model, and is no failure of the rollout. One that holds something open
    is an async context manager, entered before it is served and left after it.

    `start` and `stop` are to be overridden by what has a server of its own, or something to do before or after.
    """

    tool_timeout: float | None = TOOL_TIMEOUT
    """Seconds that one call of a tool may take; then it is cancelled, and the model is told. None: no bound."""

    @property
    def name(self) -> str:
        """What the server is called in `Exchange.tool_urls`, in errors and warnings."""
        return type(self).__name__

    async def start(self, context: RolloutContext) -> str:
        """Serve, and return the URL. A start that fails undoes itself; it is not followed by `stop` (L8)."""
        return await context.serve(self)

    async def stop(self) -> None:
        """Stop serving. Bounded by `timeouts.close`; a failure is a warning (L51). What `context.serve` began is ended
        by the engine, after this."""


def tools_of(toolset: Toolset) -> dict[str, FunctionTool]:
    """The tools that a toolset's methods are, by name. Raises `TypeError` for what cannot be one, for two of one name,
    and where there is none."""
    tools: dict[str, FunctionTool] = {}
    for attribute, mark in _marked(type(toolset)):
        method = getattr(toolset, attribute)
        found = FunctionTool.of(method, name=mark.name, description=mark.description, given=_given)
        if found.name in tools:
            raise TypeError(f"{type(toolset).__name__}: two tools are named {found.name}; rename one of them")
        tools[found.name] = found
    if not tools:
        raise TypeError(f"{type(toolset).__name__} has no @tool methods, and no start() of its own: it serves nothing")
    return tools


def available(context: RolloutContext) -> dict[str, object]:
    """What a tool may be given of the rollout that calls it."""
    return {"task": context.task, "trace": context.trace, "runtime": context.runtime, "state": context.trace.state}


def _marked(owner: type) -> Iterator[tuple[str, _Mark]]:
    for name in dir(owner):
        function = inspect.getattr_static(owner, name, None)
        inner = getattr(function, "__func__", None) or getattr(function, "fget", None)
        if isinstance(mark := getattr(function, _MARK, None) or getattr(inner, _MARK, None), _Mark):
            if not inspect.isfunction(function):
                raise TypeError(
                    f"@tool {owner.__qualname__}.{name}: a tool is a method, not a {type(function).__name__}"
                )
            if next(iter(inspect.signature(function).parameters), None) != "self":
                raise TypeError(f"@tool {owner.__qualname__}.{name}: a tool is a method, and its first parameter self")
            yield name, mark


def _given(tool: str, parameter: inspect.Parameter) -> str | None:
    if parameter.annotation is Trace:
        return "trace"
    if parameter.name not in GIVEN:
        return None
    if _the_models(parameter):
        raise TypeError(
            f"tool {tool}, argument {parameter.name}: a parameter of this name is given the rollout's own "
            f"{parameter.name}; rename it if the model is to give it"
        )
    return parameter.name


def _the_models(parameter: inspect.Parameter) -> bool:
    """Whether the annotation is one that a model could fill, so that what the name says is not what is meant."""
    if parameter.annotation in (parameter.empty, Any, object):
        return False
    try:
        shape = shape_of(parameter.annotation)
    except TypeError:
        return False
    try:
        return parameter.name != "state" or bool(shape.read({}, parameter.name))
    except MisfitError:
        return True
