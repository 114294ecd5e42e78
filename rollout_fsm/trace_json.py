"""A trace as one line of JSON, and back: the field names of the verifiers trace schema, version 1, and some more (L84).

A trace that was written loads back equal, but for `state`, which is never written. What a file says beyond the schema
is kept in `Trace.unknown` and written back in its place. Aggregates are not stored: they are those of the nodes and
calls. Null fields are left out, except the placeholders of rewards and metrics: "expected, not measured".
"""

import json
from collections.abc import Callable
from typing import Any

from attrs import fields
from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from rollout_fsm.exact_json import (
    FormatError,
    beyond,
    exact_converter,
    is_a,
    plain,
    plain_with_faults,
    require,
    structured,
    with_beyond,
)
from rollout_fsm.machine.exact import Fault
from rollout_fsm.message_json import register_messages
from rollout_fsm.messages import JSON, Sampling
from rollout_fsm.strict_json import parse_json
from rollout_fsm.trace import Trace
from rollout_fsm.unwritten_state import UnwrittenState

__all__ = ["FormatError", "trace_from_json", "trace_to_json", "trace_to_json_leaving_out"]

READING = "the trace cannot be read"
WRITING = "the trace cannot be written as JSON"
DEEPEST = 400
"""How many levels of nesting are read: more than are ever written."""
EXTRA = "extra"
"""Where the settings of a sampling stand whose names are taken."""


def trace_to_json(trace: Trace) -> str:
    """The trace as one line of ASCII without a line feed.

    Raises `FormatError`, with every path, for what JSON cannot carry: a NaN in `info`, say. A tuple is written as an
    array, and a high surrogate before a low one as the character that they spell.
    """
    return json.dumps(_to_plain(trace), allow_nan=False, separators=(",", ":"))


def trace_from_json(line: str | bytes) -> Trace:
    """The trace that a line says; sealed if its rollout is over. Its `state` is not known: reading it raises
    `StateNotWrittenError`.

    Raises `FormatError` with every fault and its path; fields that the schema does not have are no faults.
    """
    data = _parsed(line)
    trace = structured(_CONVERTER, data, Trace, READING)
    trace.unknown = beyond(data, _to_plain(trace))
    if trace.is_completed:
        trace.seal()
    return trace


def trace_to_json_leaving_out(trace: Trace) -> tuple[str, tuple[str, ...]]:
    """The trace as `trace_to_json` has it, where need be with null for whatever JSON cannot carry, and the paths of
    that; none where nothing was left out.

    For a trace that would be lost otherwise. Raises `FormatError` if what is left is no trace.
    """
    try:
        return trace_to_json(trace), ()
    except FormatError:
        return _leaving_out(trace)


def _leaving_out(trace: Trace) -> tuple[str, tuple[str, ...]]:
    made, faults = plain_with_faults(_CONVERTER.unstructure(trace))
    with_beyond(made, trace.unknown)
    line = json.dumps(made, allow_nan=False, separators=(",", ":"))
    trace_from_json(line)
    return line, faults


def _to_plain(trace: Trace) -> JSON:
    made = plain(_CONVERTER.unstructure(trace), WRITING)
    with_beyond(made, trace.unknown)
    return made


def _parsed(line: str | bytes) -> JSON:
    try:
        return parse_json(line, max_depth=DEEPEST)
    except ValueError as error:  # also what is no UTF-8
        raise FormatError(READING, [f"it is not JSON: {error}"]) from None


_SETTINGS = frozenset(attribute.name for attribute in fields(Sampling)) - {EXTRA}


def _read_sampling(_: object, converter: Converter) -> Callable[[object, object], Sampling]:
    inner = make_dict_structure_fn(Sampling, converter)

    def structure_sampling(value: object, type_: Any) -> Sampling:
        data: dict[str, JSON] = require(value, dict)
        extra = {key: item for key, item in data.items() if key not in _SETTINGS}
        if isinstance(taken := extra.get(EXTRA), dict):
            del extra[EXTRA]
            extra.update(taken)
        return inner({**{key: item for key, item in data.items() if key in _SETTINGS}, EXTRA: extra}, type_)

    return structure_sampling


def _sampling_to_json(_: object, converter: Converter) -> Callable[[Sampling], dict[str, object]]:
    settings = make_dict_unstructure_fn(Sampling, converter, extra=override(omit=True))

    def unstructure_sampling(sampling: Sampling) -> dict[str, object]:
        made: dict[str, object] = {name: value for name, value in settings(sampling).items() if value is not None}
        taken: dict[str, object] = {}
        for key, value in sampling.extra.items():
            (taken if key in _SETTINGS or key == EXTRA else made)[key] = value
        return {**made, EXTRA: taken} if taken else made

    return unstructure_sampling


def _read_trace(_: object, converter: Converter) -> Callable[[object, object], Trace]:
    unwritten = override(struct_hook=lambda _value, _type: UnwrittenState())
    inner = make_dict_structure_fn(Trace, converter, state=unwritten, unknown=override(omit=True))

    def structure_trace(value: object, type_: Any) -> Trace:
        data: dict[str, JSON] = require(value, dict)
        if (version := data.get("version", Trace.version)) != Trace.version:
            raise Fault(f"its schema is version {version!r}; this program reads version {Trace.version}")
        return inner({**data, "state": None}, type_)

    return structure_trace


def _trace_to_json(_: object, converter: Converter) -> Callable[[Trace], dict[str, object]]:
    inner = make_dict_unstructure_fn(Trace, converter, state=override(omit=True), unknown=override(omit=True))

    def unstructure_trace(trace: Trace) -> dict[str, object]:
        made = {name: value for name, value in inner(trace).items() if value is not None}
        return {"version": Trace.version, **made}

    return unstructure_trace


_CONVERTER = exact_converter(forbid_extra_keys=False)
register_messages(_CONVERTER)
_CONVERTER.register_structure_hook_factory(is_a(Sampling), _read_sampling)
_CONVERTER.register_unstructure_hook_factory(is_a(Sampling), _sampling_to_json)
_CONVERTER.register_structure_hook_factory(is_a(Trace), _read_trace)
_CONVERTER.register_unstructure_hook_factory(is_a(Trace), _trace_to_json)
