"""Folding the pieces of a stream into the whole that they say, whatever fields they have. Linear in what came."""

from collections.abc import Mapping
from typing import Any, cast

from rollout_fsm.messages import JSON

WHOLE = frozenset({"id", "type", "role", "name", "object", "format", "signature", "finish_reason", "stop_reason"})
"""Texts that come in one piece, and again, if they come again."""


class _Pieces(list[str]):
    """A text that grows."""


def grow(into: dict[str, Any], more: Mapping[str, JSON]) -> None:
    """Add the fields of a piece: texts and lists grow, objects grow by their fields, all else is replaced; null says
    nothing."""
    for name, value in more.items():
        had = into.get(name)
        match value:
            case None:
                into.setdefault(name, None)
            case str() if name in WHOLE:
                into[name] = had or value
            case str():
                if isinstance(had, _Pieces):
                    had.append(value)
                else:
                    into[name] = _Pieces([value])
            case dict():
                if not isinstance(had, dict):
                    had = into[name] = {}
                grow(had, value)
            case list():
                if type(had) is not list:
                    had = into[name] = []
                _extend(had, value)
            case _:
                into[name] = value


def _extend(into: list[Any], more: list[JSON]) -> None:
    for item in more:
        if not isinstance(item, dict):
            into.append(item)
            continue
        last = into[-1] if into else None
        if not (isinstance(last, dict) and _continues(last, item)):
            last = {}
            into.append(last)
        grow(last, item)


def _continues(earlier: Mapping[str, Any], later: Mapping[str, JSON]) -> bool:
    index = later.get("index")
    return index is not None and index == earlier.get("index") and later.get("type") in (None, earlier.get("type"))


def grown(value: Any) -> JSON:
    """The whole of what grew."""
    match value:
        case _Pieces():
            return "".join(value)
        case dict():
            return {name: grown(inner) for name, inner in value.items()}
        case list():
            return [grown(inner) for inner in value]
    return cast("JSON", value)
