"""A scenario from plain data: exact types, no unknown fields, and every fault at once with its path.

What a file says must be what is played. So nothing is coerced, and what could never happen (two hooks of one name, a
phase of a tool server that there is not) is a fault too.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import is_
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen
from cattrs import Converter

from rollout_fsm.exact_json import FormatError, check_fields, exact_converter, require, shown, structured
from rollout_fsm.harness import Harness
from rollout_fsm.limits import RolloutLimits, RolloutPolicy, RolloutTimeouts
from rollout_fsm.machine.exact import Fault
from rollout_fsm.messages import JSON
from rollout_fsm.settings import reserved_conditions
from rollout_fsm.simulation.faults import ModelError, ScriptedError
from rollout_fsm.simulation.scenario import (
    FOREVER,
    Backoff,
    Count,
    Delay,
    EarlyTrigger,
    Hook,
    Name,
    Scenario,
    Triggers,
    Value,
)
from rollout_fsm.simulation.trigger import Phase, Seconds, Trigger, check, named, read_phase
from rollout_fsm.task import Task

READING = "the scenario cannot be read"
_FIELD = re.compile(r"[.\[:]")
"""Where the name of a field ends, in the path of a fault."""
_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@frozen(kw_only=True)
class Case:
    """A file that says what must come of its scenario; the comparison is somebody else's business."""

    about: str = ""
    rules: tuple[str, ...] = ()
    scenario: Scenario
    expect: Mapping[str, JSON] = field(factory=dict)
    expect_order: tuple[str, ...] = ()
    expect_absent: tuple[str, ...] = ()
    expect_count: Mapping[str, int] = field(factory=dict)


def load_scenario(source: "Mapping[str, Any] | str | Path") -> Scenario:
    """A scenario from plain data or from a JSON file: bare, or as the `scenario` of a case.

    Raises `FormatError` with every fault and its path, `OSError` for a file that cannot be read.
    """
    data = parse(Path(source).read_bytes()) if isinstance(source, str | Path) else source
    plain = dict(data) if isinstance(data, Mapping) else data
    try:
        if isinstance(plain, dict) and "scenario" in plain:
            scenario, path = structured(_CONVERTER, plain, Case, READING).scenario, "scenario."
        else:
            scenario, path = structured(_CONVERTER, plain, Scenario, READING), ""
    except FormatError as refused:
        raise FormatError(READING, [*refused.faults, *_further(plain, refused.faults)]) from None
    if faults := [*_taken_names(scenario), *_contradictions(scenario)]:
        raise FormatError(READING, [f"{path}{fault}" for fault in faults])
    return _without_shorthands(scenario)


def _further(data: object, found: Sequence[str]) -> list[str]:
    """The names that are taken, of a scenario that has other faults: read without the fields in which those are."""
    inside = isinstance(data, dict) and isinstance(data.get("scenario"), dict)
    path = "scenario." if inside else ""
    fields = data["scenario"] if isinstance(data, dict) and inside else data
    if not isinstance(fields, dict):
        return []
    wrong = {_FIELD.split(fault.removeprefix(path), maxsplit=1)[0] for fault in found}
    rest = {name: value for name, value in fields.items() if name not in wrong}
    return [f"{path}{fault}" for fault in _taken_names(structured(_CONVERTER, rest, Scenario, READING))]


