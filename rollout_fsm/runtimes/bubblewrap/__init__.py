"""The isolated runtime: a box made by bubblewrap, as root or as an ordinary user."""

from rollout_fsm.runtimes.bubblewrap.limits import BoxLimits
from rollout_fsm.runtimes.bubblewrap.runtime import BubblewrapRuntime

__all__ = ["BoxLimits", "BubblewrapRuntime"]
