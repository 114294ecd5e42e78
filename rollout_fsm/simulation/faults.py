"""The exceptions of a scenario, which are text in its file: `"ValueError:no such box"`.

What they stand for is settled when the scenario is read, so that a misspelt type is a fault of the file and not of the
rollout. An exception is made anew each time it is raised: one that was raised before would carry its old traceback.
"""

import builtins
from collections.abc import Callable, Mapping

from attrs import frozen

from rollout_fsm import errors
from rollout_fsm.errors import OverlongPromptError, ProviderError
from rollout_fsm.machine.exact import Fault, suggestion

GROUP = "ExceptionGroup"
OVERLONG = "Overlong"

_ENGINE: Mapping[str, type[BaseException]] = {
    name: value
    for name in errors.__all__
    if isinstance(value := getattr(errors, name), type) and issubclass(value, BaseException)
}
_PYTHON: Mapping[str, type[BaseException]] = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type)
    and issubclass(value, BaseException)
    and not issubclass(value, BaseExceptionGroup | GeneratorExit)
}
_TYPES: Mapping[str, type[BaseException]] = {**_PYTHON, **_ENGINE}


@frozen
class ScriptedError:
    """An exception that scripted code raises, as the scenario spells it."""

    text: str
    make: Callable[[], BaseException]
    """A new one."""

    @classmethod
    def read(cls, text: str) -> "ScriptedError":
        """`"Type"`, `"Type:message"` or `"ExceptionGroup:Type,Type…"`. Raises `Fault`."""
        name, _, rest = text.partition(":")
        if name != GROUP:
            return cls(text, _single(name, rest))
        parts = [_single(part.strip(), "") for part in rest.split(",")]
        return cls(text, lambda: BaseExceptionGroup("scripted", [make() for make in parts]))


@frozen
class ModelError(ScriptedError):
    """An exception that a scripted model raises."""

    @classmethod
    def read(cls, text: str) -> "ModelError":
        """As elsewhere, and `"ProviderError:STATUS"`, `"ProviderError:STATUS:message"`, `"Overlong"`; but no group."""
        name, _, rest = text.partition(":")
        if name == OVERLONG:
            return cls(text, lambda: OverlongPromptError(rest or "the prompt is beyond the context window"))
        status, _, message = rest.partition(":")
        if name == ProviderError.__name__ and status.isascii() and status.isdigit():
            code = int(status)
            return cls(text, lambda: ProviderError(message or f"the provider answered {code}", status_code=code))
        if name == GROUP:
            raise Fault("a scripted model raises single errors, no group")
        return cls(text, _single(name, rest))


def _single(name: str, message: str) -> Callable[[], BaseException]:
    kind = _TYPES.get(name)
    if kind is None:
        near = suggestion(name, _TYPES) if name else ""
        hint = near if "did you mean" in near else "; a builtin of Python or one of the engine's error types is meant"
        raise Fault(f"no exception type {name!r}{hint}")

    def make() -> BaseException:
        return kind(message) if message else kind()

    def with_words() -> BaseException:
        return kind(message or "scripted")

    for maker in (make, with_words):
        try:
            maker()
        except TypeError:
            continue
        return maker
    raise Fault(f"an exception of type {name!r} cannot be made from a message alone")
