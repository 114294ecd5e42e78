"""Command lines with placeholders: how they are given, checked and filled. Starts nothing and knows no rollout."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from rollout_fsm.errors import HarnessError

__all__ = ["PLACEHOLDERS", "command", "fill", "placeholders", "program_name", "transportable"]

PLACEHOLDERS = ("python", "prompt", "prompt_file", "conversation", "endpoint", "secret", "model", "mcp_config")
"""What may stand in braces; any other text in braces stands for itself, so that JSON can be an argument."""

LONGEST = 128 * 2**10 - 1
"""Bytes that one argument or variable of a program may have; Linux refuses to start it with a longer one."""

_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")


def command(argv: str | Sequence[str]) -> tuple[str, ...]:
    """The items of a command line: a list as it is, a text split as a shell splits it (no shell ever runs it).

    Raises `ValueError` for an empty one, one with an open quote, or one whose program is a part of the conversation;
    `TypeError` for items that are no text.
    """
    try:
        items = tuple(shlex.split(argv) if isinstance(argv, str) else argv)
    except ValueError as error:
        raise ValueError(f"the command line {argv!r} cannot be split: {error}") from None
    if wrong := [item for item in items if not isinstance(item, str)]:
        raise TypeError(f"a command line is a text or a list of texts; {wrong[0]!r} is a {type(wrong[0]).__name__}")
    if not items or not items[0]:
        raise ValueError("the command line is empty; its first item names the program")
    if placeholders(items[:1]) - {"python"}:
        raise ValueError(f"the first item of the command line names the program, which cannot be {items[0]!r}")
    return items


def placeholders(texts: Iterable[str]) -> frozenset[str]:
    """The placeholders that are named in any of the texts."""
    return frozenset(name for text in texts for name in _PLACEHOLDER.findall(text))


def fill(text: str, values: Mapping[str, str]) -> str:
    """The text with its placeholders replaced. What is put in is not looked at again."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def program_name(argv: Sequence[str]) -> str:
    """What a command line is called: the base name of its program, or of the script or module that a Python runs."""
    first = os.path.basename(argv[0])
    if argv[0] != "{python}" and not re.fullmatch(r"python[0-9.]*", first):
        return first
    for before, item in pairwise(argv):
        if item == "-c":
            break
        if before == "-m" or not item.startswith("-"):
            return os.path.basename(item)
    return "python"


def transportable(text: str, what: str, instead: str) -> str:
    """The text, if an argument or a variable of a program can carry it. Else `HarnessError`, saying what will do."""
    if "\0" in text:
        raise HarnessError(f"{what} holds a NUL character, which no program can be given that way; {instead}")
    try:
        size = len(text.encode(errors="surrogateescape"))
    except UnicodeEncodeError as error:
        raise HarnessError(f"{what} holds a character that is no text ({error}); {instead}") from None
    if size > LONGEST:
        raise HarnessError(
            f"{what} has {size} bytes, and no program can be given more than {LONGEST} that way; {instead}"
        )
    return text
