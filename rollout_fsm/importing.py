"""What takes long and is done once, importing above all: when it is needed, in a thread, so that the event loop goes on
meanwhile.
"""

import importlib
import sys
from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")

_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("rollout_fsm_importing")


async def imported(module: str) -> None:
    """Have a module imported; importing it by name afterwards takes no time. Raises what importing it raises."""
    if module not in sys.modules:
        await aside(importlib.import_module, module)


async def aside(function: Callable[..., T], *arguments: object) -> T:
    """What the function returns, called in a thread, one such call after another. Raises what it raises."""
    try:
        limiter = _limiter.get()
    except LookupError:
        _limiter.set(limiter := trio.CapacityLimiter(1))
    return await trio.to_thread.run_sync(function, *arguments, limiter=limiter)
