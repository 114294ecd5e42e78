"""The TOML file of a run: read exactly, every fault at once, and written so that reading it back gives the same run."""

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
from cattrs.errors import AttributeValidationNote, ClassValidationError
from cattrs.gen import make_dict_structure_fn, override

from rollout_fsm.cli.checks import check_of
from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.judges import misfits
from rollout_fsm.cli.settings import (
    BoxSettings,
    JudgeSettings,
    LimitSettings,
    ModelSettings,
    NetworkSettings,
    OriginSettings,
    PolicySettings,
    RetrySettings,
    SamplingSettings,
    Settings,
    TimeoutSettings,
)
from rollout_fsm.exact_json import FormatError, check_fields, exact_converter, require, structured
from rollout_fsm.judges import Criterion
from rollout_fsm.machine.exact import Fault

__all__ = ["read_settings", "settings_to_toml"]

S = TypeVar("S", bound=attrs.AttrsInstance)

_ALSO = {
    "timeout": "timeouts",
    "retries": "retry",
    "num_examples": "num_tasks",
    "rollouts_per_example": "rollouts_per_task",
}
"""Other spellings of keys at the top, as the flags have them too."""


def read_settings(path: Path) -> Settings:
    """The settings of a file. Raises `UsageError` with every fault, each with file and path."""
    try:
        data = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is not TOML: {error}") from None
    for other, name in _ALSO.items():
        if other in data and name in data:
            raise UsageError(f"{path}: {other}: is another word for {name}, which is there too; keep one")
        if other in data:
            data[name] = data.pop(other)
    try:
        return structured(_CONVERTER, data, Settings, str(path))
    except FormatError as error:
        raise UsageError(*(f"{path}: {fault}" for fault in error.faults)) from None


def settings_to_toml(settings: Settings) -> str:
    """The settings that were said, as TOML."""
    said = _tables(settings)
    return "\n".join(_lines(said)) + "\n"


def _tables(record: attrs.AttrsInstance) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for attribute in attrs.fields(type(record)):
        value = getattr(record, attribute.name)
        if attrs.has(type(value)):
            value = _tables(value)
        elif isinstance(value, tuple) and all(attrs.has(type(item)) for item in value):
            value = [_tables(item) for item in value]
        if value is not None and value != {}:
            said[attribute.name] = value
    return said


def _lines(table: Mapping[str, Any], path: str = "") -> Iterator[str]:
    inner = {name: value for name, value in table.items() if isinstance(value, Mapping) or _is_tables(value)}
    for name, value in table.items():
        if name not in inner:
            yield f"{_key(name)} = {_value(value)}"
    for name, value in inner.items():
        where = f"{path}{_key(name)}"
        for item in [value] if isinstance(value, Mapping) else value:
            yield f"\n[{where}]" if item is value else f"\n[[{where}]]"
            yield from _lines(item, f"{where}.")


def _is_tables(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _key(name: str) -> str:
    bare = name and all(char.isascii() and (char.isalnum() or char in "-_") for char in name)
    return name if bare else _string(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value) if "\n" not in value else _lines_of_text(value)
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(str(name))} = {_value(item)}' for name, item in value.items())}}}"
    return repr(value)


def _string(text: str) -> str:
    return f'"{"".join(map(_char, text))}"'


def _lines_of_text(text: str) -> str:
    """A text with line breaks, a prompt say, as somebody who reads the file wants it."""
    lines = ("".join(map(_char, line)) for line in text.split("\n"))
    return '"""\n{}"""'.format("\n".join(lines))


def _char(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if "\ud800" <= char <= "\udfff":  # half a character, from a path that is no text: TOML has no word for it
        return "\ufffd"
    return f"\\u{ord(char):04x}" if ord(char) < ord(" ") or char == "\x7f" else char


def _float(value: object, _: object) -> float:
    """A number, an infinite one too: the agent's budget may have no bound."""
    return value if type(value) is int else float(require(value, float))


def _checked(record: type[S]) -> Callable[[object, object], S]:
    """A hook for a record that also checks its values, so that every fault of a file is found in one go."""

    def hook(attribute: "attrs.Attribute[Any]") -> Callable[[object, object], object]:
        def structure(value: object, type_: object) -> object:
            made = _CONVERTER.get_structure_hook(attribute.type)(value, attribute.type)
            check = check_of(attribute)
            if made is not None and check is not None and (wrong := check(made)) is not None:
                raise Fault(wrong)
            return made

        return structure

    overrides: dict[str, Any] = {
        attribute.name: override(struct_hook=hook(attribute))
        for attribute in attrs.fields(record)
        if check_of(attribute) is not None
    }
    inner = make_dict_structure_fn(record, _CONVERTER, _cattrs_forbid_extra_keys=True, **overrides)
    return lambda value, type_: inner(require(value, dict, "a table"), type_)


def _model(value: object, type_: object) -> ModelSettings:
    """A model: a table, or its name alone."""
    if isinstance(value, str):
        value = {"name": value}
    return _MODEL(value, type_)


def _criteria(value: object, _: object) -> tuple[Criterion, ...]:
    """Criteria: tables, or a table of texts by their names."""
    if isinstance(value, dict):
        value = [{"name": name, "text": text} for name, text in value.items()]
    return tuple(_CONVERTER.structure(value, list[Criterion]))


def _judge(value: object, type_: object) -> JudgeSettings:
    """A judge, whose settings also go together."""
    made = _JUDGE(value, type_)
    wrong: list[Exception] = []
    for name, what in misfits(made):
        fault = Fault(what)
        fault.__notes__ = [AttributeValidationNote("", name, object)]
        wrong.append(fault)
    if wrong:
        raise ClassValidationError("a judge", wrong, JudgeSettings)
    return made


_CONVERTER = exact_converter(forbid_extra_keys=True)
_CONVERTER.register_structure_hook(float, _float)
for _record in (
    SamplingSettings,
    LimitSettings,
    TimeoutSettings,
    PolicySettings,
    RetrySettings,
    NetworkSettings,
    BoxSettings,
    OriginSettings,
):
    _CONVERTER.register_structure_hook(_record, _checked(_record))
_MODEL = _checked(ModelSettings)
_CONVERTER.register_structure_hook(ModelSettings, _model)
check_fields(_CONVERTER, Criterion)
_CONVERTER.register_structure_hook_func(lambda type_: type_ == tuple[Criterion, ...], _criteria)
_JUDGE = _checked(JudgeSettings)
_CONVERTER.register_structure_hook(JudgeSettings, _judge)
_CONVERTER.register_structure_hook(Settings, _checked(Settings))
