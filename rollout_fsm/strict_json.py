"""JSON that somebody else wrote or reads: what is read can be written again, and what is written is what was held.

Python's reader takes NaN, lets a number overflow into infinity, and nests until the stack ends. A request or an answer
like that would pass through a whole rollout and make its trace impossible to write.

`msgspec` does nearly all of it, many times faster than the standard library: what it reads it reads as that does, whole
numbers of any length among them. What it will not read is left to the standard library, whose word counts, and so is
the writing of all that is not made of JSON's own types alone: what an embedder's code has put there may be a number of
numpy's, or bytes, which `msgspec` would write without a word.
"""

import json
from collections.abc import Mapping
from gc import get_referents
from math import isfinite
from typing import NoReturn, TypeAlias

import msgspec

from rollout_fsm.messages import JSON

Writable: TypeAlias = "JSON | Mapping[str, JSON]"

MAX_DEPTH = 100
"""How deep foreign JSON may nest; what the engine writes may nest deeper, since it wraps this."""

_NESTING = (dict, list)
_PLAIN = frozenset((dict, list, tuple, str, int, float, bool, type(None)))

_read = msgspec.json.Decoder().decode
_write = msgspec.json.Encoder().encode


def parse_json(text: str | bytes | bytearray, *, max_depth: int = MAX_DEPTH) -> JSON:
    """The value. Raises `ValueError` saying what is wrong: no JSON, no finite number, nested too deeply."""
    value: JSON
    try:
        value = _read(text)
    except (msgspec.DecodeError, UnicodeError, TypeError, RecursionError):  # other encodings and texts, or no JSON
        try:
            value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        except RecursionError:
            raise ValueError(f"nested too deeply: more than {max_depth} levels are not read") from None
    if _openings(text) > max_depth:
        _check_depth(value, max_depth)
    return value


def json_bytes(value: Writable) -> bytes:
    """The value as compact JSON in UTF-8; a text that UTF-8 cannot hold, with a lone surrogate, is escaped.

    What is no JSON comes out as from `json.dumps`: a subclass as what it is one of, NaN as a word, and for the rest the
    same errors.
    """
    try:
        written = _write(value)
    except (TypeError, ValueError, RecursionError):  # no JSON, lone surrogates, or what holds itself
        written = None
    return _by_the_library(value) if written is None or not _is_plain(value) else written


def ascii_json_bytes(value: Writable) -> bytes:
    """As `json_bytes`, in ASCII, which every reader of lines takes apart alike."""
    written = json_bytes(value)
    return written if written.isascii() else _by_the_library(value)


def _is_plain(value: Writable) -> bool:
    """Whether a value that does not hold itself is made of JSON's own types and of finite numbers alone.

    Level by level, and each of them by a few calls into C: what the containers of a level refer to is what they hold.
    """
    level: list[object] = [value]
    while level:
        kinds = set(map(type, level))
        if not kinds <= _PLAIN or (float in kinds and not all(isfinite(one) for one in level if type(one) is float)):
            return False
        level = get_referents(*level)
    return True


def _by_the_library(value: Writable) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON has")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
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
