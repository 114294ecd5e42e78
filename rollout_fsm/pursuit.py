"""One owed rollout over its attempts: the number of the one that runs, what the earlier ones came to, and whether
another follows."""

import logging
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import define, field

from rollout_fsm.errors import text
from rollout_fsm.keeping import Keeper
from rollout_fsm.messages import JSON
from rollout_fsm.outcome import Interrupt, interrupts, plain
from rollout_fsm.past import NO_PAST, Past, told_of
from rollout_fsm.retry import RetryPolicy, attempt_record
from rollout_fsm.trace import Trace

if TYPE_CHECKING:
    from rollout_fsm.journal import Attempt

log = logging.getLogger("rollout_fsm")

ATTEMPTS = "attempts"
"""Where in `trace.info` the last attempt tells of those before it."""


NEVER = RetryPolicy()
"""Without a policy nothing is tried again."""


@define(eq=False)
class Pursuit:
    """The attempts of one owed rollout. Each is a fresh trace and a fresh runtime."""

    policy: RetryPolicy = NEVER
    earlier: tuple[JSON, ...] = ()
    """What the attempts before this one came to, oldest first."""
    cut_off: int = 0
    """How many of them ended with their process: the policy does not count them."""
    again: float | None = field(default=None, init=False)
    """Seconds until another attempt; None if the one that was judged last is the last."""

    @classmethod
    def of(cls, settings: Mapping[str, object], past: Past = NO_PAST) -> "Pursuit":
        """The pursuit that was asked for, of a rollout with this past."""
        policy = settings.get("retry")
        return cls(policy if isinstance(policy, RetryPolicy) else NEVER, tuple(past.earlier), past.cut_off)

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs, or that comes next: 1 for the first."""
        return len(self.earlier) + 1

    def cuts_off(self, left: "Attempt") -> None:
        """An attempt that was to be gone on with ended with its process after all."""
        self.earlier += (told_of(left),)
        self.cut_off += 1

    def next_id(self, given: str | None) -> str:
        """The id of the attempt that comes next: uuid4 hex, unless one was given."""
        if given is None:
            return uuid.uuid4().hex
        return given if self.attempt == 1 else f"{given}-{self.attempt}"

    def judge(self, trace: Trace, *, borrowed: bool, goes_on: bool, keeper: Keeper | None) -> list[Interrupt]:
        """An attempt has ended: whether another follows, and what the trace tells of those before it. Raises nothing;
        returns the interrupts that a back-off of the embedder's own raised."""
        met: list[Interrupt] = []
        self.again = None
        if self.earlier:
            note(trace, ATTEMPTS, list(self.earlier))
        again = self._wait(trace, borrowed, met) if goes_on else None
        if again is not None:
            self.earlier += (attempt_record(trace),)
            if keeper is not None:
                keeper.followed(self.earlier[-1])
        self.again = again
        try:
            return met
        finally:
            del met  # a frame that keeps an exception that was raised through it is kept by it

    def _wait(self, trace: Trace, borrowed: bool, met: list[Interrupt]) -> float | None:
        try:
            return self.policy.again(trace, attempt=self.attempt - self.cut_off, borrowed=borrowed)
        except BaseException as error:  # noqa: BLE001  (a back-off of the embedder's own, which may raise anything)
            met += interrupts(error)
            said = [text(leaf) for leaf in plain(error)]
            if said or not met:
                why = "; ".join(said) or "it raised Cancelled although nothing was cancelled"
                log.error("the back-off of rollout %s failed, so it is not retried: %s", trace.id, why)
            return None
        finally:
            del met


def note(trace: Trace, name: str, value: JSON) -> None:
    """Put something in a trace's `info`, whatever hooks have put in the place of that."""
    trace.info = {**(trace.info if isinstance(trace.info, dict) else {}), name: value}
