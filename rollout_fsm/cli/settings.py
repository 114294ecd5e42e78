"""What a run can be told, by flags or by a file: the same records for both, in which None means "not said".

cyclopts reads them from the command line and cattrs from TOML, so a setting has one name, one type and one
explanation. Values are checked here, all of them at once, before anything is started. Defaults are given at the end,
by `settle`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import attrs
from attrs import field, frozen
from cyclopts import Parameter

from rollout_fsm.cli.loading import is_reference
from rollout_fsm.exact_json import FormatError, plain
from rollout_fsm.limits import RolloutLimits, RolloutPolicy, RolloutTimeouts
from rollout_fsm.messages import JSON, Sampling
from rollout_fsm.retry import RetryPolicy

__all__ = [
    "LimitSettings",
    "ModelSettings",
    "OriginSettings",
    "PolicySettings",
    "RetrySettings",
    "SamplingSettings",
    "Settings",
    "Settled",
    "TimeoutSettings",
    "check_of",
    "faults",
    "flag",
    "over",
    "settle",
]

Check = Callable[[Any], str | None]
_CHECK = "check"

NAME = "--"
MAX_PORT = 2**16 - 1


def _setting(check: Check | None = None) -> Any:
    return field(default=None, metadata={_CHECK: check})


def _at_least(least: int) -> Check:
    return lambda value: None if value >= least else f"must be a whole number of at least {least}, not {value}"


def _between(least: float, most: float) -> Check:
    return lambda value: None if least <= value <= most else f"must be between {least:g} and {most:g}, not {value:g}"


def _seconds(value: float) -> str | None:
    good = value >= 0 and math.isfinite(value)
    return None if good else f"must be a finite number of seconds of at least 0, not {value:g}"


def _seconds_or_no_bound(value: float) -> str | None:
    return None if value >= 0 else f"must be a number of seconds of at least 0, or inf for no bound, not {value:g}"


def _json(value: Mapping[str, JSON]) -> str | None:
    try:
        plain(value, "extra")
    except FormatError as error:
        return f"goes to the model as JSON: {'; '.join(error.faults)}"
    return None


def _names(entries: tuple[str, ...]) -> str | None:
    """What is wrong with names of errors and endings; `module:Class` is looked at when it is loaded."""
    wrong = []
    for entry in entries:
        if is_reference(entry):
            continue
        try:
            RetryPolicy(exclude=(entry,))
        except (TypeError, ValueError) as error:
            wrong.append(str(error).removeprefix("exclude: ").replace("pass the class itself", "write module:Class"))
    return "; ".join(wrong) or None


def _included(entries: tuple[str, ...]) -> str | None:
    if (wrong := _names(entries)) is not None:
        return wrong
    try:
        RetryPolicy(include=[entry for entry in entries if not is_reference(entry)])
    except ValueError as error:
        return str(error).removeprefix("include: ")
    return None


def _some(value: str) -> str | None:
    return None if value.strip() else "is empty; leave it out, or say something"


@frozen(kw_only=True)
class ModelSettings:
    """Who answers the model calls."""

    name: Annotated[str | None, Parameter(name=("--model", "-m"), metavar="MODEL")] = _setting(_some)
    """The endpoint's model, or local (SmolLM2 in this process, extra "local"), or scripted (the example's, offline)."""
    base_url: Annotated[str | None, Parameter(name=("--base-url", "-b", "--api-base-url"), metavar="URL")] = _setting(
        _some
    )
    """OpenAI-compatible endpoint; else OPENAI_BASE_URL, else OpenAI's own."""
    api_key_var: Annotated[str | None, Parameter(name=("--api-key-var", "-k"), metavar="NAME")] = _setting(_some)
    """The name of the environment variable that holds the key; the key itself is never configured."""
    stream: Annotated[bool | None, Parameter(name="--stream")] = None
    """Ask the endpoint for its answers in chunks."""


@frozen(kw_only=True)
class SamplingSettings:
    """How the model is asked to sample; wins over what a harness asks for."""

    temperature: Annotated[float | None, Parameter(name=("--temperature", "-T"))] = _setting(_between(0, 100))
    """Sampling temperature."""
    top_p: Annotated[float | None, Parameter(name="--top-p")] = _setting(_between(0, 1))
    """Nucleus sampling."""
    max_tokens: Annotated[int | None, Parameter(name=("--max-tokens", "-t"))] = _setting(_at_least(1))
    """Tokens of one reply, at most."""
    seed: Annotated[int | None, Parameter(name="--seed")] = None
    """The model's seed, where it has one."""
    reasoning_effort: Annotated[str | None, Parameter(name="--reasoning-effort")] = _setting(_some)
    """As the endpoint calls it: low, medium, high."""
    stop: Annotated[tuple[str, ...] | None, Parameter(parse=False)] = None
    extra: Annotated[Mapping[str, JSON] | None, Parameter(parse=False)] = _setting(_json)


