"""Plain data into records, exactly: no coercion, no unknown keys, and every fault at once with its path.

cattrs does the structuring and gathers the faults; this module gives it hooks that refuse instead of converting (it
would turn 7 into "7" otherwise) and puts its nested exceptions into lines such as `on[2].to: no state 'stoped'; did you
mean 'stopped'?`. It knows nothing of states: which words a field may use is told by whoever makes the converter.
"""

from collections.abc import Callable, Collection, Iterator
from difflib import get_close_matches
from typing import Any, TypeVar

import attrs
from cattrs import Converter, ForbiddenExtraKeysError
from cattrs.errors import AttributeValidationNote, BaseValidationError, IterableValidationNote

T = TypeVar("T")

_NAMES = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "an array",
    dict: "a table",
}


class Fault(Exception):  # noqa: N818  (an entry of a list, not an event of its own)
    """What is wrong with one value. It reaches nobody: `structure` turns it into a line with a path."""


def make_converter() -> Converter:
    """A converter that takes a string for a string and an array for a tuple, and nothing else for either."""
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    for exact in (str, bool, int):
        converter.register_structure_hook(exact, _exactly(exact))
    return converter


def allow(converter: Converter, type_: object, noun: str, words: Collection[str]) -> None:
    """Make the converter take exactly these words for fields annotated `type_`; `noun` is what a refusal calls them."""

    def structure_word(value: object, _: object) -> str:
        word: str = _exactly(str)(value, str)
        if word not in words:
            raise Fault(f"no {noun} {word!r}{suggestion(word, words)}")
        return word

    converter.register_structure_hook_func(lambda candidate: candidate == type_, structure_word)


def structure(converter: Converter, data: object, record: type[T]) -> T | list[str]:
    """The record, or the faults that `data` has, each as `path: what is wrong` (no path for `data` itself)."""
    try:
        return converter.structure(data, record)
    except BaseValidationError as error:
        return [f"{path}: {text}" if path else text for path, text in _faults(error, "")]


def suggestion(word: str, words: Collection[str]) -> str:
    """What to write instead: the nearest of the allowed words, or all of them where none is near."""
    near = get_close_matches(word, words, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(words)}"


def _exactly(exact: type) -> Callable[[object, object], Any]:
    def structure_exactly(value: object, _: object) -> object:
        if type(value) is not exact:
            raise Fault(f"expected {_NAMES[exact]}, not {_shown(value)}")
        return value

    return structure_exactly


def array_of(converter: Converter, item: type[T], of: str = "tables") -> None:
    """Make the converter take an array for `tuple[item, ...]`; cattrs would also take a string apart."""

    def structure_array(value: object, _: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise Fault(f"expected an array of {of}, not {_shown(value)}")
        items: list[T] = converter.structure(value, list[item])  # type: ignore[valid-type]
        return tuple(items)

    converter.register_structure_hook_func(lambda candidate: candidate == tuple[item, ...], structure_array)  # type: ignore[valid-type]


def table_of(converter: Converter, record: type[T]) -> None:
    """Make the converter take a table, and nothing that merely can be indexed, for `record`."""
    inner = converter.get_structure_hook(record)

    def structure_table(value: object, type_: object) -> T:
        if not isinstance(value, dict):
            raise Fault(f"expected a table, not {_shown(value)}")
        built: T = inner(value, type_)
        return built

    converter.register_structure_hook(record, structure_table)


def _shown(value: object) -> str:
    text = repr(value)
    if len(text) > 60:
        text = f"{text[:57]}..."
    return f"{text} ({_NAMES.get(type(value), type(value).__name__)})"


def _faults(error: BaseException, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(error, ForbiddenExtraKeysError):
        known = [attribute.name for attribute in attrs.fields(error.cl)]
        for key in sorted(error.extra_fields):
            yield _join(path, key), f"unknown key{suggestion(key, known)}"
    elif isinstance(error, BaseValidationError):
        for inner in error.exceptions:
            yield from _faults(inner, _step(path, inner))
    elif isinstance(error, KeyError):
        yield path, "missing"
    else:
        yield path, str(error)


def _step(path: str, error: BaseException) -> str:
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return _join(path, note.name)
        if isinstance(note, IterableValidationNote):
            return f"{path}[{note.index}]"
    return path


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
