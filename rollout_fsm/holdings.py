"""What a rollout holds, and how it lets go: newest first, each step attempted once and bounded, whatever the others did
(L51, L55, L70)."""

import logging
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import trio
from attrs import define, field, frozen

from rollout_fsm.outcome import Interrupt, interrupts, plain
from rollout_fsm.overdue import Overdue
from rollout_fsm.trace import TraceWarning

log = logging.getLogger("rollout_fsm")

Kind: TypeAlias = Literal["close", "cleanup", "leaked"]
"""The kind of warning that a failing step is: a session, tool server or slot; `harness.cleanup`; a runtime."""
Setting: TypeAlias = Literal["close", "release"]


@frozen(kw_only=True, eq=False)
class Held:
    """One thing that is held."""

    kind: Kind
    name: str
    """What a warning calls it, the runtime's with its name."""
    undo: Callable[[], Awaitable[None]] = field(repr=False)
    setting: Setting
    bound: float
    """Seconds, `timeouts.<setting>`."""

    def doing(self) -> str:
        """What is being done, in the log."""
        return f"the release of the {self.name}"


@define(eq=False)
class Holdings:
    """Everything that a rollout holds, oldest first. What is held is registered before, or in the very step in which,
    it is had (L8)."""

    rollout: str
    overdue: Overdue = field(repr=False)
    warn: Callable[[TraceWarning], None] = field(repr=False)
    held: list[Held] = field(factory=list, init=False)
    struck: list[Interrupt] = field(factory=list, init=False, repr=False)
    """KeyboardInterrupts and SystemExits that came out of release steps."""

    def hold(self, held: Held) -> None:
        """From now on this is to be released."""
        self.held.append(held)

    async def release(self, *kinds: Kind) -> None:
        """Release what is held of these kinds, newest first. Shielded by the caller; raises nothing."""
        for step in [held for held in reversed(self.held) if held.kind in kinds]:
            self.held.remove(step)  # before it is tried: once, whatever comes
            await self._undo(step)

    async def _undo(self, step: Held) -> None:
        error: BaseException | None = None
        started = trio.current_time()
        token = self.overdue.begin(deadline=started + step.bound, rollout=self.rollout, doing=step.doing)
        with trio.CancelScope(deadline=started + step.bound, shield=True):
            try:
                await step.undo()
            except GeneratorExit:
                raise
            except BaseException as raised:  # noqa: BLE001  (said below)
                error = raised
        self.overdue.end(token)
        elapsed = trio.current_time() - started
        self.struck += interrupts(error)
        what = {
            "close": "did not close",
            "cleanup": "was not cleaned up",
            "leaked": "could not be stopped and may be leaked",
        }[step.kind]
        raised_text = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in plain(error))
        if elapsed >= step.bound:
            bound = f"within {step.bound:g} s (timeouts.{step.setting}), {elapsed:g} s passed"
            self.warn(
                TraceWarning(
                    kind=step.kind, message=f"{step.name} {what} {bound}" + (f": {raised_text}" if raised_text else "")
                )
            )
        elif error is not None:
            self.warn(
                TraceWarning(kind=step.kind, message=f"{step.name} {what}: {raised_text or type(error).__name__}")
            )
        error = None
