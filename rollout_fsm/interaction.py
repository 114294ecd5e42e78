"""An interaction: the caller is the user, and speaks in turns with an agent."""

from types import TracebackType

from attrs import define, field, frozen

from rollout_fsm.errors import RolloutBusyError
from rollout_fsm.message_json import Said
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
    _entered: bool = field(default=False, init=False)
    _open: bool = field(default=False, init=False)

    @property
    def trace(self) -> Trace:
        """The record of the rollout."""
        return self.rollout.trace

    async def turn(self, messages: Said | None = None) -> Segment:
        """Say something and let the agent run until it yields.

        A text is a user's message; dicts such as {"role": "user", "content": "hi"} are messages. The first turn of a
        task with a prompt needs no words (L10); an empty text is said as that. Once the exchange is over, a turn does
        nothing and is terminated (L11). Raises `TypeError` with nothing to say and for what cannot be said,
        `FormatError` (a `ValueError`) for a dict that is no message, `RolloutBusyError` while another turn goes on,
        `RuntimeError` outside of the block; nothing has changed then.
        """
        if not self._open:
            raise RuntimeError(self._outside())
        nodes, turns = len(self.trace.nodes), self.trace.num_turns
        try:
            await self.rollout.step(messages)
        except RolloutBusyError:
            raise RolloutBusyError(
                f"turn() of the interaction {self.trace.id} while the turn before it goes on: user and agent speak in "
                f"turns. Await that turn, then say what comes next; to end it early, use rollout.stop(...) or "
                f"rollout.cancel(); for another conversation at the same time, open another interaction"
            ) from None
        return Segment(
            messages=tuple(node.message for node in self.trace.nodes[nodes:]),
            last_reply=self.trace.last_reply if self.trace.num_turns > turns else None,
            terminated=not self.rollout.can_go_on,
        )

    async def __aenter__(self) -> "Interaction":
        if self._entered:
            raise RuntimeError(
                f"the interaction {self.trace.id} is entered once; for another conversation, call "
                f"engine.interaction(...) again"
            )
        self._entered = True
        await self.rollout.__aenter__()
        try:
            await self.rollout.open()
        except BaseException as error:
            await self.rollout.__aexit__(type(error), error, error.__traceback__)
            raise
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        await self.rollout.__aexit__(kind, error, traceback)

    def _outside(self) -> str:
        if not self._entered:
            return "turn() before the block; write: async with engine.interaction(...) as interaction: await turn(...)"
        return (
            f"turn() after the block: the interaction {self.trace.id} is over, and what came of it is in its trace; "
            f"open another one with async with engine.interaction(...)"
        )