def parse(text: bytes | str) -> Any:
    """The JSON in a file. Raises `FormatError`; a key that is given twice is a fault."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except Fault as fault:
        raise FormatError(READING, [str(fault)]) from None
    except RecursionError:
        raise FormatError(READING, ["it is nested too deeply"]) from None
    except ValueError as error:
        raise FormatError(READING, [f"it is not JSON: {error}"]) from None


def _once(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise Fault(f"{', '.join(map(repr, twice))} given twice in one object")
    return made


def _no_constant(word: str) -> JSON:
    raise Fault(f'{word} is no number of JSON; a signal that returns it is written with "{word.lower()}"')


# ---- what a file may not say


def _contradictions(scenario: Scenario) -> Iterator[str]:
    for short, hook, path in _SHORTHANDS:
        if getattr(scenario, short) is not None and hook(scenario).error is not None:
            yield f"{short}: {path}.error is given too, and both mean the same"
    for place, intercept in enumerate(scenario.intercepts):
        if intercept.boundary == "response" and intercept.action in ("add_message", "rewrite_history"):
            yield f"intercepts[{place}].action: {intercept.action!r} is for requests; a response has one message"
    yield from _retrying(scenario)
    for path, trigger in _triggers(scenario):
        yield from (f"{path}: {fault}" for fault in _unknown_name(scenario, trigger))


def _retrying(scenario: Scenario) -> Iterator[str]:
    """What a policy is, and what does not go with one."""
    if scenario.retry is None:
        if scenario.attempts:
            yield "attempts: there is no `retry`, so there is one attempt"
        return
    try:
        scenario.retry.policy()
    except (TypeError, ValueError) as refused:
        yield f"retry: {refused}"
    usual = Scenario()
    for name in _BY_HAND:
        if getattr(scenario, name) != getattr(usual, name):
            yield f"{name}: with `retry` the engine drives, and nobody else has the rollout"
    segments = [
        each for script in (scenario.segments, *(each.segments for each in scenario.attempts)) for each in script or ()
    ]
    if any(segment.user_message is not None for segment in segments):
        yield "segments: with `retry` the engine drives, and nobody says a `user_message`"


_BY_HAND = (
    "mode", "owner_stops_runtime_at", "caller_stop", "other_calls", "fail_between_segments", "between_segments",
    "manual",
)  # fmt: skip
"""What drives a rollout otherwise than `engine.run` does."""


def _taken_names(scenario: Scenario) -> Iterator[str]:
    """A hook is a method: it needs a name that no other has, and that means nothing to the class."""
    taken: dict[str, str] = {}
    for kind in ("stops", "intercepts", "rewards", "metrics"):
        for place, hook in enumerate(getattr(scenario, kind)):
            path = f"{kind}[{place}].name"
            if kind == "stops" and hook.name in reserved_conditions():
                yield f"{path}: {hook.name!r} is a stop condition of the engine's own; choose another name (L31)"
            elif hasattr(Task, hook.name):
                yield f"{path}: {hook.name!r} means something else to a task; choose another name"
            elif hook.name in taken:
                yield f"{path}: {hook.name!r} is the name of {taken[hook.name]} too; a task has one hook of a name"
            taken.setdefault(hook.name, f"{kind}[{place}]")
    for place, metric in enumerate(scenario.harness_metrics):
        path, before = f"harness_metrics[{place}].name", scenario.harness_metrics[:place]
        if hasattr(Harness, metric.name):
            yield f"{path}: {metric.name!r} means something else to a harness; choose another name"
        elif any(metric.name == other.name for other in before):
            yield f"{path}: {metric.name!r} is there twice; a harness has one metric of a name"


def _triggers(scenario: Scenario) -> Iterator[tuple[str, Trigger]]:
    if scenario.owner_stops_runtime_at is not None:
        yield "owner_stops_runtime_at", scenario.owner_stops_runtime_at
    if scenario.caller_stop is not None:
        yield "caller_stop.at", scenario.caller_stop.at
    for place, trigger in enumerate(scenario.cancel_at):
        yield f"cancel_at[{place}]", trigger
    for place, call in enumerate(scenario.other_calls):
        yield f"other_calls[{place}].at", call.at


def _unknown_name(scenario: Scenario, trigger: Trigger) -> Iterator[str]:
    if (meant := named(trigger)) is None:
        return
    kind, name = meant
    tools = {tool.name for tool in scenario.tools}
    signals = {signal.name for signal in (*scenario.rewards, *scenario.metrics, *scenario.harness_metrics)}
    known = signals if kind == "score" else tools
    if name not in known:
        noun = "signal" if kind == "score" else "tool server"
        yield f"the phase {trigger.phase!r} means a {noun} {name!r} that the scenario does not have"


_SHORTHANDS: tuple[tuple[str, Callable[[Scenario], Hook], str], ...] = (
    ("close_error", lambda scenario: scenario.session_close, "session_close"),
    ("cleanup_error", lambda scenario: scenario.cleanup, "cleanup"),
    ("runtime_stop_error", lambda scenario: scenario.runtime.stop, "runtime.stop"),
)


def _without_shorthands(scenario: Scenario) -> Scenario:
    if scenario.close_error is not None:
        hook = evolve(scenario.session_close, error=scenario.close_error)
        scenario = evolve(scenario, session_close=hook, close_error=None)
    if scenario.cleanup_error is not None:
        hook = evolve(scenario.cleanup, error=scenario.cleanup_error)
        scenario = evolve(scenario, cleanup=hook, cleanup_error=None)
    if scenario.runtime_stop_error is not None:
        hook = evolve(scenario.runtime.stop, error=scenario.runtime_stop_error)
        runtime = evolve(scenario.runtime, stop=hook)
        scenario = evolve(scenario, runtime=runtime, runtime_stop_error=None)
    return scenario


# ---- single values


def _seconds(value: object, _: object = None) -> float:
    if type(value) not in (int, float):
        raise Fault(f"expected a number of seconds, not {shown(value)}")
    number = float(value)  # type: ignore[arg-type]
    if not 0 <= number < math.inf:
        raise Fault(f"expected a number of seconds of at least 0, not {shown(value)}")
    return number


def _delay(value: object, _: object) -> float:
    if value == "forever":
        return FOREVER
    if isinstance(value, str):
        raise Fault(f"expected a number of seconds or 'forever', not {shown(value)}")
    return _seconds(value)


def _backoff(value: object, _: object) -> Backoff:
    if not isinstance(value, list):
        return Backoff((_seconds(value),), exact=False)
    if not value:
        raise Fault("expected a number of seconds or an array of them, not an empty one")
    return Backoff(tuple(_seconds(each) for each in value), exact=True)


def _count(value: object, _: object) -> int:
    number: int = require(value, int)
    if number < 0:
        raise Fault(f"expected a whole number of at least 0, not {number}")
    return number


def _name(value: object, _: object) -> str:
    name: str = require(value, str)
    if not name:
        raise Fault("expected a name, not an empty string")
    return name


def _value(value: object, _: object) -> Value:
    if isinstance(value, str):
        return Value(_NUMBERS.get(value, value))
    if type(value) is dict:
        return Value({name: _number(number, f"{name!r}: ") for name, number in value.items()})
    return Value(_number(value, ""))


def _number(value: object, where: str) -> float:
    if type(value) not in (int, float):
        raise Fault(f"{where}expected a number, an object of numbers or a string, not {shown(value)}")
    return value  # type: ignore[return-value]


def _converter() -> Converter:
    converter = exact_converter(forbid_extra_keys=True)
    for record in (RolloutLimits, RolloutPolicy, RolloutTimeouts):
        check_fields(converter, record)

    def trigger(value: object, _: object) -> Trigger:
        return check(read_trigger(value, Trigger), early=False)

    def early_trigger(value: object, _: object) -> Trigger:
        return check(read_trigger(value, Trigger), early=True)

    def triggers(value: object, _: object) -> tuple[Trigger, ...]:
        if isinstance(value, list):
            several: tuple[Trigger, ...] = converter.structure(value, tuple[Trigger, ...])
            return several
        return (trigger(value, Trigger),)

    def phase(value: object, _: object) -> Phase:
        return read_phase(require(value, str))

    hooks: Mapping[object, Callable[[Any, Any], object]] = {
        Seconds: _seconds,
        Delay: _delay,
        Count: _count,
        Name: _name,
        Backoff: _backoff,
        Phase: phase,
        Value: _value,
        ScriptedError: lambda value, _: ScriptedError.read(require(value, str)),
        ModelError: lambda value, _: ModelError.read(require(value, str)),
    }
    for type_, hook in hooks.items():
        converter.register_structure_hook_func(partial(is_, type_), hook)
    read_trigger = converter.get_structure_hook(Trigger)  # with the hooks of the values that are in one
    for type_, hook in ((Trigger, trigger), (EarlyTrigger, early_trigger), (Triggers, triggers)):
        converter.register_structure_hook_func(partial(is_, type_), hook)
    return converter


_CONVERTER = _converter()
