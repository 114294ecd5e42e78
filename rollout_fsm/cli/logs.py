"""Logging of the command line: all of a run in a file, what matters on standard error. Undone when the command ends.

The engine itself installs no handlers. A log that cannot be written to is given up and said, never raised.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TextIO

from rollout_fsm.cli.harmless import harmless

__all__ = ["LogFile", "logging_to_file", "logging_to_terminal"]

QUIET = ("transitions", "mcp", "httpx2", "httpcore2", "hpack", "asyncio")
"""Loggers of libraries, which say each step; of these only warnings are heard."""

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
"""By how often `-v` was said."""


class _Harmless(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return harmless(super().format(record))


class LogFile(logging.FileHandler):
    """The log of a run. `failed` is why it could not be written, None while it can."""

    def __init__(self, path: Path, mode: Literal["x", "a"]) -> None:
        super().__init__(path, mode=mode, encoding="utf-8", errors="backslashreplace")
        self.failed: BaseException | None = None
        self.setFormatter(_Harmless("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's own name)
        """Note the failure, once; there is nowhere to log it."""
        self.failed = self.failed or sys.exc_info()[1]


class _Terminal(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at the moment, so that lines come above what moves on the terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_Harmless("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's own name)
        """Standard error is gone, and with it whoever could be told."""


@contextmanager
def logging_to_terminal(verbosity: int) -> Iterator[None]:
    """Within the block, warnings go to standard error; with one `-v` more, with two everything."""
    handler = _Terminal()
    handler.setLevel(_LEVELS[min(verbosity, len(_LEVELS) - 1)])
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in QUIET}
    level = root.level
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    root.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        for name, before in levels.items():
            logging.getLogger(name).setLevel(before)


@contextmanager
def logging_to_file(path: Path, *, goes_on: bool = False) -> Iterator[LogFile]:
    """Within the block, everything that is logged goes to the file, which is made, or gone on with. Raises `OSError` if
    it cannot be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = LogFile(path, "a" if goes_on else "x")
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        try:
            handler.close()
        except OSError as error:
            handler.failed = handler.failed or error
