"""Messages that were read before: a conversation is sent again with each turn, and only what is new in it is read.

A message is known by its JSON, all of it and exactly: `1`, `1.0` and `true` are three things here. Nothing is kept but
the last few conversations, so what is forgotten is read again and is the same.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from attrs import define, field, frozen

from rollout_fsm.messages import JSON, Message, of_same_kinds

__all__ = ["CONVERSATIONS", "Recall", "Recollection", "afresh"]

CONVERSATIONS = 4
"""How many are kept: a harness with helpers of its own goes on with several in turn."""

Read: TypeAlias = Callable[[int], Message]


class Recall(Protocol):
    """Gives the messages that a request has."""

    def __call__(self, given: Sequence[JSON], read: Read) -> tuple[Message, ...]:
        """A message for each of these values, which is made from it and nothing else; `read` reads the one at a
        place."""
        ...


def afresh(given: Sequence[JSON], read: Read) -> tuple[Message, ...]:
    """Each message read, for whoever keeps nothing."""
    return tuple(map(read, range(len(given))))


@frozen
class _Conversation:
    given: list[JSON]
    messages: tuple[Message, ...]
    exact: tuple[bool, ...]
    """Of each value, whether Python's own comparison is enough for it."""

    def shared(self, given: Sequence[JSON]) -> int:
        """How many of the first values are those of this conversation."""
        place = 0
        for value, known, exact in zip(given, self.given, self.exact, strict=False):
            if value != known or not (exact or of_same_kinds(value, known)):
                break
            place += 1
        return place


_NONE = _Conversation([], (), ())


@define(eq=False)
class Recollection:
    """What one rollout's requests were read as. May be asked from several threads: each sees a whole memory."""

    _kept: tuple[_Conversation, ...] = field(default=(), init=False)
    """The one that was asked for last is the last."""

    def __call__(self, given: Sequence[JSON], read: Read) -> tuple[Message, ...]:
        """The messages; those of the conversation that has most of them are what they were read as then."""
        known, like = 0, _NONE
        for conversation in self._kept:
            if (shared := conversation.shared(given)) > known:
                known, like = shared, conversation
        now = _Conversation(
            given=[*like.given[:known], *given[known:]],  # a text that came again is held once
            messages=(*like.messages[:known], *map(read, range(known, len(given)))),
            exact=(*like.exact[:known], *map(_is_exact, given[known:])),
        )
        grown = like if known == len(like.given) else None
        others = [conversation for conversation in self._kept if conversation is not grown]
        self._kept = (*others[1 - CONVERSATIONS :], now)
        return now.messages


def _is_exact(value: JSON) -> bool:
    """Whether nothing but the very same JSON is equal to it: numbers and truths are equal across their kinds."""
    if isinstance(value, dict):
        return all(map(_is_exact, value.values()))
    if isinstance(value, list):
        return all(map(_is_exact, value))
    return value is None or isinstance(value, str)
