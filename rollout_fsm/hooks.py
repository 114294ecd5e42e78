"""Hooks and signals: the decorators, how they are found, where each sits, how one is called (L30, L31, L36).

A hook is a decorated method of a task; `@metric` also of a harness. Discovery happens once a class, routing is decided
by the types of annotated parameters alone, and a wrong hook is a `TypeError` that names it, raised when the rollout is
created.
"""

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar, overload
from weakref import WeakKeyDictionary

import trio
from attrs import field, frozen

from rollout_fsm.foreign import ask
from rollout_fsm.messages import Request, Response
from rollout_fsm.trace import Trace

Kind: TypeAlias = Literal["stop", "intercept", "reward", "metric"]
Boundary: TypeAlias = Literal["trace", "request", "response"]
Function = TypeVar("Function", bound=Callable[..., object])

_BOUNDARY: Mapping[object, Boundary] = {Request: "request", Response: "response", Trace: "trace"}
_BY_NAME: Mapping[str, Boundary] = {"Request": "request", "Response": "response", "Trace": "trace"}
_NAMED = ("task", "trace", "runtime")
_MARK = "_rollout_fsm_hook"


@frozen(kw_only=True)
class _Mark:
    """What a decorator writes on a function."""

    kind: Kind
    priority: int = 0
    weight: float = 1.0


def _decorator(mark: _Mark) -> Callable[[Function], Function]:
    if isinstance(mark.priority, bool) or not isinstance(mark.priority, int):
        raise TypeError(f"the priority of a hook is a whole number, not {mark.priority!r}")

    def decorate(function: Function) -> Function:
        setattr(function, _MARK, mark)
        return function

    return decorate


@overload
def stop(function: Function, /) -> Function: ...
@overload
def stop(*, priority: int = 0) -> Callable[[Function], Function]: ...
def stop(function: Function | None = None, /, *, priority: int = 0) -> Function | Callable[[Function], Function]:
    """Ends the exchange when it returns true; its name becomes the stop condition (L16, L34).

    One parameter annotated `Trace` → asked before every turn; one `Request` → before the model call; one `Response` →
    after it.
    """
    decorate = _decorator(_Mark(kind="stop", priority=priority))
    return decorate if function is None else decorate(function)


@overload
def intercept(function: Function, /) -> Function: ...
@overload
def intercept(*, priority: int = 0) -> Callable[[Function], Function]: ...
def intercept(function: Function | None = None, /, *, priority: int = 0) -> Function | Callable[[Function], Function]:
    """Rewrites new user and tool messages on their way to the model (`Request`), or the reply on its way back
    (`Response`).

    Returns the replacement, or None to leave things as they are (L33).
    """
    decorate = _decorator(_Mark(kind="intercept", priority=priority))
    return decorate if function is None else decorate(function)


@overload
def reward(function: Function, /) -> Function: ...
@overload
def reward(*, weight: float = 1.0, priority: int = 0) -> Callable[[Function], Function]: ...
def reward(
    function: Function | None = None, /, *, weight: float = 1.0, priority: int = 0
) -> Function | Callable[[Function], Function]:
    """A signal that counts: the reward is the sum of score × weight (L61, L64). Returns a number or a mapping of names
    to numbers."""
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
        raise TypeError(f"the weight of a reward is a finite number, not {weight!r}")
    decorate = _decorator(_Mark(kind="reward", priority=priority, weight=weight))
    return decorate if function is None else decorate(function)


@overload
def metric(function: Function, /) -> Function: ...
@overload
def metric(*, priority: int = 0) -> Callable[[Function], Function]: ...
def metric(function: Function | None = None, /, *, priority: int = 0) -> Function | Callable[[Function], Function]:
    """A signal that is only recorded (L61). Returns a number or a mapping of names to numbers."""
    decorate = _decorator(_Mark(kind="metric", priority=priority))
    return decorate if function is None else decorate(function)


