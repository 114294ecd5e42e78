"""The boundaries a failure can cross, and how one becomes text on a trace (L40).

Every failure is attributed to the boundary it crossed. What reaches a trace is an `ErrorRecord`: type, message and
traceback as text. No live exception is ever kept, since a kept exception keeps its frames and they keep the rollout.
"""

import traceback
from collections.abc import Iterator
from typing import TypeVar

from attrs import frozen

from rollout_fsm.machine.errors import IllegalTransition, RolloutBusyError

__all__ = [
    "ErrorRecord",
    "HarnessError",
    "IllegalTransition",
    "InterceptionError",
    "OverlongPromptError",
    "ProviderError",
    "RolloutBusyError",
    "RolloutError",
    "RuntimeLifetimeError",
    "SandboxError",
    "TaskError",
    "ToolsetError",
    "TurnRefused",
    "attribute",
    "leaves",
    "record",
    "subclasses",
    "text",
]

Kind = TypeVar("Kind", bound=BaseException)

LONGEST = 20_000
"""How many characters of a foreign message are kept, half from each end."""
TRACEBACK_FRAMES = 40
"""How many of the innermost frames a recorded traceback keeps; deeper ones are named as left out."""


class RolloutError(Exception):
    """A failure of a rollout, attributed to a boundary. Typed failures pass every boundary unchanged (L40)."""


class TaskError(RolloutError):
    """The task's own code failed: setup, finalize, a hook or a signal."""


class HarnessError(RolloutError):
    """The harness failed: its setup, its session, its program, or its time ran out."""


class ToolsetError(RolloutError):
    """A tool server could not be built or started."""


class SandboxError(RolloutError):
    """The runtime failed: it did not start, it died, or it would not let go of a process."""


class InterceptionError(RolloutError):
    """The gateway between harness and model failed."""


class ProviderError(RolloutError):
    """A model call failed. `status_code` is the provider's HTTP status, None where there was none."""

    def __init__(self, message: str, *, status_code: int | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code


class OverlongPromptError(ProviderError):
    """The prompt is beyond the model's context window: a budget, not a crash (L21)."""


class TurnRefused(Exception):  # noqa: N818  (a decision, not an error)
    """A model call was not admitted (L16, L24, L58).

    `condition` is the stop condition that refused it, None when there is none: no segment is running, or the rollout is
    over.
    """

    def __init__(self, message: str, *, condition: str | None = None) -> None:
        super().__init__(message)
        self.condition = condition


class RuntimeLifetimeError(Exception):
    """The owner of a borrowed runtime stopped it while a rollout needed it: the caller's bug, raised to the caller
    (L3)."""


@frozen(kw_only=True)
class ErrorRecord:
    """One failure as it stands on a trace (L40, L84)."""

    type: str
    message: str
    status_code: int | None = None
    traceback: str | None = None


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, in order; an exception that is no group is its own only leaf."""
    left = [error]  # no recursion: how deep foreign code nests its groups is its own affair
    while left:
        first = left.pop()
        if isinstance(first, BaseExceptionGroup):
            left.extend(reversed(first.exceptions))
        else:
            yield first


def subclasses(of: type[Kind]) -> Iterator[type[Kind]]:
    """A type of errors and all that are a kind of it, as far as this process knows them."""
    yield of
    for kind in of.__subclasses__():
        yield from subclasses(kind)


def text(error: BaseException) -> str:
    """The failure in a line, "Type: message"; safe for exceptions whose own code raises."""
    return f"{type(error).__name__}: {_message(error)}".removesuffix(": ")


def record(error: BaseException) -> ErrorRecord:
    """The failure as text, under its own type (L40, L43). A `ProviderError` has its status code instead of a
    traceback."""
    status = error.status_code if isinstance(error, ProviderError) else None
    text = None if isinstance(error, ProviderError) else "".join(_lines(error))
    return ErrorRecord(type=type(error).__name__, message=_message(error), status_code=status, traceback=text)


def attribute(error: BaseException, boundary: type[RolloutError], doing: str) -> RolloutError:
    """A single failure under the type of the boundary it crossed; one that is already typed passes unchanged (L40).

    `doing` says what was being done ("task setup"); the original type and text stay in the message.
    """
    if isinstance(error, RolloutError):
        return error
    attributed = boundary(f"{doing} failed: {text(error)}")
    attributed.__cause__ = error
    return attributed


def _message(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception as unprintable:  # noqa: BLE001  (foreign code: its __str__ may raise anything)
        return f"<its message cannot be shown: {type(unprintable).__name__}>"
    if len(said) > LONGEST:
        return f"{said[: LONGEST // 2]} [--- {len(said) - LONGEST} characters left out ---] {said[-LONGEST // 2 :]}"
    return said


def _lines(error: BaseException) -> Iterator[str]:
    try:
        told = traceback.TracebackException.from_exception(error, limit=-TRACEBACK_FRAMES, compact=True)
        for line in told.format():
            yield (
                line
                if len(line) <= LONGEST
                else f"{line[:LONGEST]} [--- {len(line) - LONGEST} characters left out ---]\n"
            )
    except Exception as unprintable:  # noqa: BLE001
        yield f"<its traceback cannot be shown: {type(unprintable).__name__}>\n"
