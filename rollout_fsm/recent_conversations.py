"""The conversations that were stored lately, each known as a whole.

A harness sends its conversation again with each turn. Who goes on with one is recognised by comparing it with what was
sent before, which costs far less than looking up each message. A conversation is remembered only while looking up every
message of it would find it at that one place.
"""

from attrs import define, field, frozen

from rollout_fsm.messages import Message

RECENT = 16
"""How many conversations, gone on with in turn, are recognised as a whole."""

_NONE: frozenset[int] = frozenset()


@frozen(eq=False)
class Conversation:
    """One that was stored. It stands at one node and nowhere else."""

    sent: tuple[Message, ...] = ()
    """As it came."""
    messages: tuple[Message, ...] = ()
    """As it is stored: rewritten, where an interceptor rewrote it."""
    node: int | None = None
    """Of its last message; None only for the empty one."""
    tokens: tuple[int, ...] = ()
    """Those along the path to the node."""
    ambiguous: frozenset[int] = _NONE
    """Every node where one of its messages may stand, of those that may stand at several."""


EMPTY = Conversation()
"""What every other one goes on from."""


@define(eq=False, repr=False)
class RecentConversations:
    """The last few conversations, the one that was gone on with last at the end."""

    _lengths: dict[Conversation, int] = field(factory=dict, init=False)
    ambiguous: bool = field(default=False, init=False)
    """Whether one of them had a message that may stand at several nodes."""

    def longest(self, messages: tuple[Message, ...], *, as_sent: bool) -> Conversation:
        """The one that has most of the request, `EMPTY` if none does: by what was sent, or by what was stored."""
        found, known = EMPTY, 0
        for conversation, length in self._lengths.items():
            if known < length <= len(messages):
                said = conversation.sent if as_sent else conversation.messages
                if messages[length - 1] == said[-1] and messages[:length] == said:
                    found, known = conversation, length
        return found

    def remember(self, conversation: Conversation, *, instead_of: Conversation) -> None:
        """Recognise a conversation from now on, in place of the one that it went on with."""
        self._lengths.pop(instead_of, None)
        self._lengths[conversation] = len(conversation.messages)
        self.ambiguous = self.ambiguous or bool(conversation.ambiguous)
        if len(self._lengths) > RECENT:
            del self._lengths[next(iter(self._lengths))]

    def forget(self, parent: int, *, twin: bool) -> None:
        """Something new is below a node: forget the conversations that may stand there as well now. `twin`: what stands
        there already has its key."""
        for conversation in [*self._lengths]:
            if parent in conversation.ambiguous or (twin and parent != conversation.node):
                del self._lengths[conversation]
