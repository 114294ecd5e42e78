"""Reading JSON that somebody else wrote: what is read can be written again.

Python's reader takes NaN, lets a number overflow into infinity, and nests until the stack ends. A request or an answer
like that would pass through a whole rollout and make its trace impossible to write.
"""

import json
import math
from typing import NoReturn

from rollout_fsm.messages import JSON

MAX_DEPTH = 100
"""How deep foreign JSON may nest; what the engine writes may nest deeper, since it wraps this."""


def parse_json(text: str | bytes | bytearray, *, max_depth: int = MAX_DEPTH) -> JSON:
    """The value. Raises `ValueError` saying what is wrong: no JSON, no finite number, nested too deeply."""
    try:
        value: JSON = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"nested too deeply: more than {max_depth} levels are not read") from None
    _check_depth(value, max_depth)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON has")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is beyond the numbers that can be held")
    return number


def _check_depth(value: JSON, max_depth: int) -> None:
    """Level by level, since a value that is too deep would end the stack of who descends into it."""
    level: list[JSON] = [value]
    for _ in range(max_depth + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"nested too deeply: more than {max_depth} levels are not read")
