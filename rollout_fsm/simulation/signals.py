"""Scripted signals: rewards and metrics as methods that a task or a harness can bear."""

from collections.abc import Awaitable, Callable, Sequence

from rollout_fsm.hooks import metric, reward
from rollout_fsm.simulation.scenario import Signal
from rollout_fsm.simulation.stage import Stage

Method = Callable[..., object]


def rewards(signals: Sequence[Signal], stage: Stage) -> dict[str, Method]:
    """The rewards, by name."""
    return {signal.name: reward(weight=signal.weight)(_measure(signal, stage)) for signal in signals}


def metrics(signals: Sequence[Signal], stage: Stage) -> dict[str, Method]:
    """The metrics, by name."""
    return {signal.name: metric(_measure(signal, stage)) for signal in signals}


def _measure(signal: Signal, stage: Stage) -> Callable[[object], Awaitable[object]]:
    async def measure(self: object) -> object:
        with stage.on(f"score.{signal.name}", "scoring", f"score.{signal.name}"):
            await stage.timeline.spend(signal.delay, ignore_cancel=signal.ignore_cancel)
            if signal.error is not None:
                raise signal.error.make()
            return signal.value.returned

    return measure
