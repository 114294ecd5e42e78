"""Foreign text made fit for a terminal: nothing in it can move the cursor, change a colour, ring a bell or reverse a
line.

What a model, a program or a file said is shown, not obeyed. Characters that would act, or hide, appear as escapes.
"""

import re
import unicodedata

__all__ = ["harmless", "one_line"]

_ACTING = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode categories of what controls, formats, is half a character, is nobody's, or breaks lines unseen."""

_KEPT = "\u200c\u200d"
"""Joiners, which scripts and emoji need and which do nothing else."""

_PLAIN = re.compile(r"[ -~]*")


def harmless(text: str, *, keep: str = "\n\t") -> str:
    """The text with everything that acts as an escape, but for the characters in `keep`."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        char
        if char in keep or char in _KEPT or unicodedata.category(char) not in _ACTING
        else char.encode("unicode_escape", "backslashreplace").decode("ascii")
        for char in text
    )


def one_line(text: str, limit: int) -> str:
    """The text on one harmless line of at most `limit` characters: line ends are spaces, what is cut is counted."""
    head = text[: limit * 4 + 64]  # more than can be shown: a text of megabytes is not worth looking through
    line = harmless(" ".join(head.split()), keep="")
    if len(line) <= limit and len(head) == len(text):
        return line
    said = f"… ({len(text):,} characters)"
    return line[: max(0, limit - len(said))].rstrip() + said
