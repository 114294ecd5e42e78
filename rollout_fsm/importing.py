"""Importing what takes long: when it is needed, in a thread, so that the event loop goes on meanwhile."""

import importlib
import sys

import trio

_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("rollout_fsm_importing")


async def imported(module: str) -> None:
    """Have a module imported; importing it by name afterwards takes no time. Raises what importing it raises."""
    if module in sys.modules:
        return
    try:
        limiter = _limiter.get()
    except LookupError:
        _limiter.set(limiter := trio.CapacityLimiter(1))
    await trio.to_thread.run_sync(importlib.import_module, module, limiter=limiter)
