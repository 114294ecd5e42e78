"""JSON into records and back, exactly: what is read is never coerced, what is written is JSON and nothing else.

cattrs does the structuring. This module gives it hooks that refuse instead of converting, adds the two passes that
cattrs does not have (values that JSON cannot carry, fields that a reader does not know), and reports every fault at
once, with its path. It knows no record of the engine by name.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Any, ForwardRef, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

import attrs
from cattrs import Converter
from cattrs.cols import is_any_set, is_mapping, is_sequence
from cattrs.errors import IterableValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, mapping_structure_factory, override
from cattrs.strategies import configure_union_passthrough

from rollout_fsm.machine.exact import Fault, structure
from rollout_fsm.messages import JSON

T = TypeVar("T")

MAX_DEPTH = 200
"""How deep the values that are written may nest: well within what every reader of JSON can take."""

_NAMES: Mapping[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
_FREE = (JSON, ForwardRef(str(JSON)))
_ITS_OWN = frozenset((str, bool, int, type(None)))
"""What is JSON as it is."""
_SHOWN = 60
_BITS = 1_000
"""Of a whole number that still has a float near it."""


class FormatError(ValueError):
    """Data that does not fit its record, or a record that does not fit JSON. `faults` has every fault with its path."""

    def __init__(self, doing: str, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__(f"{doing}: {'; '.join(self.faults)}")


def exact_converter(*, forbid_extra_keys: bool) -> Converter:
    """A converter that takes a string for a string, and nothing else for it; a whole number does for a float."""
    converter = Converter(forbid_extra_keys=forbid_extra_keys, detailed_validation=True)
    configure_union_passthrough(str | int | float | bool | None, converter)
    for exact in (str, bool, int):
        converter.register_structure_hook(exact, _exactly(exact))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_factory(_is_literal, _literal)
    converter.register_structure_hook_factory(_is_array, _array)
    converter.register_structure_hook_factory(is_mapping, _object)
    converter.register_structure_hook_factory(attrs.has, _record)
    converter.register_structure_hook_func(_is_free, lambda value, _: value)
    converter.register_unstructure_hook_factory(attrs.has, _without_nulls)
    converter.register_unstructure_hook_func(_is_free_object, lambda value: value)
    converter.register_unstructure_hook_func(_is_free, lambda value: value)
    return converter


def is_a(*kinds: type) -> Callable[[object], bool]:
    """For the hooks of a converter: whether a type is one of these or a subclass of one."""
    return lambda type_: isinstance(type_, type) and issubclass(type_, kinds)


def structured(converter: Converter, data: object, record: type[T], doing: str) -> T:
    """The record that the data says. Raises `FormatError`: "`doing`: …", with every fault."""
    try:
        built = structure(converter, [data], list[record])  # type: ignore[valid-type]
    except RecursionError:
        raise FormatError(doing, ["it is nested too deeply"]) from None
    if isinstance(built, list) and built and isinstance(built[0], record):
        return built[0]
    raise FormatError(doing, [str(fault).removeprefix("[0]").removeprefix(".").removeprefix(": ") for fault in built])


def require(value: object, exact: type, what: str | None = None) -> Any:
    """The value, if it is of exactly this type. Raises `Fault`, which a converter gives its path."""
    if type(value) is not exact:
        raise Fault(f"expected {what or _NAMES[exact]}, not {shown(value)}")
    return value


def shown(value: object) -> str:
    """A value as a fault shows it: cut, and with the kind of thing that it is."""
    if isinstance(value, dict | list):
        return _NAMES[type(value)]
    text = repr(value)
    text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    return text if value is None else f"{text} ({_NAMES.get(type(value), type(value).__name__)})"


def plain(value: object, doing: str) -> JSON:
    """The value in JSON's own types: mappings as objects, tuples as arrays, sets as arrays in a fixed order.

    Raises `FormatError` for what JSON cannot carry: NaN and infinities, other objects, keys that are no strings, and
    values nested deeper than `MAX_DEPTH`.
    """
    made, faults = plain_with_faults(value)
    if faults:
        raise FormatError(doing, faults)
    return made


def plain_with_faults(value: object) -> tuple[JSON, tuple[str, ...]]:
    """The value in JSON's own types, with null for what JSON cannot carry, and every fault with its path."""
    faults: list[str] = []
    made = _plain(value, None, 0, faults)
    return made, tuple(faults)