@frozen(kw_only=True, eq=False)
class Hook:
    """A found hook: where it sits and what it takes."""

    name: str
    kind: Kind
    priority: int
    weight: float
    boundary: Boundary | None
    """Where a stop or an interceptor sits; None for a signal."""
    takes: Mapping[str, str]
    """Parameter → what it is given: `task`, `trace`, `runtime`, `request` or `response`."""


@frozen(kw_only=True, eq=False)
class BoundHook:
    """A hook, ready to be called."""

    hook: Hook
    owner: object | None = field(default=None, repr=False)
    """The harness whose it is; None for a task's, which is called on the task that it is given."""

    @property
    def name(self) -> str:
        """The function's name; a stop's is its stop condition."""
        return self.hook.name

    @property
    def said(self) -> str:
        """How an error names it."""
        return f"@{self.hook.kind} {self.hook.name!r}"

    def doing(self) -> str:
        """What is being done, in the log."""
        return self.said

    async def __call__(self, available: Mapping[str, object]) -> object:
        """Call it with what it names (L36). A plain function runs inline."""
        given = {parameter: available[what] for parameter, what in self.hook.takes.items()}
        owner = available["task"] if self.owner is None else self.owner
        return await _asked(getattr(owner, self.hook.name), **given)


@frozen(kw_only=True, eq=False, slots=False)  # with slots, cached properties make the reading of every field slow
class Hooks:
    """The hooks of a class of tasks, each list in the order of calling: higher priority first, then by name (L30)."""

    trace_stops: tuple[BoundHook, ...] = ()
    request_interceptors: tuple[BoundHook, ...] = ()
    request_stops: tuple[BoundHook, ...] = ()
    response_interceptors: tuple[BoundHook, ...] = ()
    response_stops: tuple[BoundHook, ...] = ()
    rewards: tuple[BoundHook, ...] = ()
    metrics: tuple[BoundHook, ...] = ()

    @cached_property
    def stop_names(self) -> frozenset[str]:
        """The stop conditions that the task's own stops set."""
        return frozenset(hook.name for hook in (*self.trace_stops, *self.request_stops, *self.response_stops))

    @classmethod
    def of(cls, task: object, *, reserved: Collection[str]) -> "Hooks":
        """The hooks of a task. `reserved`: the engine's own stop conditions, which no stop may bear as its name
        (L31)."""
        kind = type(task)
        if (hooks := _of_tasks.get(kind)) is None:
            hooks = _of_tasks[kind] = cls._routed(_found(kind))
        if clashing := sorted(hooks.stop_names.intersection(reserved)):
            where = f"@stop {_where(kind, clashing[0])}"
            raise TypeError(f"{where}: {clashing[0]!r} is one of the engine's own stop conditions; rename the stop")
        return hooks

    @classmethod
    def _routed(cls, found: Iterable[Hook]) -> "Hooks":
        lists: dict[str, list[BoundHook]] = {}
        for hook in found:
            lists.setdefault(_LIST[hook.kind, hook.boundary], []).append(BoundHook(hook=hook))
        return cls(**{name: tuple(hooks) for name, hooks in lists.items()})


_LIST: Mapping[tuple[Kind, Boundary | None], str] = {
    ("stop", "trace"): "trace_stops",
    ("intercept", "request"): "request_interceptors",
    ("stop", "request"): "request_stops",
    ("intercept", "response"): "response_interceptors",
    ("stop", "response"): "response_stops",
    ("reward", None): "rewards",
    ("metric", None): "metrics",
}
"""In which list a hook is called."""

_of_tasks: "WeakKeyDictionary[type, Hooks]" = WeakKeyDictionary()
"""By class: routed once."""


def harness_metrics(harness: object) -> tuple[BoundHook, ...]:
    """The `@metric` methods of a harness, in the order of calling. Any other hook on a harness is a `TypeError`
    (L30)."""
    found = _found(type(harness))
    for hook in found:
        if hook.kind != "metric":
            raise TypeError(
                f"@{hook.kind} {_where(type(harness), hook.name)}: a harness has metrics only; put it on the task"
            )
    return tuple(BoundHook(hook=hook, owner=harness) for hook in found)


