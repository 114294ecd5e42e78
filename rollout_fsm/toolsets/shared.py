"""A toolset that many rollouts use: started once, with an address of its own for each of them."""

from rollout_fsm.toolset import Toolset

__all__ = ["SharedToolset"]


class SharedToolset(Toolset):
    """`SEARCH = SharedToolset(StdioToolset(["search-server"]))`, and in each task `toolsets()` returns `[SEARCH]`.

    The engine starts what is shared when the first rollout needs it, and stops it when the engine ends; each rollout
    has a URL of its own, which is revoked with it. It is started again for the next rollout if it crashed. A tool that
    asks for `task`, `trace`, `runtime` or `state` is given those of the rollout that calls it. What is shared belongs
    to no rollout: a program is not told of any rollout's state, and a toolset with a `start` of its own cannot be
    shared.
    """

    def __init__(self, toolset: Toolset, *, name: str | None = None) -> None:
        if not isinstance(toolset, Toolset) or isinstance(toolset, SharedToolset):
            raise TypeError(f"what is shared is a Toolset, not a {type(toolset).__name__}")
        if (type(toolset).start, type(toolset).stop) != (Toolset.start, Toolset.stop):
            raise TypeError(
                f"{type(toolset).__name__} has a start() or stop() of its own, which are one rollout's; share a "
                "toolset that the engine serves (@tool methods, StdioToolset, HttpToolset), and make it an async "
                "context manager if it holds something open"
            )
        self.shared = toolset
        self._name = name

    @property
    def name(self) -> str:
        """The name of what is shared, unless it was given another."""
        return self._name or self.shared.name

    def __repr__(self) -> str:
        return f"<SharedToolset {self.shared!r}>"
