"""Watches how much a box has written: the more often, the less room is left."""

import trio

from rollout_fsm.runtimes.bubblewrap.folder import Folder
from rollout_fsm.runtimes.bubblewrap.limits import BoxLimits
from rollout_fsm.runtimes.bubblewrap.usage import Usage, measure
from rollout_fsm.runtimes.threads import file_limiter

PAUSES = (0.05, 5.0)
"""Seconds between two measurements: the shortest pause, and the longest."""
FASTEST = (1 << 30, 100_000)
"""Bytes, and files, that programs are expected to write in a second at most."""
SHARE = 10
"""How many times as long as a measurement took the next one is waited for, at least."""


async def watch(folder: Folder, limits: BoxLimits, bubblewrap: int) -> str:
    """Measure until the box has written too much; returns what is too much, and by which setting. `bubblewrap` is the
    process, on the host, that all of the box descend from.
    """
    while True:
        began = trio.current_time()
        with folder.descriptors() as parts:
            usage = await trio.to_thread.run_sync(
                measure, list(parts.values()), bubblewrap, limits, limiter=file_limiter()
            )
        if (why := usage.beyond(limits)) is not None:
            return why
        await trio.sleep(max(pause(usage, limits), SHARE * (trio.current_time() - began)))


def pause(usage: Usage, limits: BoxLimits) -> float:
    """The seconds in which the room that is left could be filled, within `PAUSES`."""
    shortest, longest = PAUSES
    size, files = FASTEST
    return max(shortest, min(longest, (limits.workspace - usage.size) / size, (limits.files - usage.files) / files))