def beyond(given: JSON, known: JSON) -> dict[tuple[str, ...], JSON]:
    """The fields of `given` that `known`, the same value after reading and writing, does not have, by their paths.

    A position of an array is spelled as text. Nulls are no fields.
    """
    found: dict[tuple[str, ...], JSON] = {}
    for key, value in _items(given):
        if isinstance(known, dict) and key not in known:
            if value is not None:
                found[key,] = value
        elif isinstance(value, dict | list) and type(here := _step(known, key)) is type(value):
            found.update({(key, *path): field for path, field in beyond(value, here).items()})
    return found


def with_beyond(known: JSON, fields: Mapping[tuple[str, ...], JSON]) -> None:
    """Put the fields that `beyond` found back into the value, in place.

    What the value says itself stands, and a field whose record is gone is gone with it.
    """
    for (*path, name), value in fields.items():
        here = known
        for key in path:
            here = _step(here, key)
        if isinstance(here, dict):
            here.setdefault(name, value)


def _items(value: JSON) -> Iterable[tuple[str, JSON]]:
    if isinstance(value, dict):
        return value.items()
    return ((str(place), item) for place, item in enumerate(value)) if isinstance(value, list) else ()


def _step(value: JSON, key: str) -> JSON:
    if isinstance(value, dict):
        return value.get(key)
    return value[int(key)] if isinstance(value, list) and int(key) < len(value) else None


_Path: TypeAlias = "tuple[_Path | None, str | int]"
"""Where a value is: in which one, and under which key or at which place. It is spelled only for a fault."""


def _plain(value: object, path: "_Path | None", depth: int, faults: list[str]) -> JSON:
    if value is None or isinstance(value, str | int):
        return value
    if depth > MAX_DEPTH:
        faults.append(f"{_where(path)}: nested deeper than {MAX_DEPTH} levels")
    elif isinstance(value, float):
        if math.isfinite(value):
            return value
        faults.append(f"{_where(path)}: {value!r} is not a number that JSON has")
    elif isinstance(value, dict | Mapping):  # nearly always a dict, which is told at once
        made: dict[str, JSON] = {}
        for key, item in value.items():
            if isinstance(key, str):
                made[key] = item if type(item) in _ITS_OWN else _plain(item, (path, key), depth + 1, faults)
            else:
                faults.append(f"{_where(path)}: the key {shown(key)} is not a string")
        return made
    elif isinstance(value, list | tuple):
        return [_plain(item, (path, place), depth + 1, faults) for place, item in enumerate(value)]
    elif isinstance(value, set | frozenset):
        return [_plain(item, path, depth + 1, faults) for item in sorted(value, key=repr)]
    else:
        faults.append(f"{_where(path)}: {shown(value)} is not JSON")
    return None


def _where(path: "_Path | None") -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".") or "it"


def _exactly(exact: type) -> Callable[[object, object], object]:
    return lambda value, _: require(value, exact)


def _number(value: object, _: object) -> float:
    if type(value) is int:
        if value.bit_length() > _BITS:
            raise Fault("expected a number that a float can hold, not one of more than 300 digits")
        return value
    number: float = require(value, float)
    if not math.isfinite(number):
        raise Fault(f"expected a finite number, not {number!r}")
    return number


def _is_free(type_: Any) -> bool:
    """Whether the annotation is `JSON`: as the text that it is, or as what resolving that text makes of it."""
    if isinstance(type_, str | ForwardRef):
        return type_ in _FREE
    return get_origin(type_) in (Union, UnionType) and any(
        part in _FREE for member in get_args(type_) for part in get_args(member)
    )


