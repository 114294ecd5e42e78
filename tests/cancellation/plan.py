"""What is played: a case, where it is interrupted and by what, and which step of its release is broken.

A plan has a text, `tools scope@7 interrupt@12 session.close=hangs`, which names it in a failure and plays it again.
"""

from typing import Literal, cast, get_args

from attrs import field, frozen

Means = Literal["scope", "cancel", "interrupt", "waiter"]
"""The caller's scope; `rollout.cancel()` from elsewhere; Ctrl-C; the scope of another task that waits in `close()`."""

MEANS: tuple[Means, ...] = ("scope", "cancel", "interrupt")
"""Those that every rollout can meet."""


@frozen
class Strike:
    """An interruption, at the so many-th scheduling point."""

    means: Means
    point: int

    def __str__(self) -> str:
        return f"{self.means}@{self.point}"


@frozen
class Broken:
    """A step of the release that does not go as it should, and what it does instead (`faults.FAULTS`)."""

    step: str
    fault: str

    def __str__(self) -> str:
        return f"{self.step}={self.fault}"


@frozen
class Plan:
    """One play."""

    case: str
    strikes: tuple[Strike, ...] = ()
    broken: Broken | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        return " ".join(map(str, (self.case, *self.strikes, *([self.broken] if self.broken else []))))

    @classmethod
    def read(cls, text: str) -> "Plan":
        """The plan that the text says. Raises `ValueError` for what is none."""
        case, *words = text.split()
        strikes, broken = [], None
        for word in words:
            if "=" in word:
                step, _, fault = word.partition("=")
                broken = Broken(step, fault)
                continue
            means, _, point = word.partition("@")
            if means not in get_args(Means):
                raise ValueError(f"{word!r} is no interruption; write one of {', '.join(get_args(Means))}, and @POINT")
            strikes.append(Strike(cast(Means, means), int(point)))
        return cls(case, tuple(strikes), broken=broken)
