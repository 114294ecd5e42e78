"""What a run can be told, by flags or by a file: the same records for both, in which None means "not said".

cyclopts reads them from the command line and cattrs from TOML, so a setting has one name, one type and one
explanation. Values are checked here, all of them at once, before anything is started. Defaults are given at the end,
by `settle`.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import attrs
from attrs import frozen
from cyclopts import Parameter

from rollout_fsm.cli.checks import (
    accepted_by,
    at_least,
    between,
    check_of,
    errors_or_endings,
    finite,
    included,
    is_json,
    seconds,
    seconds_or_no_bound,
    setting,
    some,
)
from rollout_fsm.grading.choices import Choices
from rollout_fsm.judges.rubric import Criterion, criteria_of
from rollout_fsm.limits import RolloutLimits, RolloutPolicy, RolloutTimeouts
from rollout_fsm.messages import JSON, Sampling
from rollout_fsm.network import NetworkPolicy

__all__ = [
    "BoxSettings",
    "JudgeSettings",
    "LimitSettings",
    "ModelSettings",
    "NetworkSettings",
    "OriginSettings",
    "PolicySettings",
    "RetrySettings",
    "SamplingSettings",
    "Settings",
    "Settled",
    "TimeoutSettings",
    "faults",
    "flag",
    "over",
    "said",
    "settle",
]

NAME = "--"
MAX_PORT = 2**16 - 1


def _one_provider(speaks: tuple[str, ...]) -> str | None:
    return (
        "messages is another provider's than chat and responses; name the ones that the endpoint speaks"
        if ("messages" in speaks and len(set(speaks)) > 1)
        else None
    )


@frozen(kw_only=True)
class ModelSettings:
    """Who answers the model calls."""

    name: Annotated[str | None, Parameter(name=("--model", "-m"), metavar="MODEL")] = setting(some)
    """The endpoint's model, or local (SmolLM2 in this process, extra "local"), or scripted (the example's, offline)."""
    base_url: Annotated[str | None, Parameter(name=("--base-url", "-b", "--api-base-url"), metavar="URL")] = setting(
        some
    )
    """The endpoint; else OPENAI_BASE_URL or ANTHROPIC_BASE_URL, else the provider's own."""
    api_key_var: Annotated[str | None, Parameter(name=("--api-key-var", "-k"), metavar="NAME")] = setting(some)
    """The name of the environment variable that holds the key; the key itself is never configured."""
    stream: Annotated[bool | None, Parameter(name="--stream")] = None
    """Ask the endpoint for its answers in chunks."""
    speaks: Annotated[
        tuple[Literal["chat", "responses", "messages"], ...] | None, Parameter(name="--speaks", negative_iterable="")
    ] = setting(_one_provider)
    """The APIs of the endpoint: chat and responses are OpenAI's (may be said again), messages is Anthropic's."""


@frozen(kw_only=True)
class SamplingSettings:
    """How the model is asked to sample; wins over what a harness asks for."""

    temperature: Annotated[float | None, Parameter(name=("--temperature", "-T"))] = setting(between(0, 100))
    """Sampling temperature."""
    top_p: Annotated[float | None, Parameter(name="--top-p")] = setting(between(0, 1))
    """Nucleus sampling."""
    max_tokens: Annotated[int | None, Parameter(name=("--max-tokens", "-t"))] = setting(at_least(1))
    """Tokens of one reply, at most."""
    seed: Annotated[int | None, Parameter(name="--seed")] = None
    """The model's seed, where it has one."""
    reasoning_effort: Annotated[str | None, Parameter(name="--reasoning-effort")] = setting(some)
    """As the endpoint calls it: low, medium, high."""
    stop: Annotated[tuple[str, ...] | None, Parameter(parse=False)] = None
    extra: Annotated[Mapping[str, JSON] | None, Parameter(parse=False)] = setting(is_json)


@frozen(kw_only=True)
class LimitSettings:
    """Caps that are asked before each turn."""

    max_turns: Annotated[int | None, Parameter(name="--max-turns")] = setting(at_least(0))
    """Replies of the model in one rollout, at most."""
    max_input_tokens: Annotated[int | None, Parameter(name="--max-input-tokens")] = setting(at_least(0))
    """Tokens fed in, each counted once."""
    max_output_tokens: Annotated[int | None, Parameter(name="--max-output-tokens")] = setting(at_least(0))
    """Tokens of replies."""
    max_total_tokens: Annotated[int | None, Parameter(name="--max-total-tokens")] = setting(at_least(0))
    """Length of the whole conversation."""