def _is_free_object(type_: Any) -> bool:
    return is_mapping(type_) and len(get_args(type_)) == 2 and _is_free(get_args(type_)[1])


def _is_literal(type_: Any) -> bool:
    return get_origin(type_) is Literal


def _literal(type_: Any, converter: Converter) -> Callable[[object, object], object]:
    words = get_args(type_)

    def structure_literal(value: object, _: object) -> object:
        if not any(type(word) is type(value) and word == value for word in words):
            raise Fault(f"expected {' or '.join(map(repr, words))}, not {shown(value)}")
        return value

    return structure_literal


def _is_array(type_: object) -> bool:
    return is_sequence(type_) or is_any_set(type_) or type_ is tuple or get_origin(type_) is tuple


def _array(type_: Any, converter: Converter) -> Callable[[object, object], object]:
    origin = get_origin(type_) or type_
    of = get_args(type_) or (Any, ...)
    fixed = origin is tuple and of[-1] is not ...
    hooks = [converter.get_structure_hook(item) for item in (of if fixed else of[:1])]
    made = origin if origin in (list, set, frozenset) else frozenset if is_any_set(type_) else tuple

    def structure_array(value: object, _: object) -> object:
        given: list[object] = require(value, list)
        if fixed and len(given) != len(of):
            raise Fault(f"expected an array of {len(of)}, not of {len(given)}")
        items: list[object] = []
        faults: list[Exception] = []
        for place, item in enumerate(given):
            which = place if fixed else 0
            try:
                items.append(hooks[which](item, of[which]))
            except Exception as fault:  # noqa: BLE001  (a hook's refusal, whatever its type: it goes into the group)
                fault.__notes__ = [*getattr(fault, "__notes__", ()), IterableValidationNote("", place, of[which])]
                faults.append(fault)
        if faults:
            raise IterableValidationError("an array", faults, type_)
        return made(items)

    return structure_array


def _object(type_: Any, converter: Converter) -> Callable[[object, object], object]:
    inner = mapping_structure_factory(type_, converter)
    return lambda value, _: inner(require(value, dict), type_)


def _record(type_: Any, converter: Converter) -> Callable[[object, object], object]:
    inner = make_dict_structure_fn(type_, converter, _cattrs_forbid_extra_keys=converter.forbid_extra_keys)
    return lambda value, _: inner(require(value, dict), type_)


def check_fields(converter: Converter, record: type) -> None:
    """Have what the record's validators refuse told field by field, all at once and with its path.

    For a record whose validators look at their own value alone, and whose fields are not converted.
    """
    checked = {
        attribute.name: override(struct_hook=_validated(attribute, converter))
        for attribute in attrs.fields(record)
        if attribute.validator is not None
    }
    inner: Callable[[Any, Any], object] = make_dict_structure_fn(
        record,
        converter,
        _cattrs_forbid_extra_keys=converter.forbid_extra_keys,
        **checked,  # type: ignore[arg-type]
    )
    converter.register_structure_hook(record, lambda value, _: inner(require(value, dict), record))


def _validated(attribute: "attrs.Attribute[Any]", converter: Converter) -> Callable[[object, object], object]:
    read, validator = converter.get_structure_hook(attribute.type), attribute.validator
    assert validator is not None

    def structure_field(value: object, type_: object) -> object:
        built = read(value, type_)
        validator(None, attribute, built)
        return built

    return structure_field


def _without_nulls(type_: Any, converter: Converter) -> Callable[[object], dict[str, object]]:
    inner = make_dict_unstructure_fn(type_, converter)
    understood = {attribute.name for attribute in attrs.fields(type_) if attribute.default is None}

    def unstructure_record(record: object) -> dict[str, object]:
        return {name: value for name, value in inner(record).items() if value is not None or name not in understood}

    return unstructure_record
