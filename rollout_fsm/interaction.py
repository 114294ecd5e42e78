"""An interaction: the caller is the user, and speaks in turns with an agent."""

from collections.abc import Iterable
from types import TracebackType

from attrs import define, field, frozen

from rollout_fsm.messages import Message
from rollout_fsm.rollout import Rollout
from rollout_fsm.trace import Trace


@frozen(kw_only=True)
class Segment:
    """What came of one turn of the user's."""

    messages: tuple[Message, ...]
    """What the exchange gained: the user's messages, replies, tool calls and their results, in the order of their
    commit."""
    last_reply: str | None
    """The text of the last reply that the agent gave in this turn; None if it gave none."""
    terminated: bool
    """Whether the exchange is over: the next turn would do nothing."""


@define(eq=False)
class Interaction:
    """A rollout whose user is the caller. Entering it opens the rollout; a failure there is data: the first turn is
    terminated (L7).

    Left normally the exchange is closed as `user_closed` and scored; by an exception it is failed with that (L43); by a
    cancellation it is aborted.
    """

    rollout: Rollout
    _open: bool = field(default=False, init=False)

    @property
    def trace(self) -> Trace:
        """The record of the rollout."""
        return self.rollout.trace

    async def turn(self, messages: str | Message | Iterable[Message | str] | None = None) -> Segment:
        """Say something and let the agent run until it yields. The first turn of a task with a prompt needs no words
        (L10)."""
        if not self._open:
            raise RuntimeError("turn() outside of the block; write: async with engine.interaction(...) as interaction")
        nodes, turns = len(self.trace.nodes), self.trace.num_turns
        await self.rollout.step(messages)
        return Segment(
            messages=tuple(node.message for node in self.trace.nodes[nodes:]),
            last_reply=self.trace.last_reply if self.trace.num_turns > turns else None,
            terminated=not self.rollout.can_go_on,
        )

    async def __aenter__(self) -> "Interaction":
        await self.rollout.__aenter__()
        self._open = True
        try:
            await self.rollout.open()
        except BaseException as error:
            await self.rollout.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        await self.rollout.__aexit__(kind, error, traceback)
