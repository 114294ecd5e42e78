"""Harness and model of a run, from what the settings call them. Nothing is started here."""

import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from typing import Literal, TypedDict, cast

from attrs import asdict

from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.loading import is_reference, load
from rollout_fsm.cli.settings import ModelSettings, RetrySettings
from rollout_fsm.example import example_harness, example_model
from rollout_fsm.harness import Harness
from rollout_fsm.harnesses.chat import ChatHarness
from rollout_fsm.harnesses.program import ProgramHarness
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.model import Model
from rollout_fsm.models.anthropic import AnthropicModel
from rollout_fsm.models.local import LocalModel
from rollout_fsm.models.openai import OpenAIModel
from rollout_fsm.retry import RetryOn, RetryPolicy

__all__ = ["HARNESSES", "MODELS", "endpoint_variable", "kind_of", "make_harness", "make_model", "make_retry"]

HARNESSES: Mapping[str, Callable[[], Harness]] = {"chat": ChatHarness, "example": example_harness}
MODELS: Mapping[str, Callable[[], Model]] = {"local": LocalModel, "scripted": example_model}
"""Models that need no endpoint."""


def make_harness(named: str) -> Harness:
    """A harness by name, by `module:Class`, or as the command line of a program."""
    if named in HARNESSES:
        return HARNESSES[named]()
    if is_reference(named):
        found = load(named, "--harness")
        made = found if isinstance(found, Harness) else _called(found, named, "--harness")
        if not isinstance(made, Harness):
            raise UsageError(
                f"--harness: {named} makes {kind_of(made)}, not a harness; derive it from rollout_fsm.Harness"
            )
        return made
    return _program(named)


def endpoint_variable(settings: ModelSettings | None) -> str:
    """The environment variable that says where the model is asked, if nothing else does."""
    anthropics = settings is not None and settings.speaks == ("messages",)
    return (AnthropicModel if anthropics else OpenAIModel).BASE_URL_VAR


class _Endpoint(TypedDict):
    base_url: str | None
    stream: bool


def make_model(settings: ModelSettings | None, *, at: str | None = None) -> Model:
    """The model, checked as far as it can be without asking it: its key is there, its packages are installed. `at` is
    where the settings stand in a file, if they were not said by flags."""
    settings = settings or ModelSettings()
    name = settings.name
    flags = [f"--{word}" if at is None else f"{at}{word.replace('-', '_')}" for word in ("model", *_ENDPOINT)]
    if name is None:
        raise UsageError(f"which model? name one with {flags[0]}: one of the endpoint's, or local, or scripted")
    if name in MODELS:
        for flag, value in zip(flags[1:], (settings.base_url, settings.api_key_var), strict=True):
            if value is not None:
                raise UsageError(f"{flags[0]} {name} runs in this process and takes no {flag}; leave one of them out")
        return _checked(MODELS[name](), name, flags[0])
    key = settings.api_key_var
    if key is not None and not os.environ.get(key, "").strip():
        raise UsageError(f"{flags[2]}: the environment variable {key} is not set; it is to hold the endpoint's key")
    endpoint = _Endpoint(base_url=settings.base_url, stream=bool(settings.stream))
    if settings.speaks == ("messages",):
        return _checked(AnthropicModel(name, api_key_var=key or AnthropicModel.KEY_VAR, **endpoint), name, flags[0])
    spoken = cast("tuple[Literal['chat', 'responses'], ...] | None", settings.speaks)
    model = OpenAIModel(name, api_key_var=key or OpenAIModel.KEY_VAR, speaks=spoken, **endpoint)
    return _checked(model, name, flags[0])


_ENDPOINT = ("base-url", "api-key-var")


def make_retry(settings: RetrySettings | None) -> RetryPolicy:
    """When a rollout is tried again."""
    if settings is None:
        return RetryPolicy()
    if not settings.max_retries:
        said = [
            name for name in ("include", "exclude", "backoff", "max_backoff") if getattr(settings, name) is not None
        ]
        if said:
            raise UsageError(f"--retry.{said[0].replace('_', '-')}: nothing is tried again without --max-retries")
        return RetryPolicy()
    fields = asdict(settings, recurse=False, filter=lambda _, value: value is not None)
    for name in ("include", "exclude"):
        if name in fields:
            fields[name] = [_error_or_ending(entry, f"--retry.{name}") for entry in fields[name]]
    return RetryPolicy(**fields)


def _error_or_ending(entry: str, flag: str) -> RetryOn:
    if not is_reference(entry):
        return entry
    found = load(entry, flag)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        raise UsageError(f"{flag}: {entry} is {kind_of(found)}, not a type of errors")
    return found


def _checked(model: Model, name: str, flag: str) -> Model:
    check = getattr(model, "check", None)
    if check is None:
        return model
    try:
        check()
    except (ValueError, ImportError, OSError) as error:
        near = suggestion(name, MODELS) if name not in MODELS else ""
        offline = f" (offline there are the models {', '.join(MODELS)}{near if 'did you mean' in near else ''})"
        raise UsageError(f"{flag} {name}: {error}{offline if name not in MODELS else ''}") from None
    return model


def _program(line: str) -> Harness:
    """The harness of a command line. A single word has to be a program, so that a misspelt name is not taken for
    one."""
    try:
        argv = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"--harness: {line!r} is no command line: {error}") from None
    if len(argv) == 1 and os.sep not in argv[0] and shutil.which(argv[0]) is None:
        known = ", ".join(HARNESSES)
        near = suggestion(argv[0], HARNESSES)
        hint = (
            near if "did you mean" in near else f"; there are {known}, or write module:Class or a quoted command line"
        )
        raise UsageError(f"--harness: there is no harness and no program {argv[0]!r}{hint}")
    try:
        return ProgramHarness([_found_here(item) for item in argv])
    except (ValueError, TypeError) as error:
        raise UsageError(f"--harness: {error}") from None


def _found_here(item: str) -> str:
    """A file of the current folder by its full path: the program runs in a workspace of its own."""
    looks_like_a_file = os.sep in item or "." in item.strip(".")
    return os.path.abspath(item) if looks_like_a_file and os.path.isfile(item) else item


def _called(found: object, named: str, flag: str) -> object:
    if not callable(found):
        raise UsageError(f"{flag}: {named} is {kind_of(found)}; name a class, or a function that makes one")
    if isinstance(found, type) and not issubclass(found, Harness):
        raise UsageError(f"{flag}: {named} is a class, but no harness; derive it from rollout_fsm.Harness")
    try:
        return found()
    except Exception as error:
        raise UsageError(f"{flag}: {named}() failed: {type(error).__name__}: {error}") from error


def kind_of(found: object) -> str:
    """What a thing is, in an error."""
    kind = "class" if isinstance(found, type) else type(found).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
