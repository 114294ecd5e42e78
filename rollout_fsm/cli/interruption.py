"""Ctrl-C and its relatives during a run: the first one ends it, with everything released; none after it cuts that
short."""

import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio
from attrs import define, field

from rollout_fsm.cli.faults import EXIT_INTERRUPTED

__all__ = ["SIGNALS", "Interruption"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@define(eq=False)
class Interruption:
    """What signals do to a run. `scope` is what the first one cancels."""

    say: Callable[[str], None]
    unfinished: Callable[[], int]
    """How many rollouts are to be released."""
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    by: signal.Signals | None = field(default=None, init=False)
    """The first signal; None: the run was not interrupted."""

    @property
    def exit_code(self) -> int:
        """The exit code of an interrupted run: 130 after Ctrl-C, 143 after SIGTERM."""
        assert self.by is not None
        return EXIT_INTERRUPTED + self.by

    @contextmanager
    def receiving(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """Within the block signals are received; what it yields is to be run as a task, shielded from the run's end."""
        heard = [
            which for which in SIGNALS if signal.getsignal(which) is not signal.SIG_IGN
        ]  # nohup, and `&` in scripts
        if not heard:
            yield trio.sleep_forever
            return
        with trio.open_signal_receiver(*heard) as signals:

            async def watch() -> None:
                async for number in signals:
                    self._received(signal.Signals(number))

            yield watch

    def _received(self, which: signal.Signals) -> None:
        left = _rollouts(self.unfinished())
        if self.by is None:
            self.by = which
            self.say(f"{_NAMES[which]}: releasing {left}; what has finished is on disk")
            self.scope.cancel()
        else:
            self.say(f"still releasing {left}; each step of it has a bound, and it is not cut short")


_NAMES = {signal.SIGINT: "interrupted", signal.SIGTERM: "told to end", signal.SIGHUP: "the terminal is gone"}


def _rollouts(count: int) -> str:
    return f"{count} rollout{'' if count == 1 else 's'}"
