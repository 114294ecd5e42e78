"""How the gateway's connections learn that it closes.

What waits for a client is ended at once; what works for one is left alone, and finds `begun` when it is done.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Shutdown:
    """The end of a gateway, as its connections see it."""

    def __init__(self) -> None:
        self.begun = False
        self._waiting: set[trio.CancelScope] = set()

    @contextmanager
    def interruptible(self) -> Iterator[trio.CancelScope]:
        """A block that waits for a client: left at once when the gateway closes, and not entered afterwards. Its scope
        may be given a deadline."""
        with trio.CancelScope() as scope:
            if self.begun:
                scope.cancel()
            self._waiting.add(scope)
            try:
                yield scope
            finally:
                self._waiting.discard(scope)

    def begin(self) -> None:
        """Interrupt everything that waits for a client."""
        self.begun = True
        for scope in self._waiting:
            scope.cancel()