@frozen(kw_only=True)
class LimitSettings:
    """Caps that are asked before each turn."""

    max_turns: Annotated[int | None, Parameter(name="--max-turns")] = _setting(_at_least(0))
    """Replies of the model in one rollout, at most."""
    max_input_tokens: Annotated[int | None, Parameter(name="--max-input-tokens")] = _setting(_at_least(0))
    """Tokens fed in, each counted once."""
    max_output_tokens: Annotated[int | None, Parameter(name="--max-output-tokens")] = _setting(_at_least(0))
    """Tokens of replies."""
    max_total_tokens: Annotated[int | None, Parameter(name="--max-total-tokens")] = _setting(_at_least(0))
    """Length of the whole conversation."""


@frozen(kw_only=True)
class TimeoutSettings:
    """Bounds in seconds. What is not said is the task's, else the default."""

    boot: float | None = _setting(_seconds)
    """Starting the runtime (600)."""
    setup: float | None = _setting(_seconds)
    """Task and harness setup together (600)."""
    agent: float | None = _setting(_seconds_or_no_bound)
    """The agent's budget, over all segments (no bound)."""
    finalize: float | None = _setting(_seconds)
    """The task's finalize (300)."""
    scoring: float | None = _setting(_seconds)
    """All rewards and metrics (600)."""
    hook: float | None = _setting(_seconds)
    """Each stop and interceptor (60)."""
    drain: float | None = _setting(_seconds)
    """A harness after a refused turn (30)."""
    close: float | None = _setting(_seconds)
    """Each step of closing (60)."""
    release: float | None = _setting(_seconds)
    """Each step of the release (60)."""


@frozen(kw_only=True)
class PolicySettings:
    """Declared alternatives."""

    agent_expiry: Literal["fail", "stop"] | None = None
    """What an expired agent budget is: a failure, or a stop that is scored (fail)."""
    no_progress: Literal["fail", "stop"] | None = None
    """What a segment without a turn is (stop)."""
    unknown_usage: Literal["warn", "fail"] | None = None
    """What a reply without usage under a token cap is (warn)."""


@frozen(kw_only=True)
class RetrySettings:
    """When a rollout that failed is tried again, on a fresh trace and in a fresh runtime."""

    max_retries: Annotated[int | None, Parameter(name=("--max-retries", "--retry.max-retries"))] = _setting(
        _at_least(0)
    )
    """Attempts after the first, at most (0)."""
    include: Annotated[tuple[str, ...] | None, Parameter(negative_iterable="")] = _setting(_included)
    """A type of errors, module:Class, or an ending to try again, else each that is retryable; may be said again."""
    exclude: Annotated[tuple[str, ...] | None, Parameter(negative_iterable="")] = _setting(_names)
    """One that is never tried again; may be said again."""
    backoff: float | None = _setting(_seconds)
    """Seconds before the first retry, doubled for each further one (1)."""
    max_backoff: float | None = _setting(_seconds)
    """Seconds before a retry, at most (60)."""


@frozen(kw_only=True)
class OriginSettings:
    """What else a run went by, for `resume`: nobody says it, `run` writes it down."""

    folder: str | None = _setting(_some)
    """The current folder, in which relative names of files, programs and modules were found."""
    run: str | None = _setting(_some)
    """The run's id."""
    endpoint: str | None = _setting(_some)
    """Where the model was asked, if OPENAI_BASE_URL said it and holds more than is to be written down."""


