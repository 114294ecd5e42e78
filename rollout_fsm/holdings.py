"""What a rollout holds, and how it lets go: newest first, each step attempted once and bounded, whatever the others did
(L51, L55, L70)."""

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from attrs import define, field, frozen

from rollout_fsm.attempt import attempt
from rollout_fsm.errors import RolloutError, text
from rollout_fsm.foreign import call, is_given
from rollout_fsm.outcome import Interrupt, interrupts, plain
from rollout_fsm.overdue import Overdue
from rollout_fsm.trace import Trace, TraceWarning

WarningKind: TypeAlias = Literal["close", "cleanup", "leaked"]
"""What a failing step is: of a session, tool server or slot; of `harness.cleanup`; of a runtime."""
Setting: TypeAlias = Literal["close", "release"]

_FAILED = {
    "close": "did not close",
    "cleanup": "was not cleaned up",
    "leaked": "could not be stopped and may be leaked",
}


@frozen(eq=False)
class OwnMethod:
    """An optional method of somebody's that undoes something, looked up when its turn comes."""

    owner: object
    name: str
    given: tuple[object, ...] = ()
    """What it is called with."""

    async def __call__(self) -> None:
        """Call it."""
        await call(getattr(self.owner, self.name), *self.given)


@frozen(kw_only=True, eq=False)
class Held:
    """One thing that is held."""

    kind: WarningKind
    name: str
    """What a warning calls it, the runtime's with its name."""
    undo: Callable[[], Awaitable[None]] = field(repr=False)
    boundary: type[RolloutError]
    """Whose code is called."""
    setting: Setting
    bound: float
    """Seconds, `timeouts.<setting>`."""

    @property
    def is_due(self) -> bool:
        """Whether there is anything to call, as far as that is known by now."""
        return not isinstance(self.undo, OwnMethod) or is_given(self.undo.owner, self.undo.name)

    def doing(self) -> str:
        """What is being done, in the log."""
        return f"the release of the {self.name}"


@define(eq=False)
class Holdings:
    """Everything that a rollout holds, oldest first. What is held is registered before, or in the very step in which,
    it is had (L8)."""

    trace: Trace = field(repr=False)
    overdue: Overdue = field(repr=False)
    changed: Callable[[], None] = field(repr=False)
    """Told when another step begins."""
    current: Held | None = field(default=None, init=False)
    """What is being released."""
    held: list[Held] = field(factory=list, init=False)
    struck: list[Interrupt] = field(factory=list, init=False, repr=False)
    """KeyboardInterrupts and SystemExits that came out of release steps."""

    def hold(self, held: Held) -> None:
        """From now on this is to be released."""
        self.held.append(held)

    async def release(self, *kinds: WarningKind) -> None:
        """Release what is held of these kinds, newest first, each shielded. Raises nothing."""
        for step in [held for held in reversed(self.held) if held.kind in kinds]:
            self.held.remove(step)  # before it is tried: once, whatever comes
            if not step.is_due:
                continue
            self.current = step
            self.changed()
            if (bug := (await attempt(self._undo, step)).error) is not None:  # an exception that cannot be handled, say
                self._warn(step, f"{type(bug).__name__} while its failure was handled")
        self.current = None

    async def _undo(self, step: Held) -> None:
        undone = await self.overdue.attempt(step.undo, step.bound, rollout=self.trace.id, doing=step.doing, shield=True)
        error = undone.came.error
        if not undone.in_time:
            passed = f"within {step.bound:g} s (timeouts.{step.setting}), {undone.elapsed:g} s passed"
            why = [passed, *map(text, plain(error))]
        elif error is not None:
            why = [text(leaf) for leaf in plain(error)] or [text(error)]
        else:
            return
        self.struck += interrupts(error)
        self._warn(step, "; ".join(why))

    def _warn(self, step: Held, why: str) -> None:
        message = f"{step.name} {_FAILED[step.kind]}: {why}"
        self.trace.warnings.append(TraceWarning(kind=step.kind, message=message))
