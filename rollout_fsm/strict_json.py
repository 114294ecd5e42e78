"""JSON that somebody else wrote or reads: what is read can be written again, and what is written is what was held.

Python's reader takes NaN, lets a number overflow into infinity, and nests until the stack ends. A request or an answer
like that would pass through a whole rollout and make its trace impossible to write.

`msgspec` does nearly all of it, many times faster than the standard library: what it reads it reads as that does, whole
numbers of any length among them. What it will not read or write is left to the standard library, whose word counts.
"""

import json
import math
from collections.abc import Mapping
from typing import NoReturn, TypeAlias

import msgspec

from rollout_fsm.messages import JSON

Writable: TypeAlias = "JSON | Mapping[str, JSON]"

MAX_DEPTH = 100
"""How deep foreign JSON may nest; what the engine writes may nest deeper, since it wraps this."""

_NESTING = (dict, list)

_NOT_OURS = (UnicodeError, RecursionError, TypeError)
"""What `msgspec` says of lone surrogates, of what nests too deeply for it, and of text and numbers of classes of their
own."""

_read = msgspec.json.Decoder().decode
_write = msgspec.json.Encoder().encode


def parse_json(text: str | bytes | bytearray, *, max_depth: int = MAX_DEPTH) -> JSON:
    """The value. Raises `ValueError` saying what is wrong: no JSON, no finite number, nested too deeply."""
    value: JSON
    try:
        value = _read(text)
    except (msgspec.DecodeError, *_NOT_OURS):  # other encodings, too, and what is no JSON
        try:
            value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        except RecursionError:
            raise ValueError(f"nested too deeply: more than {max_depth} levels are not read") from None
    if _openings(text) > max_depth:
        _check_depth(value, max_depth)
    return value


def json_bytes(value: Writable) -> bytes:
    """The value as compact JSON in UTF-8; a text that UTF-8 cannot hold, with a lone surrogate, is escaped. What JSON
    does not have, NaN say, is written as the standard library writes it."""
    written = _written(value)
    # NaN and the infinities are null for the one, and something that no reader takes for the other
    return written if b"null" not in written or _all_finite(value) else _by_the_library(value)


def ascii_json_bytes(value: Writable) -> bytes:
    """The value, of finite numbers, as compact JSON in ASCII, which every reader of lines takes apart alike."""
    written = _written(value)
    return written if written.isascii() else _by_the_library(value)


def _written(value: Writable) -> bytes:
    try:
        return _write(value)
    except _NOT_OURS:
        return _by_the_library(value)


def _by_the_library(value: Writable) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _all_finite(value: Writable) -> bool:
    if isinstance(value, dict):
        return all(map(_all_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_all_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON has")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is beyond the numbers that can be held")
    return number


def _openings(text: str | bytes | bytearray) -> int:
    """No value nests deeper than it has opening brackets."""
    if isinstance(text, str):
        return text.count("[") + text.count("{")
    return text.count(b"[") + text.count(b"{")


def _check_depth(value: JSON, max_depth: int) -> None:
    """Level by level, since a value that is too deep would end the stack of who descends into it."""
    level = [value] if isinstance(value, _NESTING) else []
    for _ in range(max_depth + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, _NESTING)
        ]
        if not level:
            return
    raise ValueError(f"nested too deeply: more than {max_depth} levels are not read")