@frozen(kw_only=True)
class Settings:
    """A run."""

    tasks: Annotated[str | None, Parameter(parse=False)] = _setting(_some)
    """The JSONL file of tasks; without one, the built-in example."""
    task: Annotated[str | None, Parameter(name="--task", metavar="MODULE:CLASS")] = _setting(_some)
    """The class of the tasks; the file's columns are its fields."""
    harness: Annotated[str | None, Parameter(name="--harness")] = _setting(_some)
    """The program around the model: a name (chat), module:Class, or a quoted command line."""
    runtime: Annotated[str | None, Parameter(name="--runtime")] = _setting(_some)
    """The box that programs run in: local, or module:Class."""
    name: Annotated[str | None, Parameter(name="--name")] = _setting(_some)
    """What the run is called; else the name of the tasks' file."""
    num_tasks: Annotated[int | None, Parameter(name=("--num-tasks", "-n", "--num-examples"))] = _setting(_at_least(1))
    """How many of the tasks, from the first; all of them if not said."""
    rollouts_per_task: Annotated[
        int | None, Parameter(name=("--rollouts-per-task", "-r", "--rollouts-per-example", "--num-rollouts"))
    ] = _setting(_at_least(1))
    """Rollouts of each task (1)."""
    max_concurrent: Annotated[int | None, Parameter(name=("--max-concurrent", "-c"))] = _setting(_at_least(1))
    """Rollouts at once, at most (32)."""
    max_active_segments: Annotated[int | None, Parameter(name="--max-active-segments")] = _setting(_at_least(1))
    """Of these, how many agents run at once; the others wait, and their budgets stand still (no bound)."""
    shuffle: Annotated[bool | None, Parameter(name=("--shuffle", "-s"))] = None
    """Shuffle the tasks before the first are taken."""
    shuffle_seed: Annotated[int | None, Parameter(name="--shuffle-seed")] = None
    """Which shuffle (0)."""
    output_dir: Annotated[str | None, Parameter(name=("--output-dir", "-o"), metavar="DIR")] = _setting(_some)
    """The run's folder; else outputs/NAME/RUN."""
    fail_on_error: Annotated[bool | None, Parameter(name="--fail-on-error")] = None
    """Exit with 1 if any rollout was not ok."""
    host: Annotated[str | None, Parameter(name="--host")] = _setting(_some)
    """Where the gateway listens (127.0.0.1)."""
    port: Annotated[int | None, Parameter(name="--port")] = _setting(_between(0, MAX_PORT))
    """Its port; 0 takes a free one."""
    model: Annotated[ModelSettings | None, Parameter(name="*", group="Model")] = None
    sampling: Annotated[SamplingSettings | None, Parameter(name="*", group="Sampling")] = None
    limits: Annotated[LimitSettings | None, Parameter(name="*", group="Limits")] = None
    timeouts: Annotated[
        TimeoutSettings | None, Parameter(name=("--timeout", "--timeouts"), group="Timeouts, in seconds")
    ] = None
    policy: Annotated[PolicySettings | None, Parameter(name="--policy", group="Policy")] = None
    retry: Annotated[RetrySettings | None, Parameter(name=("--retry", "--retries"), group="Retries")] = None
    origin: Annotated[OriginSettings | None, Parameter(parse=False)] = None


S = TypeVar("S")


def check_of(attribute: "attrs.Attribute[Any]") -> Check | None:
    """What is asked of a setting's value: returns what is wrong with it, None if nothing is."""
    check: Check | None = attribute.metadata.get(_CHECK)
    return check


def faults(settings: attrs.AttrsInstance, path: str = "") -> Iterator[tuple[str, str]]:
    """Every value that cannot be, as the path of the setting and what is wrong with it."""
    for attribute in attrs.fields(type(settings)):
        value = getattr(settings, attribute.name)
        where = f"{path}{attribute.name}"
        check = check_of(attribute)
        if attrs.has(type(value)):
            yield from faults(value, f"{where}.")
        elif value is not None and check is not None and (wrong := check(value)) is not None:
            yield where, wrong


def flag(path: str) -> str:
    """The flag of a setting, as a message names it; the positional argument for the tasks."""
    kind: Any = Settings
    prefix = NAME
    for part in path.split("."):
        hint = get_type_hints(kind, include_extras=True)[part]
        told = [meta for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, Parameter)]
        first = next(iter(told[0].name or ()), "") if told else ""
        if first.startswith(NAME):
            prefix = first
        elif not first:
            prefix = f"{prefix}.{part.replace('_', '-')}" if prefix != NAME else part.upper()
        kind = _record_in(hint)
    return prefix


def over(upper: S | None, lower: S | None) -> S | None:
    """What `upper` says, and `lower` where it says nothing; record by record, tables of extras key by key."""
    if upper is None or lower is None:
        return lower if upper is None else upper
    said: dict[str, object] = {}
    for attribute in attrs.fields(type(upper)):  # type: ignore[arg-type]
        above, below = getattr(upper, attribute.name), getattr(lower, attribute.name)
        if attrs.has(type(above)) and attrs.has(type(below)):
            said[attribute.name] = over(above, below)
        elif isinstance(above, Mapping) and isinstance(below, Mapping):
            said[attribute.name] = {**below, **above}
        else:
            said[attribute.name] = below if above is None else above
    return type(upper)(**said)


@frozen(kw_only=True)
class Settled:
    """The records that the engine takes, from what was said."""

    limits: RolloutLimits
    timeouts: RolloutTimeouts
    policy: RolloutPolicy
    sampling: Sampling


def settle(settings: Settings) -> Settled:
    """The engine's records. Settings that were checked raise nothing here."""
    return Settled(
        limits=RolloutLimits(**_said(settings.limits)),
        timeouts=RolloutTimeouts(**_said(settings.timeouts)),
        policy=RolloutPolicy(**_said(settings.policy)),
        sampling=Sampling(**_said(settings.sampling)),
    )


def _said(record: attrs.AttrsInstance | None) -> dict[str, Any]:
    if record is None:
        return {}
    values = {attribute.name: getattr(record, attribute.name) for attribute in attrs.fields(type(record))}
    return {name: value for name, value in values.items() if value is not None}


def _record_in(hint: Any) -> Any:
    parts = getattr(getattr(hint, "__origin__", hint), "__args__", ())
    return next((part for part in parts if attrs.has(part)), None)