@frozen(kw_only=True)
class TimeoutSettings:
    """Bounds in seconds. What is not said is the task's, else the default."""

    boot: float | None = setting(seconds)
    """Starting the runtime (600)."""
    setup: float | None = setting(seconds)
    """Task and harness setup together (600)."""
    agent: float | None = setting(seconds_or_no_bound)
    """The agent's budget, over all segments (no bound)."""
    finalize: float | None = setting(seconds)
    """The task's finalize (300)."""
    scoring: float | None = setting(seconds)
    """All rewards and metrics (600)."""
    hook: float | None = setting(seconds)
    """Each stop and interceptor (60)."""
    drain: float | None = setting(seconds)
    """A harness after a refused turn (30)."""
    close: float | None = setting(seconds)
    """Each step of closing (60)."""
    release: float | None = setting(seconds)
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

    max_retries: Annotated[int | None, Parameter(name=("--max-retries", "--retry.max-retries"))] = setting(at_least(0))
    """Attempts after the first, at most (0)."""
    include: Annotated[tuple[str, ...] | None, Parameter(negative_iterable="")] = setting(included)
    """A type of errors, module:Class, or an ending to try again, else each that is retryable; may be said again."""
    exclude: Annotated[tuple[str, ...] | None, Parameter(negative_iterable="")] = setting(errors_or_endings)
    """One that is never tried again; may be said again."""
    backoff: float | None = setting(seconds)
    """Seconds before the first retry, doubled for each further one (1)."""
    max_backoff: float | None = setting(seconds)
    """Seconds before a retry, at most (60)."""


def _entries(entries: tuple[str, ...]) -> NetworkPolicy:
    return NetworkPolicy(allow=entries)


@frozen(kw_only=True)
class NetworkSettings:
    """What programs may reach while the agent runs, in a runtime that isolates them: nothing unless it is said."""

    allow: Annotated[tuple[str, ...] | None, Parameter(negative_iterable="")] = setting(accepted_by(_entries))
    """A host, *.domain, address or CIDR block, with or without a port, or * for all that is public; may be said again.
    """
    block: Annotated[tuple[str, ...] | None, Parameter(negative_iterable="")] = setting(accepted_by(_entries))
    """One that is not reached, whatever is allowed; said alone, all else that is public is. May be said again."""


@frozen(kw_only=True)
class BoxSettings:
    """What an isolated runtime is made of, and what its programs may use."""

    image: Annotated[str | None, Parameter(name=("--image", "--box.image"))] = setting(some)
    """The container's image (docker)."""
    read_only: Annotated[tuple[str, ...] | None, Parameter(negative_iterable="")] = setting()
    """A folder of this machine that programs may read (bubblewrap); may be said again."""
    memory: int | None = setting(at_least(1))
    """Bytes: of one process (bubblewrap), of the container (docker)."""
    processes: int | None = setting(at_least(1))
    """Processes and threads at once."""
    cpu_time: int | None = setting(at_least(1))
    """Seconds of CPU time of one process (bubblewrap)."""
    file_size: int | None = setting(at_least(1))
    """Bytes of one file (bubblewrap)."""
    workspace: int | None = setting(at_least(1))
    """Bytes of all that is written (bubblewrap)."""


@frozen(kw_only=True)
class JudgeSettings:
    """A judge of the run; what belongs to which kind is said in `judges`. Only a file can say so much."""

    kind: str | None = setting(some)
    """`llm` unless said, `reference`, `rubric`, or `module:Class`."""
    name: str | None = setting(some)
    weight: float | None = setting(finite)
    model: str | None = setting(some)
    """As `--model` names it; the run's own unless said."""
    base_url: str | None = setting(some)
    api_key_var: str | None = setting(some)
    prompt: str | None = setting(some)
    prompt_file: str | None = setting(some)
    """The prompt's file; what is in it is written down as the prompt."""
    choices: Mapping[str, float] | None = setting(accepted_by(Choices.of))
    schema: Mapping[str, JSON] | None = setting(is_json)
    field: str | None = setting(some)
    """The number of the schema that is the score."""
    answer: str | None = setting(some)
    """The task's field that holds the reference answer (`answer`)."""
    criteria: tuple[Criterion, ...] | None = setting(accepted_by(criteria_of))
    """An array of tables with `name`, `text` and `weight`, or a table of texts by their names."""
    structured_output: bool | None = None
    attempts: int | None = setting(at_least(1))
    max_characters: int | None = setting(at_least(1))
    max_concurrent: int | None = setting(at_least(1))
    sampling: SamplingSettings | None = None
    options: Mapping[str, JSON] | None = setting(is_json)
    """What else a `module:Class` is made with, by keyword."""


@frozen(kw_only=True)
class OriginSettings:
    """What else a run went by, for `resume`: nobody says it, `run` writes it down."""

    folder: str | None = setting(some)
    """The current folder, in which relative names of files, programs and modules were found."""
    run: str | None = setting(some)
    """The run's id."""
    endpoint: str | None = setting(some)
    """Where the model was asked, if OPENAI_BASE_URL said it and holds more than is to be written down."""


