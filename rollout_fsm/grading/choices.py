"""A verdict that is one word of several. The last line has to be it, and nothing else in the answer may look like one.

Decoration is no matter: `**Verdict: Yes.**` is `yes`.
"""

import math
import re
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Self

from attrs import field, frozen

from rollout_fsm.grading.verdict import NoVerdictError, Verdict, spoken

_DECORATION = " \t\u00a0\u3000*_~`\"'\u2018\u2019\u201c\u201d.,!#>()[]"
_MARK = re.compile(rf"verdict[{re.escape(_DECORATION)}]*[:\uff1a][{re.escape(_DECORATION)}]*", re.IGNORECASE)


@frozen
class Choices:
    """One word of several, each with its number."""

    numbers: Mapping[str, float]
    """By the word as it was given."""
    _by_key: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, given: Mapping[str, float]) -> Self:
        """Raises `ValueError` for words that could not be told apart, and for what is no number."""
        if not isinstance(given, Mapping) or len(given) < 2:
            raise ValueError(f"choices are two words or more, each with its number, not {given!r}")
        by_key: dict[str, str] = {}
        for word, number in given.items():
            if not isinstance(word, str) or not _key(word) or word.splitlines() != [word]:
                raise ValueError(f"the choice {word!r} is no word")
            if _bare(word) != word or _MARK.search(word):
                raise ValueError(
                    f"the choice {word!r} is not to begin or end with a mark, nor to hold a verdict itself"
                )
            if (other := by_key.setdefault(_key(word), word)) != word:
                raise ValueError(f"the choices {other!r} and {word!r} cannot be told apart")
            if not _is_finite(number):
                raise ValueError(f"the choice {word!r} is to have a finite number, not {number!r}")
        return cls(dict(given), by_key)

    @property
    def form(self) -> str:
        """The form of the answer, as its author is told."""
        lines = "\n".join(f"VERDICT: {word}" for word in self.numbers)
        return f"Think it through as far as you need. Then end your answer with one of these lines:\n{lines}"

    def read(self, answer: str) -> Verdict:
        """The choice, which the last line has to be, and the only one in the answer."""
        lines = [line for line in map(_bare, spoken(answer).splitlines()) if line]
        found = [word for line in lines for word in self._in(line)]
        if len(found) > 1:
            raise NoVerdictError(f"it has {len(found)} verdicts: {', '.join(dict.fromkeys(found))}")
        if not found:
            raise NoVerdictError("it has no verdict" if lines else "it is empty")
        mark = _MARK.match(lines[-1])
        if self._by_key.get(_key(lines[-1][mark.end() if mark else 0 :])) != found[0]:
            raise NoVerdictError("its last line is not the verdict alone")
        return Verdict(found[0], float(self.numbers[found[0]]))

    def _in(self, line: str) -> Iterator[str]:
        """The verdicts in a line: choices after the mark, or a choice that is the whole line."""
        if (word := self._by_key.get(_key(line))) is not None:
            yield word
        longest = 2 * max(map(len, self._by_key))
        for mark in _MARK.finditer(line):
            rest = _key(line[mark.end() : mark.end() + longest])
            begun = [key for key in self._by_key if rest.startswith(key) and not rest[len(key) :][:1].isalnum()]
            if begun:
                yield self._by_key[max(begun, key=len)]


def _is_finite(number: object) -> bool:
    try:
        return isinstance(number, Real) and not isinstance(number, bool) and math.isfinite(number)
    except OverflowError:
        return False


def _bare(line: str) -> str:
    return line.strip(_DECORATION)


def _key(word: str) -> str:
    return " ".join(word.casefold().split())
