"""What a proof finds: the property that does not hold, and the shortest path that shows it."""

from attrs import field, frozen

from rollout_fsm.machine.declaration import Row
from rollout_fsm.machine.paths import in_words


@frozen(kw_only=True)
class Fault:
    """A property that does not hold: which one, why, for which states, and the shortest path that shows it.

    The path starts in the initial state. It is empty where none can show it: for an unreachable state, an unused name.
    """

    property: str
    message: str
    states: tuple[str, ...] = ()
    path: tuple[Row, ...] = field(default=(), repr=in_words)

    def __str__(self) -> str:
        way = f" ({in_words(self.path)})" if self.path else ""
        return f"{self.property}: {self.message}{way}"