@frozen(kw_only=True)
class Settings:
    """A run."""

    tasks: Annotated[str | None, Parameter(parse=False)] = setting(some)
    """The JSONL file of tasks; without one, the built-in example."""
    task: Annotated[str | None, Parameter(name="--task", metavar="MODULE:CLASS")] = setting(some)
    """The class of the tasks; the file's columns are its fields."""
    harness: Annotated[str | None, Parameter(name="--harness")] = setting(some)
    """The program around the model: a name (chat), module:Class, or a quoted command line."""
    runtime: Annotated[str | None, Parameter(name="--runtime")] = setting(some)
    """The box that programs run in: local, bubblewrap, docker, podman, or module:Class."""
    name: Annotated[str | None, Parameter(name="--name")] = setting(some)
    """What the run is called; else the name of the tasks' file."""
    num_tasks: Annotated[int | None, Parameter(name=("--num-tasks", "-n", "--num-examples"))] = setting(at_least(1))
    """How many of the tasks, from the first; all of them if not said."""
    rollouts_per_task: Annotated[
        int | None, Parameter(name=("--rollouts-per-task", "-r", "--rollouts-per-example", "--num-rollouts"))
    ] = setting(at_least(1))
    """Rollouts of each task (1)."""
    max_concurrent: Annotated[int | None, Parameter(name=("--max-concurrent", "-c"))] = setting(at_least(1))
    """Rollouts at once, at most (32)."""
    max_active_segments: Annotated[int | None, Parameter(name="--max-active-segments")] = setting(at_least(1))
    """Of these, how many agents run at once; the others wait, and their budgets stand still (no bound)."""
    shuffle: Annotated[bool | None, Parameter(name=("--shuffle", "-s"))] = None
    """Shuffle the tasks before the first are taken."""
    shuffle_seed: Annotated[int | None, Parameter(name="--shuffle-seed")] = None
    """Which shuffle (0)."""
    output_dir: Annotated[str | None, Parameter(name=("--output-dir", "-o"), metavar="DIR")] = setting(some)
    """The run's folder; else outputs/NAME/RUN."""
    fail_on_error: Annotated[bool | None, Parameter(name="--fail-on-error")] = None
    """Exit with 1 if any rollout was not ok."""
    host: Annotated[str | None, Parameter(name="--host")] = setting(some)
    """Where the gateway listens (127.0.0.1)."""
    port: Annotated[int | None, Parameter(name="--port")] = setting(between(0, MAX_PORT))
    """Its port; 0 takes a free one."""
    model: Annotated[ModelSettings | None, Parameter(name="*", group="Model")] = None
    sampling: Annotated[SamplingSettings | None, Parameter(name="*", group="Sampling")] = None
    limits: Annotated[LimitSettings | None, Parameter(name="*", group="Limits")] = None
    timeouts: Annotated[
        TimeoutSettings | None, Parameter(name=("--timeout", "--timeouts"), group="Timeouts, in seconds")
    ] = None
    policy: Annotated[PolicySettings | None, Parameter(name="--policy", group="Policy")] = None
    retry: Annotated[RetrySettings | None, Parameter(name=("--retry", "--retries"), group="Retries")] = None
    network: Annotated[NetworkSettings | None, Parameter(name="--network", group="Isolated runtimes")] = None
    box: Annotated[BoxSettings | None, Parameter(name="--box", group="Isolated runtimes")] = None
    judges: Annotated[tuple[JudgeSettings, ...] | None, Parameter(parse=False)] = None
    """Who grades the rollouts beside the tasks' own judges."""
    origin: Annotated[OriginSettings | None, Parameter(parse=False)] = None


S = TypeVar("S")


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
    merged: dict[str, object] = {}
    for attribute in attrs.fields(type(upper)):  # type: ignore[arg-type]
        above, below = getattr(upper, attribute.name), getattr(lower, attribute.name)
        if attrs.has(type(above)) and attrs.has(type(below)):
            merged[attribute.name] = over(above, below)
        elif isinstance(above, Mapping) and isinstance(below, Mapping):
            merged[attribute.name] = {**below, **above}
        else:
            merged[attribute.name] = below if above is None else above
    return type(upper)(**merged)


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
        limits=RolloutLimits(**said(settings.limits)),
        timeouts=RolloutTimeouts(**said(settings.timeouts)),
        policy=RolloutPolicy(**said(settings.policy)),
        sampling=Sampling(**said(settings.sampling)),
    )


def said(record: attrs.AttrsInstance | None) -> dict[str, Any]:
    """The settings of a record that were said."""
    if record is None:
        return {}
    values = {attribute.name: getattr(record, attribute.name) for attribute in attrs.fields(type(record))}
    return {name: value for name, value in values.items() if value is not None}


def _record_in(hint: Any) -> Any:
    parts = getattr(getattr(hint, "__origin__", hint), "__args__", ())
    return next((part for part in parts if attrs.has(part)), None)
