"""The representative rollouts: what they do, how they are driven, how they end when nothing interrupts them."""

from collections.abc import Callable, Mapping
from contextlib import suppress

import trio
from attrs import field, frozen

from rollout_fsm import ProviderError, RolloutLimits, TurnRefused
from tests.cancellation import ways
from tests.cancellation.parties import CLOSED
from tests.cancellation.ways import Way
from tests.world import Act, World, raises

Script = Callable[[World], dict[str, Act]]


@frozen(kw_only=True)
class Case:
    """A rollout, or two side by side."""

    name: str
    way: Way = ways.whole
    served: tuple[str, ...] = ()
    turns: int = 1
    has_user: bool = False
    borrowed: bool = False
    stop: str | None = None
    """The stop condition that its caller sets before it opens."""
    limits: RolloutLimits = field(factory=RolloutLimits)
    script: Script = lambda world: {}
    ends: str = "completed"
    errors: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of its release, newest first; the kill of the agent, which precedes them, is the last."""
        tools = (f"tools.stop:{name}" for name in reversed(self.served))
        runtime = () if self.borrowed else ("runtime.stop",)
        return ("session.close", *tools, CLOSED, "harness.cleanup", *runtime, "runtime.kill")


def _refused(world: World) -> dict[str, Act]:
    """A harness that asks for a turn too many, and takes its time to leave."""

    async def segment() -> None:
        assert world.session is not None
        await world.session.turn()
        with suppress(TurnRefused):
            await world.session.turn("and on")
        await trio.lowlevel.checkpoint()

    return {"segment": segment}


def _by_name(*cases: Case) -> Mapping[str, Case]:
    return {case.name: case for case in cases}


DRIVEN = _by_name(
    Case(name="plain"),
    Case(name="tools", served=("a", "b"), turns=2),
    Case(name="interaction", way=ways.three_segments, has_user=True),
    Case(name="borrowed", borrowed=True),
    Case(
        name="failing",
        script=lambda world: {"model": raises(ProviderError, "the provider is down")},
        ends="failed",
        errors=("ProviderError",),
    ),
    Case(name="stopped", stop="operator"),
    Case(name="refused", limits=RolloutLimits(max_turns=1), script=_refused),
)
"""Driven by their verbs, each in its own block."""

ENGINES = _by_name(
    Case(name="unmanaged", way=ways.unmanaged),
    Case(name="run", way=ways.run, served=("a",)),
    Case(name="talk", way=ways.interaction, has_user=True),
    Case(name="pair", way=ways.pair, served=("a",)),
    Case(name="batch", way=ways.batch, served=("a",)),
)
"""Driven, or ended, by the engine."""

WAITED = _by_name(
    Case(name="awaited", way=ways.waited_for(gap=False)),
    Case(name="overtaken", way=ways.waited_for(gap=True), served=("a",)),
)
"""Another task waits in `close()`: for the caller; or it closes, and the caller waits for it."""

CASES: Mapping[str, Case] = {**DRIVEN, **ENGINES, **WAITED}
