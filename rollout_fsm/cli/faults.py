"""What the command line can be told wrongly, and how it ends for other reasons: exceptions with an exit code each."""

__all__ = ["EXIT_FAULTS", "EXIT_INTERRUPTED", "EXIT_UNWRITTEN", "EXIT_USAGE", "UsageError"]

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

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
