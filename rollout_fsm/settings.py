"""What a rollout may be given, and how that is settled into a plan; what does not fit is refused here (L2, L31)."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Required, TypedDict

from attrs import AttrsInstance, fields

from rollout_fsm.flow import DRAINED
from rollout_fsm.harness import Harness
from rollout_fsm.hooks import Hooks, harness_metrics
from rollout_fsm.judge import Judge
from rollout_fsm.limits import LIMIT_NAMES, Bounds, RolloutLimits, RolloutPolicy, RolloutTimeouts
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.messages import JSON, Sampling
from rollout_fsm.model import Model
from rollout_fsm.plan import Plan, Services
from rollout_fsm.retry import RetryPolicy
from rollout_fsm.rows import task_row
from rollout_fsm.runtime import Runtime, RuntimeFactory
from rollout_fsm.task import Task
from rollout_fsm.toolset import Toolset
from rollout_fsm.trace import GroupInfo, TaskInfo


class AgentSettings(TypedDict, total=False):
    """How a rollout is run. The same for `run`, `run_all`, `interaction` and `rollout`."""

    harness: Required[Harness]
    model: Required[Model]
    runtime: Runtime | RuntimeFactory
    """A running `Runtime` is borrowed; a factory (a class) makes an owned one for each rollout."""
    limits: RolloutLimits
    timeouts: RolloutTimeouts
    """Field by field the run's where set, else the task's, else the default (L2)."""
    policy: RolloutPolicy
    sampling: Sampling
    """Wins over what the harness's requests ask for."""
    tools: Sequence[Callable[[], Toolset]]
    """Tool servers beside the task's own; built anew for each rollout, so classes or functions."""
    judges: Sequence[Judge]
    retry: RetryPolicy
    """Whether a failed attempt is followed by another; for `run` and `run_all`, never into a borrowed runtime."""
    observers: Sequence[object]


class OneRollout(AgentSettings, total=False):
    """What only a single rollout can be given."""

    id: str
    """uuid4 hex unless given."""
    group: GroupInfo


class ManyRollouts(AgentSettings, total=False):
    """What only many rollouts can be given."""

    rollouts_per_task: int
    """How many of each task; 1 unless said."""
    max_concurrent: int | None
    """How many at once, from boot to confirmed release; None, as unless said, for any number."""


def at_least_one(name: str, value: int) -> None:
    """Raises `ValueError` for what is no number of things."""
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")


def settle(task: Task, *, has_user: bool, services: Services, settings: Mapping[str, object] | AgentSettings) -> Plan:
    """Everything that the caller chose, settled; raises `TypeError` for what does not fit together (L31)."""
    given: dict[str, Any] = dict(settings)
    for name in ("observers", "id", "group"):
        given.pop(name, None)
    if unknown := sorted(given.keys() - AgentSettings.__annotations__.keys()):
        raise TypeError(f"a rollout has no setting {unknown[0]!r}; it takes {', '.join(AgentSettings.__annotations__)}")
    for name in ("harness", "model"):
        if name not in given:
            raise TypeError(f"a rollout needs a {name}: pass {name}=")
    if given.get("runtime") is None:
        from rollout_fsm.runtimes import LocalRuntime  # here, since who brings a runtime does without

        given["runtime"] = LocalRuntime
    if not isinstance(task, Task):
        raise TypeError(f"a rollout needs a Task, not {type(task).__name__}")
    for name, value in given.items():
        if value is not None and (kind := _KINDS.get(name)) is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, not {value!r}")
    if not isinstance(given["runtime"], Runtime) and not callable(given["runtime"]):
        raise TypeError(f"runtime must be a Runtime (borrowed) or a factory of one (owned), not {given['runtime']!r}")
    harness = given["harness"]
    for name in ("harness", "model"):
        if not isinstance(getattr(given[name], "name", None), str):
            raise TypeError(f"{type(given[name]).__name__} has no name; give the {name} a name as text")
    return Plan(
        task=task,
        harness=harness,
        model=given["model"],
        runtime=given["runtime"],
        limits=given.get("limits") or _NO_LIMITS,
        bounds=Bounds.settle(given.get("timeouts"), task.timeouts),
        policy=given.get("policy") or _DEFAULT_POLICY,
        sampling=given.get("sampling") or _DEFAULT_SAMPLING,
        tools=tuple(given.get("tools") or ()),
        judges=tuple(given.get("judges") or ()),
        has_user=has_user,
        hooks=Hooks.of(task, reserved=reserved_conditions()),
        harness_metrics=harness_metrics(harness),
        harness_name=harness.name,
        model_name=given["model"].name,
        services=services,
    )


_NO_LIMITS, _DEFAULT_POLICY, _DEFAULT_SAMPLING = RolloutLimits(), RolloutPolicy(), Sampling()


@cache
def _fields_of(kind: type[AttrsInstance]) -> tuple[tuple[str, ...], Callable[[object], tuple[JSON, ...]]]:
    names = tuple(attribute.name for attribute in fields(kind))
    return names, attrgetter(*names)


def _flat(settings: AttrsInstance) -> dict[str, JSON]:
    """The fields by name, as they are."""
    names, values = _fields_of(type(settings))
    return dict(zip(names, values(settings), strict=True))


_KINDS: Mapping[str, type] = {
    "harness": Harness,
    "model": Model,
    "limits": RolloutLimits,
    "timeouts": RolloutTimeouts,
    "policy": RolloutPolicy,
    "retry": RetryPolicy,
    "sampling": Sampling,
}


@cache
def reserved_conditions() -> frozenset[str]:
    """The engine's own stop conditions, which no stop may bear as its name (L31)."""
    return frozenset(row.sets for row in lifecycle().declaration.rows if row.sets) | {
        *LIMIT_NAMES,
        "context_length",
        DRAINED,
    }


def task_info(task: Task) -> TaskInfo:
    """The task as it stands on a trace. Raises what the task's own code raises, `FormatError` for what is no JSON."""
    if not isinstance(key := task.key, str):
        raise TypeError(f"{type(task).__name__}.key is of type {type(key).__name__}; it identifies the task, as text")
    return TaskInfo(type=type(task).__name__, data=task_row(task), key=key, hash=task.hash)


def agent_config(plan: Plan) -> dict[str, JSON]:
    """Who runs, as readers of the verifiers schema load it: the caps flat, what is ours under `harness` (L84)."""
    bounds = plan.bounds
    harness: dict[str, JSON] = {
        "id": plan.harness_name,
        "policy": _flat(plan.policy),
        "timeouts": {name: seconds for name, seconds in _flat(bounds).items() if seconds != math.inf},
    }
    timeout: dict[str, JSON] = {"setup": bounds.setup, "finalize": bounds.finalize, "scoring": bounds.scoring}
    if bounds.agent != math.inf:
        timeout["rollout"] = bounds.agent
    config: dict[str, JSON] = {"harness": harness, "model": plan.model_name, "timeout": timeout}
    sampling: dict[str, JSON] = {name: value for name, value in _flat(plan.sampling).items() if value not in (None, {})}
    if sampling:
        config["sampling"] = sampling
    config.update((name, cap) for name, cap in _flat(plan.limits).items() if cap is not None)
    return config
