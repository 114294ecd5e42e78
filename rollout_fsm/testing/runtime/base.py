"""What the tests of a runtime have in common: how a box is made and unmade, and what may be declared of it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import trio

from rollout_fsm.attempt import attempt
from rollout_fsm.foreign import call
from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtime import Runtime
from rollout_fsm.testing.contract import Contract
from rollout_fsm.testing.runtime.box import Box

__all__ = ["RuntimeChecks"]


class RuntimeChecks(Contract):
    """The part that a subclass fills in. What is declared absent is skipped, and says so."""

    shell: ClassVar[Sequence[str]] = ("sh", "-c")
    """What runs a POSIX shell script in a box; the script is the next argument."""
    fetch: ClassVar[Sequence[str] | None] = None
    """A program that prints what the URL in its last argument answers, and fails where it cannot; None takes curl, wget
    or python3, whichever a box has."""
    flood: ClassVar[int] = 8 << 20
    """Bytes that are more than `run` keeps of an output."""
    has_leases: ClassVar[bool] = True
    """Whether a box is found again after its process has died (`lease`, `reclaim`, `adopt`)."""
    isolated: ClassVar[bool] = True
    """Whether programs see nothing of the machine's other processes, boxes and services."""
    network: ClassVar[bool] = True
    """Whether programs can open connections at all, to the framework's own routes at least."""

    def make(self, name: str) -> Runtime:
        """A runtime of this name, as the factory that `runtime=` takes makes it."""
        self.unfinished("make(self, name)", "your runtime")

    def make_failing(self, name: str) -> Runtime | None:
        """A runtime whose `start` fails: of an image that does not exist, say. None: the test of that is skipped."""
        return None

    def boxed(self, runtime: Runtime) -> Box:
        """A runtime, to be asked questions."""
        return Box(runtime, self.shell, self.patience, self.fetch)

    @asynccontextmanager
    async def box(self, name: str = "kit", *, network: NetworkPolicy | None = None) -> AsyncIterator[Box]:
        """A box that is ready for setup, for a block; `network`: the policy that it is restricted to."""
        box = self.boxed(self.make(name))
        try:
            if network is not None:
                box.runtime.restrict(network)
            await call(box.runtime.start)
            await call(box.runtime.prepare_setup)
            yield box
            if not box.stopped:
                with self.in_time("stop()", "end in stop() whatever there is, by force at last"):
                    await box.stop()
        finally:
            if not box.stopped:  # the test has failed: what stopping raises now is not what it failed by
                with trio.move_on_after(self.patience, shield=True):
                    await attempt(box.stop)

    async def needs_fetching(self, box: Box) -> None:
        """Skip the test where no program in the box can ask for a URL."""
        if not self.network:
            self.skip("network is False: programs in this runtime open no connections")
        if self.fetch is None and (await box.fetch("http://127.0.0.1:9/")).exit_code == 127:
            self.skip("the box has none of curl, wget and python3: name a program by `fetch` on the test class")
