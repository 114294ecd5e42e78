"""The state of a trace that was read from a file: it is not written (L84), so nobody knows what it held.

What reads it is told so instead of being given nothing: a reward of zero that is none would be worse than a failure.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

SAID = (
    "trace.state is not written, and this trace was read from a file: keep in trace.info what is to be read after a "
    "crash, or offline"
)


class StateNotWrittenError(LookupError):
    """Somebody read `trace.state` of a trace that was read from a file."""


class UnwrittenState(dict[str, object]):
    """Takes what is put into it, and gives that; all else it has is unknown, and raises `StateNotWrittenError`."""

    def __missing__(self, key: str) -> NoReturn:
        raise StateNotWrittenError(f"{key!r}: {SAID}")

    def get(self, key: str, default: Any = None) -> Any:
        """What was put there. Raises `StateNotWrittenError` where nothing was."""
        return self[key]

    def setdefault(self, key: str, default: Any = None) -> Any:
        """As `get`: whether there was something is not known."""
        return self[key]

    def pop(self, key: str, *default: Any) -> Any:
        """As `get`, and it is gone."""
        value = self[key]
        del self[key]
        return value

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._unknown()

    def __iter__(self) -> Iterator[str]:
        self._unknown()

    def __len__(self) -> int:
        self._unknown()

    def __bool__(self) -> bool:
        self._unknown()

    def keys(self) -> NoReturn:
        """Not known."""
        self._unknown()

    def values(self) -> NoReturn:
        """Not known."""
        self._unknown()

    def items(self) -> NoReturn:
        """Not known."""
        self._unknown()

    def __copy__(self) -> "UnwrittenState":
        return self

    def __deepcopy__(self, _: object) -> "UnwrittenState":
        return self

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()

    def __repr__(self) -> str:
        return "<state that was not written>"

    def _unknown(self) -> NoReturn:
        raise StateNotWrittenError(SAID)
