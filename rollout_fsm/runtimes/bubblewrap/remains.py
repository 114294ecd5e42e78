"""The processes of a box as they are seen from outside of it: found by what they bear, and ended.

Bubblewrap, which lives as long as the box, bears the box's marker in its environment. The first process is its child,
with which the kernel ends all others.
"""

import signal
import sys
from functools import partial

import trio
from attrs import frozen

from rollout_fsm.runtimes.looks import looks
from rollout_fsm.runtimes.processes import Box, Strike
from rollout_fsm.runtimes.table import Process

PATIENCE = 5.0
"""Seconds that killed processes are waited for before they are called survivors."""
PAUSES = (0.002, 0.1)
"""Seconds between two looks while processes die: the first pause, and the longest that it is doubled to."""


@frozen
class Remains:
    """The living processes of a box."""

    all: list[Process]

    @property
    def programs(self) -> list[Process]:
        """Those that are neither bubblewrap's nor the first process, its child."""
        bubblewrap = {process.pid for process in self.all if process.serial is not None}
        return [each for each in self.all if each.pid not in bubblewrap and each.parent not in bubblewrap]


async def living(marker: str) -> Remains:
    """What lives of a box."""
    return Remains(await looks().strike(partial(_strike, marker, 0)))


async def end(marker: str) -> list[Process]:
    """Kill every process of a box and wait for it; returns the survivors. Shielded, and bounded by `PATIENCE`."""
    pause, longest = PAUSES
    until = trio.current_time() + PATIENCE
    found: list[Process] = []
    with trio.CancelScope(shield=True):
        while (found := await looks().strike(partial(_strike, marker, signal.SIGKILL))) and trio.current_time() < until:
            await trio.sleep(pause)
            pause = min(2 * pause, longest)
    return found


def _strike(marker: str, signum: int) -> Strike:
    return Strike(box=Box(marker=marker, led={}, orphaned={}), wanted=range(sys.maxsize), signum=signum)