@trio.lowlevel.disable_ki_protection
async def _asked(function: Callable[..., object], **given: object) -> object:
    return await ask(function, **given)


_cache: "WeakKeyDictionary[type, tuple[Hook, ...]]" = WeakKeyDictionary()


def _found(owner: type) -> tuple[Hook, ...]:
    if (known := _cache.get(owner)) is None:
        known = _cache[owner] = tuple(sorted(_discover(owner), key=lambda hook: (-hook.priority, hook.name)))
    return known


def _discover(owner: type) -> Iterable[Hook]:
    for name in dir(owner):
        function = inspect.getattr_static(
            owner, name, None
        )  # the most derived one; an undecorated override hides the rest
        inner = getattr(function, "__func__", None) or getattr(function, "fget", None)
        if isinstance(mark := getattr(function, _MARK, None) or getattr(inner, _MARK, None), _Mark):
            if not inspect.isfunction(function):
                raise TypeError(
                    f"@{mark.kind} {_where(owner, name)}: a hook is a method, not a {type(function).__name__}"
                )
            yield _route(owner, name, function, mark)


def _route(owner: type, name: str, function: Callable[..., object], mark: _Mark) -> Hook:
    parameters = list(_parameters(function))[1:]  # without self
    typed = {parameter.name: _boundary_of(parameter.annotation) for parameter in parameters}
    crossing = [boundary for boundary in typed.values() if boundary]
    takes: dict[str, str] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            where = f"@{mark.kind} {_where(owner, name)}"
            raise TypeError(f"{where}: parameter {parameter.name!r} is positional only; hooks are called by name")
        if what := typed[parameter.name] or (parameter.name if parameter.name in _NAMED else None):
            takes[parameter.name] = what
        elif parameter.default is parameter.empty:
            raise TypeError(
                f"@{mark.kind} {_where(owner, name)}: nothing is known to give to parameter {parameter.name!r}; a hook "
                f"takes task, trace and runtime by name, and Request, Response or Trace by annotation"
            )
    return Hook(
        name=name,
        kind=mark.kind,
        priority=mark.priority,
        weight=mark.weight,
        boundary=_boundary(owner, name, mark, crossing, takes),
        takes=takes,
    )


def _boundary(owner: type, name: str, mark: _Mark, typed: list[Boundary], takes: Mapping[str, str]) -> Boundary | None:
    crossing = [boundary for boundary in typed if boundary != "trace"]
    where = f"@{mark.kind} {_where(owner, name)}"
    if mark.kind in ("reward", "metric"):
        if crossing:
            raise TypeError(
                f"{where}: a signal is measured after the exchange; it cannot take a {crossing[0].capitalize()}"
            )
        return None
    if len(crossing) > 1:
        raise TypeError(
            f"{where}: it is annotated for {len(crossing)} boundaries ({', '.join(crossing)}); annotate one Request or "
            f"one Response"
        )
    if mark.kind == "intercept":
        if not crossing:
            raise TypeError(
                f"{where}: it is annotated for no boundary; annotate one parameter as Request or as Response"
            )
        if "trace" in takes.values():
            raise TypeError(
                f"{where}: an interceptor may not see the trace; decide by the {crossing[0]} alone, or use a stop"
            )
        return crossing[0]
    if not crossing and typed.count("trace") != 1:
        raise TypeError(
            f"{where}: it is annotated for no boundary; annotate one parameter as Trace, Request or Response"
        )
    return crossing[0] if crossing else "trace"


def _parameters(function: Callable[..., object]) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(function, eval_str=True).parameters.values()
    except NameError:  # an annotation that only a type checker can resolve; the others are still known by name
        return inspect.signature(function).parameters.values()


def _boundary_of(annotation: object) -> Boundary | None:
    if isinstance(annotation, str):
        return _BY_NAME.get(annotation.strip("\"'").rpartition(".")[2])
    return next((boundary for known, boundary in _BOUNDARY.items() if annotation is known), None)


def _where(owner: type, name: str) -> str:
    return f"{owner.__qualname__}.{name}"
