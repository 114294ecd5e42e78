"""The threads of boxes: limits of their own, so that no other code that holds threads can keep a box from its work.

Ending has a limit apart from files, since a slow disk must not keep programs alive.
"""

import trio

_ending: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("rollout_fsm_ending")
_names: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("rollout_fsm_names")
_files: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("rollout_fsm_files")


def ending_limiter() -> trio.CapacityLimiter:
    """Threads for ending programs and removing workspaces."""
    return _limiter(_ending, 8)


def file_limiter() -> trio.CapacityLimiter:
    """Threads for reading, writing and looking for files."""
    return _limiter(_files, 16)


def name_limiter() -> trio.CapacityLimiter:
    """Threads for looking names up, for all proxies: a resolver that does not answer holds its thread."""
    return _limiter(_names, 32)


def _limiter(variable: trio.lowlevel.RunVar[trio.CapacityLimiter], tokens: int) -> trio.CapacityLimiter:
    try:
        return variable.get()
    except LookupError:
        limiter = trio.CapacityLimiter(tokens)
        variable.set(limiter)
        return limiter
