"""Observers: who may be told what, and how they are told without ever being able to disturb anything (L42)."""

import logging
from collections.abc import Iterable

from attrs import field, frozen

from rollout_fsm.outcome import Interrupt, interrupts

log = logging.getLogger("rollout_fsm")

EVENTS = ("on_trace", "on_transition", "on_activity", "on_retry", "on_finished")
"""What an observer may have."""


def _checked(observers: Iterable[object]) -> tuple[object, ...]:
    checked = tuple(observers)
    for observer in checked:
        if not any(callable(getattr(observer, event, None)) for event in EVENTS):
            raise TypeError(f"an observer has any of {', '.join(EVENTS)}; {observer!r} has none")
    return checked


@frozen(eq=False)
class Observers:
    """The observers of an engine, or of a rollout. Raises `TypeError` for what observes nothing."""

    _all: tuple[object, ...] = field(default=(), converter=_checked)

    def joined_by(self, more: Iterable[object]) -> "Observers":
        """These, then those."""
        joining = tuple(more)
        return Observers((*self._all, *joining)) if joining else self

    @property
    def watch_activity(self) -> bool:
        """Whether one of them wants to be told of every change of an activity."""
        return any(hasattr(observer, "on_activity") for observer in self._all)

    def tell(self, event: str, *about: object) -> list[Interrupt]:
        """Tell them; what one raises is logged. Returns the interrupts among it."""
        met: list[Interrupt] = []
        if not self._all:
            return met
        try:
            for observer in self._all:
                try:
                    if (tell := getattr(observer, event, None)) is not None:
                        tell(*about)
                except BaseException as raised:
                    met += interrupts(raised)
                    log.exception("observer %s raised in %s", type(observer).__name__, event)
            return met
        finally:
            del met  # a frame that keeps an exception that was raised through it is kept by it
