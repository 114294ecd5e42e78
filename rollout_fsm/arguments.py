"""The arguments of a tool call, as the text that a model wrote and as the object that the text spells. Pure.

Some APIs carry the text, others the object, and a harness that re-sends a conversation may spell the object anew: keys
in another order, other spaces, 1 for 1.0. `canonical` says which texts are the same call (L82). A text that spells no
object goes into one whole, and comes out of it whole.
"""

import json
from collections.abc import Mapping
from typing import Any

UNREAD = "__unread_arguments__"
"""The one key of the object that carries a text which spells no object."""


def as_object(text: str) -> dict[str, Any]:
    """The object that the arguments spell; no text is an object without keys."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return {UNREAD: text}
    return value if isinstance(value, dict) else {UNREAD: text}


def as_text(given: Mapping[str, Any]) -> str:
    """The text of arguments that came as an object."""
    unread = given.get(UNREAD)
    if isinstance(unread, str) and len(given) == 1:
        return unread
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def canonical(text: str) -> str:
    """One spelling for all texts that are the same call."""
    try:
        value = json.loads(text or "{}", parse_constant=_refuse, parse_float=_number, parse_int=_number)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        value = {UNREAD: text} if text.strip() else {}
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number that JSON has")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"{text} is beyond the numbers that can be held")
    return number


def _number(text: str) -> float | int:
    """As a reader has it that knows floats only, as JavaScript does: 1.0 is 1, and an id of 20 digits is rounded."""
    number = _finite(text)
    return int(number) if number.is_integer() else number
