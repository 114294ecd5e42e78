"""The two streams of a terminal, without surprises: a reader that went away or a full disk is noted and never raises.

Nothing else of the command line writes to standard output or standard error. Text is never markup; colours come from
styles alone, and only on a terminal (`NO_COLOR` is respected).
"""

import errno
import io
import os
import sys
from contextlib import suppress
from typing import IO, TextIO, cast

from attrs import define, field
from rich.console import Console, RenderableType
from rich.text import Text

from rollout_fsm.cli.harmless import harmless

__all__ = ["Outlet", "Screen", "open_screen"]

PIPED_WIDTH = 120
"""Columns where nobody's terminal says how many."""


class Outlet(io.TextIOBase):
    """A stream that swallows what cannot be written, and keeps the reason in `broken`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.broken: OSError | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's encoding."""
        return self._stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        """Write; characters that the stream cannot carry are escaped."""
        if self.broken is None:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                return self.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))
            except OSError as error:
                self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flush."""
        if self.broken is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._give_up(error)

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The stream's descriptor."""
        return self._stream.fileno()

    @property
    def unwritten(self) -> OSError | None:
        """Why something could not be written; a reader that went away is no reason."""
        gone = self.broken is not None and self.broken.errno == errno.EPIPE
        return None if gone else self.broken

    def _give_up(self, error: OSError) -> None:
        self.broken = error
        with suppress(OSError, ValueError):  # what is buffered would fail once more when the interpreter ends
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@define(eq=False)
class Screen:
    """Where a command writes: results to `out`, messages to `err`."""

    outlet: Outlet
    err_outlet: Outlet
    out: Console = field(init=False)
    err: Console = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.out, self.err = _console(self.outlet), _console(self.err_outlet)

    @property
    def live(self) -> bool:
        """Whether standard output is a terminal on which things can move."""
        return self.outlet.isatty() and os.environ.get("TERM", "") not in ("", "dumb")

    def say(self, text: str | Text = "", style: str = "") -> None:
        """A line on standard output, whole: it is neither wrapped nor cut. Shown at once."""
        self.out.print(_text(text, style), soft_wrap=True)
        self.outlet.flush()

    def show(self, thing: RenderableType) -> None:
        """A table or the like on standard output; piped, without the blanks that fill its lines."""
        if self.outlet.isatty():
            self.out.print(thing)
        else:
            with self.out.capture() as captured:
                self.out.print(thing)
            self.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
        self.outlet.flush()

    def write(self, text: str) -> None:
        """Text on standard output, byte for byte."""
        self.outlet.write(text)
        self.outlet.flush()

    def complain(self, text: str | Text, style: str = "") -> None:
        """A message on standard error."""
        self.err.print(_text(text, style), soft_wrap=True)
        self.err_outlet.flush()

    def flush(self) -> None:
        """Everything that was written is out."""
        self.outlet.flush()
        self.err_outlet.flush()


def open_screen() -> Screen:
    """The process's standard streams."""
    return Screen(Outlet(sys.stdout or _nowhere()), Outlet(sys.stderr or _nowhere()))


def _nowhere() -> TextIO:
    """Stands for a stream that the process was started without, as under some schedulers."""
    return open(os.devnull, "w", encoding="utf-8")


def _console(outlet: Outlet) -> Console:
    tty = outlet.isatty()
    return Console(
        file=cast("IO[str]", outlet),
        force_terminal=None if tty else False,
        width=None if tty else PIPED_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )


def _text(text: str | Text, style: str) -> Text:
    return text if isinstance(text, Text) else Text(harmless(text), style)
