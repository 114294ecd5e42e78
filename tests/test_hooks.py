"""Hooks: how they are found, where each sits, what they are given, what a wrong one is told (L30, L31, L36)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import trio
from attrs import frozen

from rollout_fsm import (
    Harness,
    Request,
    Response,
    Rollout,
    Runtime,
    Task,
    Trace,
    intercept,
    metric,
    open_engine,
    reward,
    stop,
)
from rollout_fsm.engine import Engine
from rollout_fsm.hooks import Hooks, harness_metrics
from rollout_fsm.limits import LIMIT_NAMES
from tests.world import NoHooks, ScriptedHarness, World, mint, play, world_task

KINDS: Mapping[str, Callable[..., Any]] = {"stop": stop, "intercept": intercept, "reward": reward, "metric": metric}


def class_with(kind: str, function: Callable[..., Any], base: type = Task, **options: Any) -> type:
    function.__qualname__ = f"Wrong.{function.__name__}"
    decorator = KINDS[kind](**options) if options else KINDS[kind]
    return type("Wrong", (base,), {function.__name__: decorator(function), "__annotations__": {}})


def none(self) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def two_requests(self, a: Request, b: Request) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def two_responses(self, a: Response, b: Response) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def both(self, a: Request, b: Response) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def both_and_trace(self, a: Request, b: Response, c: Trace) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def request(self, a: Request) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def response(self, a: Response) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def with_trace(self, a: Request, trace: Trace) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def with_named_trace(self, a: Response, trace) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def response_with_trace(self, a: Response, b: Trace) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def by_trace(self, anything: Trace) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def by_named_trace(self, trace) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def two_traces(self, a: Trace, b: Trace) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def unknown(self, a: Request, b) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def unknown_type(self, a: Request, b: dict[str, int]) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def optional(self, a: "Request | None") -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def defaulted(self, a: Request, b: int = 3) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def named(self, a: Request, task, runtime) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def runtime_only(self, runtime: Runtime) -> bool: ...  # type: ignore[no-untyped-def,empty-body]
def signal(self, task, trace, runtime) -> float: ...  # type: ignore[no-untyped-def,empty-body]


BOUNDARIES: dict[str, dict[Callable[..., Any], str | None]] = {
    "stop": {
        request: "request_stops",
        response: "response_stops",
        by_trace: "trace_stops",
        with_trace: "request_stops",
        response_with_trace: "response_stops",
        defaulted: "request_stops",
        named: "request_stops",
        none: None,
        two_requests: None,
        two_responses: None,
        both: None,
        both_and_trace: None,
        two_traces: None,
        by_named_trace: None,
        unknown: None,
        unknown_type: None,
        optional: None,
        runtime_only: None,
    },
    "intercept": {
        request: "request_interceptors",
        response: "response_interceptors",
        defaulted: "request_interceptors",
        named: "request_interceptors",
        none: None,
        two_requests: None,
        two_responses: None,
        both: None,
        both_and_trace: None,
        with_trace: None,
        with_named_trace: None,
        response_with_trace: None,
        by_trace: None,
        by_named_trace: None,
        unknown: None,
        optional: None,
        runtime_only: None,
    },
    "reward": {
        none: "rewards",
        signal: "rewards",
        by_trace: "rewards",
        by_named_trace: "rewards",
        runtime_only: "rewards",
        request: None,
        response: None,
        with_trace: None,
        unknown: None,
    },
    "metric": {none: "metrics", signal: "metrics", by_trace: "metrics", request: None, response: None, unknown: None},
}
ROUTES = [(kind, function, where) for kind, functions in BOUNDARIES.items() for function, where in functions.items()]


@pytest.mark.parametrize(("kind", "function", "where"), ROUTES, ids=lambda each: getattr(each, "__name__", str(each)))
def test_where_a_hook_sits_is_decided_by_the_types_of_its_parameters(
    kind: str, function: Callable[..., Any], where: str | None
) -> None:
    wrong = class_with(kind, function)
    if where is None:
        with pytest.raises(TypeError, match=rf"@{kind} Wrong\.{function.__name__}"):
            Hooks.of(wrong(), reserved=())
        return
    hooks = Hooks.of(wrong(), reserved=())
    found = {
        name: [hook.name for hook in getattr(hooks, name)]
        for name in (
            "trace_stops", "request_interceptors", "request_stops", "response_interceptors", "response_stops",
            "rewards", "metrics",
        )
    }  # fmt: skip
    assert found.pop(where) == [function.__name__]
    assert not any(found.values())


OWN = (
    "error", "cancelled", "user_closed", "agent_completed", "no_progress", "agent_timeout", "context_length",
    *LIMIT_NAMES,
)  # fmt: skip


@pytest.mark.parametrize("name", OWN)
async def test_a_stop_that_bears_one_of_the_engines_own_conditions_is_refused(name: str) -> None:
    def hook(self: object, trace: Trace) -> bool:
        return False

    hook.__name__ = name
    task = class_with("stop", hook)(prompt="hello")
    async with open_engine(gateway=False) as engine:
        with pytest.raises(TypeError, match=name):
            mint(engine, World(), task=task)


async def test_a_reward_may_bear_any_name() -> None:
    def hook(self: object) -> float:
        return 1.0

    hook.__name__ = "max_turns"
    world = World()
    trace = await play(world, task=class_with("reward", hook)(prompt="hello"))
    assert trace.reward == 1.0


@pytest.mark.parametrize("way", ["rollout", "run", "run_all", "interaction"])
async def test_a_wrong_hook_is_raised_before_anything_starts(way: str) -> None:
    world, task = World(), class_with("intercept", none)(prompt="hello")

    async def make(engine: Engine) -> None:
        settings: dict[str, Any] = {"harness": ScriptedHarness(world), "model": object()}
        from tests.world import EchoModel

        settings["model"] = EchoModel(world)
        given = [task] if way == "run_all" else task
        made = getattr(engine, way)(given, **settings)
        if way == "run":
            await made

    observed: list[Trace] = []

    class Observer:
        def on_trace(self, trace: Trace) -> None:
            observed.append(trace)

    async with open_engine(gateway=False, observers=[Observer()]) as engine:
        with pytest.raises(TypeError, match=r"@intercept Wrong\.none"):
            await make(engine)
    assert (world.began, observed) == ([], [])


@pytest.mark.parametrize("kind", ["stop", "intercept", "reward"])
def test_a_harness_has_metrics_only(kind: str) -> None:
    functions: dict[str, Callable[..., Any]] = {"stop": by_trace, "intercept": request, "reward": none}
    function = functions[kind]
    with pytest.raises(TypeError, match=rf"@{kind} Wrong\.{function.__name__}"):
        harness_metrics(class_with(kind, function, ScriptedHarness)(World()))


def decorated_outside(wrap: Any) -> type:
    class Odd(Task):
        @stop
        @wrap  # type: ignore[untyped-decorator]
        def odd(self, trace: Trace) -> bool:
            return False

    return Odd


def decorated_inside(wrap: Any) -> type:
    class Odd(Task):
        @wrap  # type: ignore[untyped-decorator]
        @stop
        def odd(self, trace: Trace) -> bool:
            return False

    return Odd


@pytest.mark.parametrize(
    ("make", "wrap"),
    [
        (decorated_outside, staticmethod),
        (decorated_outside, classmethod),
        (decorated_inside, staticmethod),
        (decorated_inside, classmethod),
        (decorated_inside, property),
    ],
)
def test_a_hook_is_a_method(make: Callable[[Any], type], wrap: Any) -> None:
    with pytest.raises(TypeError, match=r"Odd\.odd"):
        Hooks.of(make(wrap)(), reserved=())


# ---- discovery


@frozen(kw_only=True)
class Base(Task):
    @stop
    def b_low(self, trace: Trace) -> bool:
        return False

    @stop(priority=5)
    def z_high(self, trace: Trace) -> bool:
        return False

    @stop
    def a_low(self, trace: Trace) -> bool:
        return False

    @stop(priority=-1)
    def last(self, trace: Trace) -> bool:
        return False

    @reward(weight=2.0)
    def good(self) -> float:
        return 1.0

    @metric
    def size(self) -> float:
        return 1.0


def names(hooks: Any) -> list[str]:
    return [hook.name for hook in hooks]


def test_higher_priority_comes_first_then_the_name() -> None:
    assert names(Hooks.of(Base(), reserved=()).trace_stops) == ["z_high", "a_low", "b_low", "last"]


def test_the_most_derived_override_wins_with_its_own_decorator() -> None:
    class Derived(Base):
        @stop(priority=9)
        def b_low(self, response: Response) -> bool:  # type: ignore[override]
            return False

        @reward(weight=0.5)
        def good(self) -> float:
            return 3.0

    hooks = Hooks.of(Derived(), reserved=())
    assert names(hooks.trace_stops) == ["z_high", "a_low", "last"]
    assert names(hooks.response_stops) == ["b_low"]
    assert [hook.hook.weight for hook in hooks.rewards] == [0.5]


def test_an_undecorated_override_removes_the_hook() -> None:
    class Derived(Base):
        def good(self) -> float:
            return 3.0

        a_low = None  # type: ignore[assignment]

    class Further(Derived):
        pass

    for task in (Derived(), Further()):
        hooks = Hooks.of(task, reserved=())
        assert names(hooks.rewards) == []
        assert names(hooks.trace_stops) == ["z_high", "b_low", "last"]
    assert names(Hooks.of(Base(), reserved=()).rewards) == ["good"]


def test_of_two_bases_the_first_in_the_resolution_order_wins() -> None:
    class Left(Task):
        @metric
        def size(self) -> float:
            return 1.0

    class Right(Base):
        pass

    class Both(Left, Right):
        pass

    hooks = Hooks.of(Both(), reserved=())
    assert names(hooks.metrics) == ["size"]
    assert names(hooks.rewards) == ["good"]


def test_a_hook_can_change_its_kind_in_a_subclass() -> None:
    class Derived(Base):
        @metric
        def good(self) -> float:
            return 1.0

    hooks = Hooks.of(Derived(), reserved=())
    assert names(hooks.rewards) == []
    assert names(hooks.metrics) == ["good", "size"]


def test_a_task_without_hooks_has_none() -> None:
    hooks = Hooks.of(Task(), reserved=())
    assert not any((*hooks.trace_stops, *hooks.rewards, *hooks.metrics, *hooks.request_interceptors))


# ---- what they are given


@pytest.mark.parametrize("is_async", [False, True])
async def test_hooks_receive_what_they_name(is_async: bool) -> None:
    world = World()
    given: dict[str, tuple[object, ...]] = {}

    class Plain(NoHooks):
        @stop
        def a_stop(self, t: Trace, task: Task, runtime: Runtime) -> bool:
            given["stop"] = (t, task, runtime)
            return False

        @stop
        def b_stop(self, r: Request, t: Trace, runtime: Runtime) -> bool:
            given["request stop"] = (type(r), t, runtime)
            return False

        @intercept
        def on_reply(self, r: Response, task: Task) -> None:
            given["interceptor"] = (type(r), task)

        @metric
        def named(self, task: Task, trace: Trace, runtime: Runtime) -> float:
            given["metric"] = (trace, task, runtime)
            return 1.0

    def later(function: Callable[..., Any]) -> Callable[..., Any]:
        import functools

        @functools.wraps(function)
        async def hook(*arguments: Any, **keywords: Any) -> Any:
            await trio.lowlevel.checkpoint()
            return function(*arguments, **keywords)

        return hook

    class Async(NoHooks):
        pass

    for name, function in vars(Plain).items():
        if callable(function):
            setattr(Async, name, later(function))
    task = world_task(world, hooks=Async if is_async else Plain)
    rollouts: list[Rollout] = []

    async def drive(rollout: Rollout) -> None:
        rollouts.append(rollout)
        await rollout.open()
        await rollout.step()
        await rollout.close()

    trace = await play(world, task=task, drive=drive)
    runtime = world.runtime
    assert given == {
        "stop": (trace, task, runtime),
        "request stop": (Request, trace, runtime),
        "interceptor": (Response, task),
        "metric": (trace, task, runtime),
    }
    assert trace.metrics["named"] == 1.0


async def test_a_harness_has_metrics_of_its_own_which_get_what_they_name() -> None:
    world = World()

    class Measured(ScriptedHarness):
        @metric
        async def sessions_open(self, trace: Trace, task: Task, runtime: Runtime) -> float:
            assert (type(runtime).__name__, task.prompt) == ("ScriptedRuntime", "hello")
            return float(trace.num_turns)

    trace = await play(world, harness=Measured(world))
    assert trace.metrics == {"sessions_open": 1.0, "steps": 1.0}


def test_an_annotation_that_only_a_type_checker_can_resolve_hides_no_boundary() -> None:
    class Odd(Task):
        @stop
        def odd(self, request: "Request", runtime: "NowhereDefined") -> bool:  # type: ignore[name-defined]  # noqa: F821
            return False

    assert names(Hooks.of(Odd(), reserved=()).request_stops) == ["odd"]


def test_a_bound_function_of_another_kind_is_no_hook() -> None:
    class Odd(Task):
        odd = partial(by_trace)

    assert Hooks.of(Odd(), reserved=()).trace_stops == ()
    assert issubclass(ScriptedHarness, Harness)
