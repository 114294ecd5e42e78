"""What the command line can be told wrongly, and how it ends for other reasons: exceptions with an exit code each."""

import errno
import sqlite3
from typing import ClassVar

__all__ = [
    "EXIT_FAULTS",
    "EXIT_INTERRUPTED",
    "EXIT_UNWRITTEN",
    "EXIT_USAGE",
    "UnwrittenError",
    "UsageError",
    "is_of_the_disk",
]

EXIT_FAULTS = 1
"""Something that was asked about is not as it should be: a failed rollout with `--fail-on-error`, a fault that a
check found."""
EXIT_USAGE = 2
EXIT_UNWRITTEN = 3
"""Something could not be written."""
EXIT_INTERRUPTED = 128
"""Plus the number of the signal."""


class UsageError(Exception):
    """The user asked for something that cannot be done. Each line says what came and what to change; no traceback is
    shown."""

    exit_code: ClassVar[int] = EXIT_USAGE

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class UnwrittenError(UsageError):
    """What was asked for is right, but the disk does not take it: it is full, broken, or read-only."""

    exit_code: ClassVar[int] = EXIT_UNWRITTEN


_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
_OF_THE_JOURNALS_DISK = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY}


def is_of_the_disk(error: BaseException) -> bool:
    """Whether something could not be written for what the disk is, not for what was asked for."""
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        return (getattr(cause, "sqlite_errorcode", 0) & 0xFF) in _OF_THE_JOURNALS_DISK
    return isinstance(error, OSError) and error.errno in _OF_THE_DISK
