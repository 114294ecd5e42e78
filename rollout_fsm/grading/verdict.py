"""A verdict, and what reads one from an answer: exactly one, or none.

Strict, since what is read is a reward. An answer with two verdicts has none, and neither has one that quotes a verdict
before it gives its own: a judge that was talked into repeating what it grades is not believed.
"""

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from attrs import frozen

from rollout_fsm.messages import JSON

Score: TypeAlias = float | Mapping[str, float]

_THOUGHT = "</think>"
"""Ends what some endpoints leave in an answer of what its model thought."""


class NoVerdictError(Exception):
    """Why an answer has no verdict, as its author is told."""


@frozen
class Verdict:
    """What an answer says, and what it comes to."""

    said: JSON
    score: Score


class Reader(Protocol):
    """What an answer has to look like."""

    @property
    def form(self) -> str:
        """The form of the answer, as its author is told."""
        ...

    def read(self, answer: str) -> Verdict:
        """The verdict. Raises `NoVerdictError` where there is not exactly one."""
        ...


def spoken(answer: str) -> str:
    """An answer without what was thought before it."""
    thought, mark, said = answer.partition(_THOUGHT)
    return said if mark else thought
