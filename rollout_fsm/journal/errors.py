"""What the journal raises."""


class JournalError(OSError):
    """The journal cannot be opened, read or written. The message is one line: the file, why, and what to do."""
