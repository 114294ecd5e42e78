"""What a setting's value has to be: a check returns what is wrong with it, None if nothing is.

A setting carries its check as metadata, so that one walk over the records finds every fault at once.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from attrs import field

from rollout_fsm.cli.loading import is_reference
from rollout_fsm.exact_json import FormatError, plain
from rollout_fsm.messages import JSON
from rollout_fsm.retry import RetryPolicy

Check = Callable[[Any], str | None]
_CHECK = "check"


def setting(check: Check | None = None) -> Any:
    return field(default=None, metadata={_CHECK: check})


def at_least(least: int) -> Check:
    return lambda value: None if value >= least else f"must be a whole number of at least {least}, not {value}"


def between(least: float, most: float) -> Check:
    return lambda value: None if least <= value <= most else f"must be between {least:g} and {most:g}, not {value:g}"


def seconds(value: float) -> str | None:
    good = value >= 0 and math.isfinite(value)
    return None if good else f"must be a finite number of seconds of at least 0, not {value:g}"


def seconds_or_no_bound(value: float) -> str | None:
    return None if value >= 0 else f"must be a number of seconds of at least 0, or inf for no bound, not {value:g}"


def is_json(value: Mapping[str, JSON]) -> str | None:
    try:
        plain(value, "extra")
    except FormatError as error:
        return f"goes to the model as JSON: {'; '.join(error.faults)}"
    return None


def finite(value: float) -> str | None:
    return None if math.isfinite(value) else f"must be a finite number, not {value:g}"


def accepted_by(read: Callable[[Any], object]) -> Check:
    """What a reader refuses is wrong."""

    def check(value: Any) -> str | None:
        try:
            read(value)
        except ValueError as error:
            return str(error)
        return None

    return check


def errors_or_endings(entries: tuple[str, ...]) -> str | None:
    """What is wrong with names of errors and endings; `module:Class` is looked at when it is loaded."""
    wrong = []
    for entry in entries:
        if is_reference(entry):
            continue
        try:
            RetryPolicy(exclude=(entry,))
        except (TypeError, ValueError) as error:
            wrong.append(str(error).removeprefix("exclude: ").replace("pass the class itself", "write module:Class"))
    return "; ".join(wrong) or None


def included(entries: tuple[str, ...]) -> str | None:
    if (wrong := errors_or_endings(entries)) is not None:
        return wrong
    try:
        RetryPolicy(include=[entry for entry in entries if not is_reference(entry)])
    except ValueError as error:
        return str(error).removeprefix("include: ")
    return None


def some(value: str) -> str | None:
    return None if value.strip() else "is empty; leave it out, or say something"


def check_of(attribute: "attrs.Attribute[Any]") -> Check | None:
    """What is asked of a setting's value: returns what is wrong with it, None if nothing is."""
    check: Check | None = attribute.metadata.get(_CHECK)
    return check
