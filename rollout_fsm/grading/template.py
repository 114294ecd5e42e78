"""The question that a judge asks, with placeholders such as `{last_reply}` and `{task.answer}`.

A placeholder is a name in braces, and every name has to be known when the template is made. All else is text: a lone
brace, `{}`, JSON. `{{last_reply}}` is the text `{last_reply}`. What is put in is never read as a template itself.
"""

import re
from collections.abc import Callable, Collection
from typing import Self, TypeAlias

from attrs import frozen

from rollout_fsm.machine.exact import suggestion

TASK = "task."
"""Begins the placeholders of a task's own fields, which only the task knows."""

_PLACEHOLDER = re.compile(r"\{(\{[^\W\d]\w*(?:\.\w+)*\})\}|\{([^\W\d]\w*(?:\.\w+)*)\}")

Piece: TypeAlias = tuple[str, str | None]
"""A text, and the placeholder that follows it."""


@frozen
class Template:
    """A text with placeholders."""

    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, text: str, known: Collection[str]) -> Self:
        """Read a template. Raises `ValueError` naming every placeholder that is not known."""
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"the prompt is to be a text that asks for a verdict, not {text!r}")
        pieces: list[Piece] = []
        wrong: list[str] = []
        before, end = "", 0
        for found in _PLACEHOLDER.finditer(text):
            escaped, name = found.groups()
            before += text[end : found.start()] + (escaped or "")
            end = found.end()
            if name is None:
                continue
            if name not in known and not _is_of_the_task(name):
                wrong.append(f"{{{name}}}{suggestion(name, [*known, f'{TASK}FIELD'])}")
            pieces.append((before, name))
            before = ""
        if wrong:
            said = f"the prompt has a placeholder that is not known: {', and '.join(wrong)}"
            raise ValueError(f"{said} (where it is to be text, double its braces)")
        return cls((*pieces, (before + text[end:], None)))

    @property
    def names(self) -> frozenset[str]:
        """The placeholders in it."""
        return frozenset(name for _, name in self.pieces if name is not None)

    def filled(self, value: Callable[[str], str]) -> str:
        """The text, with the value of each placeholder in its place."""
        return "".join(text + ("" if name is None else value(name)) for text, name in self.pieces)


def _is_of_the_task(name: str) -> bool:
    field = name.removeprefix(TASK)
    return field != name and field.isidentifier() and not field.startswith("_")
