"""How the outcome of an activity is judged: five questions, in this order, whatever it returned or raised (L14a).

Pure decisions over what the driver saw: its own scopes, the clock, and what came out. Foreign code swallows
cancellations, keeps old ones and raises groups, so what it raised is asked last.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import trio
from attrs import evolve, frozen

from rollout_fsm.errors import ErrorRecord, RolloutError, TurnRefused, attribute, leaves, record, text

Interrupt: TypeAlias = KeyboardInterrupt | SystemExit


@frozen(kw_only=True)
class Failure:
    """A failure that came with a trigger. The row that is taken decides what becomes of it, unless it `stands`: then it
    is on the trace whatever the row says, but for a caller's lifetime bug (L3, L13, L63)."""

    error: ErrorRecord
    stands: bool = False


@frozen(kw_only=True)
class Outcome:
    """A trigger, and what came with it."""

    trigger: str
    failures: Sequence[Failure] = ()
    condition: str | None = None
    """The stop condition that the trigger gives."""
    left_early: bool = False
    """Whether the activity did not end by itself, so that what it started must be stopped (L13)."""
    lost: Sequence[str] = ()
    """Exceptions, as text, that an interruption or a deadline overrules if it comes to that."""
    warning: str | None = None
    """The kind of warning under which `lost` goes on the trace; None: it does not."""


@frozen(kw_only=True)
class Blame:
    """Which boundary is being crossed, and what is being done there (L14, L40)."""

    boundary: type[RolloutError]
    doing: str
    note: str = ""
    """What a timeout's message adds."""

    def timed_out(self, *, elapsed: float, setting: str, limit: float) -> ErrorRecord:
        """The failure of a bound that ran out: what was running, the setting, the time (L14)."""
        said = f"{self.doing} timed out after {elapsed:g} s (timeouts.{setting} = {limit:g} s{self.note})"
        return record(self.boundary(said))

    def of(self, errors: Iterable[BaseException]) -> list[Failure]:
        """The leaves of what was raised, each under its type (L40)."""
        return [Failure(error=record(attribute(error, self.boundary, self.doing))) for error in errors]


def interrupts(error: BaseException | None) -> list[Interrupt]:
    """The KeyboardInterrupts and SystemExits among what was raised: cancellations, wherever they come from (L14a)."""
    return [] if error is None else [leaf for leaf in leaves(error) if isinstance(leaf, KeyboardInterrupt | SystemExit)]


def plain(error: BaseException | None) -> list[BaseException]:
    """What was raised, leaf by leaf, without what only passes an interruption on."""
    if error is None:
        return []
    return [leaf for leaf in leaves(error) if not isinstance(leaf, trio.Cancelled | KeyboardInterrupt | SystemExit)]


def failed(error: BaseException, boundary: type[RolloutError], doing: str) -> list[BaseException]:
    """What went wrong, leaf by leaf; a Cancelled that nobody's scope sent is a failure like any other (L14a)."""
    return plain(error) or [nobodys(boundary, doing)]


def nobodys(boundary: type[RolloutError], doing: str) -> RolloutError:
    """The failure that a Cancelled is which nobody's scope sent (L14a)."""
    return boundary(f"{doing} failed: it raised Cancelled although nothing was cancelled")


def is_cancelled() -> bool:
    """Whether a scope around this task is cancelled or past its deadline; to be asked outside of the scope that is not
    meant (L14a)."""
    deadline = trio.current_effective_deadline()
    return deadline != math.inf and deadline <= trio.current_time()


async def meet_cancellation() -> None:
    """Raise a fresh cancellation if this task is cancelled: one that came may be kept by foreign code, which would keep
    what it was raised through. As trio's `checkpoint_if_cancelled`, in a step less."""
    if trio.current_effective_deadline() > -math.inf:
        await trio.lowlevel.checkpoint_if_cancelled()
    else:
        await trio.sleep_forever()  # it ends at once


def pass_on(error: BaseException | None) -> None:
    """Raise what was raised, as it came, if there is an interrupt in it."""
    try:
        if error is not None and interrupts(error):
            raise error
    finally:
        del error  # a frame that keeps an exception which it raises is kept by it


def bare(error: BaseException) -> BaseException:
    """What is to be raised of what was raised: the interrupt in it, never a group of one (L70)."""
    found: list[BaseException] = [*(interrupts(error) or leaves(error))]
    return found[0] if len(found) == 1 or isinstance(found[0], KeyboardInterrupt | SystemExit) else error


def lost(errors: Sequence[BaseException]) -> list[str]:
    """Exceptions as the text of a warning. A refusal that was passed on is none (L16)."""
    return [text(error) for error in errors if not isinstance(error, TurnRefused)]


def judge(
    *,
    cancelled: bool,
    expired: bool,
    timeout: Callable[[], ErrorRecord | None],
    error: BaseException | None,
    outcome: Outcome | None,
    blame: Blame,
    standing: Sequence[Failure] = (),
    kept: Sequence[str] = (),
) -> Outcome:
    """The outcome of an activity (L14a).

    `cancelled`: questions 1 and 2. `expired`: the deadline had passed when the foreign code returned. `timeout`: what
    that means, None if it is no failure. `error`: what was raised, if anything. `outcome`: what was returned, if
    anything. `standing`: failures that stand whatever the verdict, `kept`: exceptions as text that the activity took
    for overruled.
    """

    def overruled() -> tuple[str, ...]:
        return (*kept, *(outcome.lost if outcome else ()), *lost(plain(error)))

    if cancelled:
        return Outcome(trigger="cancel", failures=tuple(standing), lost=overruled(), warning="after_cancel")
    if expired:
        ran_out = timeout()
        late = [] if ran_out is None else [Failure(error=ran_out)]
        return Outcome(trigger="timed_out", failures=(*standing, *late), lost=overruled(), warning="after_timeout")
    if error is not None:
        own = blame.of(failed(error, blame.boundary, blame.doing))
        return Outcome(trigger="errored", failures=(*standing, *own))
    if outcome is None:
        raise TypeError(f"{blame.doing}: the activity returned no outcome")
    return evolve(outcome, failures=(*standing, *outcome.failures), lost=()) if standing or outcome.lost else outcome
