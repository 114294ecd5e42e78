"""What the tests of a harness have in common: how it is made and met, and what may be declared of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from rollout_fsm.conformance import check_trace
from rollout_fsm.engine import open_engine
from rollout_fsm.harness import Harness
from rollout_fsm.limits import RolloutTimeouts
from rollout_fsm.messages import Request, Response
from rollout_fsm.rollout import Rollout
from rollout_fsm.runtime import Runtime
from rollout_fsm.runtimes import LocalRuntime
from rollout_fsm.testing.contract import Contract
from rollout_fsm.testing.expecting import expect
from rollout_fsm.testing.harness.party import KitTask
from rollout_fsm.testing.party import KitModel
from rollout_fsm.trace import Trace

__all__ = ["HarnessChecks", "fine", "summary", "unwarned"]


class HarnessChecks(Contract):
    """The part that a subclass fills in. What is declared absent is skipped, and says so."""

    patience: ClassVar[float] = 20.0
    resumes: ClassVar[bool] = True
    """Whether a conversation goes on with further messages of the user's. If not, a second segment is a
    `HarnessError`."""
    uses_system_prompt: ClassVar[bool] = True
    """Whether the task's system prompt reaches the model."""
    uses_tools: ClassVar[bool] = True
    """Whether the model is shown the tools of the rollout's tool servers, and its calls are run."""

    def make(self) -> Harness:
        """A harness, as the `harness=` of a run takes it."""
        self.unfinished("make(self)", "your harness")

    def runtime(self, name: str) -> Runtime:
        """The box that the harness needs."""
        return LocalRuntime(name)

    def reply(self, request: Request) -> str | Response:
        """What the model says, so that the harness ends its segment."""
        return "done"

    def task(self, word: str | None, *, with_tools: bool = False) -> KitTask:
        """A task that has a word in its prompt; None: the user opens the conversation."""
        return KitTask(
            prompt=None if word is None else f"Remember the word {word}.",
            system_prompt="You know the word kit-system.",
            with_tools=with_tools,
        )

    def settings(self, model: KitModel | None = None, harness: Harness | None = None) -> dict[str, Any]:
        """What a rollout is run with."""
        start, bound = self.timeout, self.patience
        return {
            "harness": harness or self.make(),
            "model": model or KitModel(self.reply),
            "runtime": self.runtime,
            "timeouts": RolloutTimeouts(boot=start, setup=start, agent=bound, drain=bound, close=bound, release=bound),
        }

    async def ran(self, word: str, model: KitModel | None = None, *, with_tools: bool = False, **more: Any) -> Trace:
        """A rollout, run whole."""
        settings = {**self.settings(model), **more}
        async with open_engine() as engine:
            return await engine.run(self.task(word, with_tools=with_tools), **settings)

    @asynccontextmanager
    async def opened(self, word: str | None, model: KitModel | None = None) -> AsyncIterator[Rollout]:
        """A rollout with a user, opened, for a block after which it is over."""
        settings = self.settings(model)
        async with open_engine() as engine, engine.rollout(self.task(word), has_user=True, **settings) as rollout:
            await rollout.open()
            yield rollout


def fine(trace: Trace, change: str) -> None:
    """Expect a rollout that completed, without a warning."""
    expect(trace.ok and not trace.warnings, summary(trace), change)
    faults = check_trace(trace)
    expect(not faults, f"the trace does not conform: {'; '.join(faults)}", change)


def unwarned(trace: Trace, change: str) -> None:
    """Expect a release without a warning."""
    expect(not trace.warnings, summary(trace), change)


def summary(trace: Trace) -> str:
    """How a rollout ended, for a message."""
    state = trace.transitions[-1].target if trace.transitions else "created"
    said = [f"the rollout is {state} after {trace.num_turns} turns, stop={trace.stop_condition}"]
    said += [f"{error.type}: {error.message}" for error in trace.errors]
    said += [f"warning ({warning.kind}): {warning.message}" for warning in trace.warnings]
    return "; ".join(said)
