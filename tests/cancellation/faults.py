"""What a step of a release may do instead of its work (L51, L55, L70, L74), and what must be said of it."""

from collections.abc import Callable

import trio
from attrs import frozen

from tests.world import Act, stray, swallows


class StubbornError(BaseException):
    """What no handler of `Exception` catches."""


def _group() -> BaseExceptionGroup[BaseException]:
    return BaseExceptionGroup("both", [ValueError("one"), StubbornError("other")])


@frozen(kw_only=True)
class Fault:
    """One way to fail, or to take one's time."""

    act: Callable[[float], Act]
    """What the step does, given its bound in seconds."""
    said: tuple[str, ...] = ()
    """What the warning shows; empty: there is none."""
    bounds: float = 0.0
    """How many times its bound the step takes."""
    kills: bool = False
    """Whether the agent counts as dead, if the step is its kill: a yes after its bound is none (L13, L74)."""
    raised: Callable[[], BaseException] | None = None
    """What a step does that is not async, as the slot's."""


def _raising(raised: Callable[[], BaseException], *said: str) -> Fault:
    async def act() -> object:
        await trio.lowlevel.checkpoint()
        raise raised()

    return Fault(act=lambda bound: act, said=said, raised=raised)


def _sleeping(bounds: float, *, deaf: bool) -> Callable[[float], Act]:
    def given(bound: float) -> Act:
        async def act() -> object:
            with trio.CancelScope(shield=deaf):
                await trio.sleep(bounds * bound)
            return None

        return act

    return given


async def _survives() -> object:
    await trio.lowlevel.checkpoint()
    return False


FAULTS = {
    "raises": _raising(lambda: ValueError("no"), "ValueError: no"),
    "raises_base": _raising(lambda: StubbornError("no"), "StubbornError: no"),
    "raises_group": _raising(_group, "ValueError: one", "StubbornError: other"),
    "strikes": _raising(KeyboardInterrupt, "KeyboardInterrupt"),
    "exits": _raising(lambda: SystemExit(3), "SystemExit: 3"),
    "stray": Fault(act=lambda bound: stray, said=("Cancelled",)),
    "hangs": Fault(act=lambda bound: trio.sleep_forever, said=("(timeouts.",), bounds=1),
    "swallows": Fault(act=lambda bound: swallows, said=("(timeouts.",), bounds=1),
    "deaf": Fault(act=_sleeping(3, deaf=True), said=("(timeouts.",), bounds=3),
    "slow": Fault(act=_sleeping(0.5, deaf=False), bounds=0.5, kills=True),
    "survives": Fault(act=lambda bound: _survives),
}
"""The faults by name; `survives` is a kill that says so (L13)."""

INTERRUPTS = {"strikes": KeyboardInterrupt, "exits": SystemExit}
"""The faults that interrupt whoever drives the release."""


def faults_of_step(step: str) -> list[str]:
    """What this step can be told to do."""
    if step == "slot.close":
        return [name for name, fault in FAULTS.items() if fault.raised is not None]
    return [name for name in FAULTS if name != "survives" or step == "runtime.kill"]
