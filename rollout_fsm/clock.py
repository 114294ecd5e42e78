"""Durations from the event loop's clock, anchored once to the wall clock (L80): a clock that is set back changes
nothing."""

import time

import trio
from attrs import frozen


@frozen
class AnchoredClock:
    """Turns the event loop's time into epoch seconds."""

    offset: float

    @classmethod
    def anchor(cls) -> "AnchoredClock":
        """A clock that agrees with the wall clock now."""
        return cls(time.time() - trio.current_time())

    def now(self) -> float:
        """Epoch seconds."""
        return trio.current_time() + self.offset

    def at(self, time: float) -> float:
        """Epoch seconds of a time of the event loop."""
        return time + self.offset
