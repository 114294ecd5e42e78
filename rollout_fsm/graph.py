"""The message graph of one rollout (L82). No clock, no JSON, no hooks.

Each message is stored once, with its parent; a conversation is a path from a root. A prompt message that is already
there is shared by all who send it, while every committed reply is a node of its own: two calls that were answered alike
are two turns. Every count is kept as it grows, so that reading one costs the same after two turns and after thousands.
Who goes on with a conversation is recognised as a whole; what is new in it alone is looked up, by its key.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from operator import is_

from attrs import define, field, frozen

from rollout_fsm.messages import AssistantMessage, Message, Tokens
from rollout_fsm.recent_conversations import EMPTY, Conversation, RecentConversations

ROOT = -1
"""Stands for the parent of a first message where a node's index is called for."""

_NOTHING: Mapping[int, Message] = {}


@frozen(kw_only=True)
class MessageNode:
    """A message of the graph. `parent` is the index of the message before it, None for a first one (L82).

    `sampled` is true for what a model call of this rollout committed, and for nothing else. `timestamp` is in epoch
    seconds. The tokens are those that the message adds to its conversation, None where nobody recorded them: along a
    path to a reply that has them they are the very sequence that the model read and wrote. What it read since the last
    reply stands with the next one, since no endpoint says which message a token of its prompt belongs to; `mask` is
    true for what it wrote, and `logprobs` has a value for each of these.
    """

    parent: int | None = None
    message: Message
    sampled: bool = False
    timestamp: float = 0.0
    token_ids: tuple[int, ...] | None = None
    mask: tuple[bool, ...] | None = None
    logprobs: tuple[float, ...] | None = None


@frozen(eq=False)
class Match:
    """How a request was matched, for whoever stores it."""

    base: Conversation
    """The conversation that it goes on with."""
    sent: tuple[Message, ...]
    """The request as it came."""
    tokens: tuple[int, ...]
    """Those along the path to its last known message."""
    ambiguous: frozenset[int]
    """Every node where one of its known messages may stand, of those that may stand at several."""
    age: int
    """Of the graph. Once that has grown, the request may be found elsewhere."""


_UNMATCHED = Match(EMPTY, sent=(), tokens=(), ambiguous=EMPTY.ambiguous, age=-1)
"""Of a placement that no graph made: it is found anew."""


@frozen(kw_only=True)
class Placement:
    """Where a request stands in the graph.

    `parent` is the node of its last known message (None if none is known), `known` how many of its leading messages are
    known, and `messages` the request with each known message as it is stored: rewritten, where an interceptor rewrote
    it (L33).
    """

    parent: int | None
    known: int
    messages: tuple[Message, ...]
    _match: Match = field(default=_UNMATCHED, eq=False, repr=False)


@define(eq=False, repr=False)
class Graph:
    """Finds and stores conversations in a list of nodes. Only this class may lengthen the list."""

    nodes: list[MessageNode]
    num_turns: int = field(default=0, init=False)
    """How many of the nodes are replies."""
    last_reply: int | None = field(default=None, init=False)
    """The node of the newest reply."""
    _aliases: dict[tuple[int, Hashable], tuple[int, ...]] = field(factory=dict, init=False)
    """(parent, key) to the nodes there, for the originals of rewritten messages."""
    _originals: dict[int, list[Hashable]] = field(factory=dict, init=False)
    """The keys of these, by node."""
    _inner: set[int] = field(factory=set, init=False)
    """The nodes that have a child."""
    _twins: int = field(default=0, init=False)
    """How often something came to where there was something with its key, so that both fit."""
    _age: int = field(default=0, init=False)
    """How often the graph has grown."""
    _recent: RecentConversations = field(factory=RecentConversations, init=False)
    _by_key: dict[tuple[int, Hashable], tuple[int, ...]] | None = field(default=None, init=False)
    """(parent, key) to the nodes there; more than one only where replies were alike. None until it is asked for."""

    def __attrs_post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            self._count(index, node)

    def place(self, messages: Sequence[Message]) -> Placement:
        """Match a request against the graph, by what was sent or, where that was rewritten, by its original (L33).

        Of several places that fit, the one where most of the request is known is taken; then the one with the very same
        message object; then one that nobody has gone on from; then the newest.
        """
        sent = tuple(messages)
        return self._reach(sent, self._recent.longest(sent, as_sent=True), aliases=True)

    def store(
        self,
        messages: Sequence[Message],
        reply: AssistantMessage | None,
        originals: Mapping[int, Message] = _NOTHING,
        *,
        time: float,
        tokens: Tokens | None = None,
        placement: Placement | None = None,
    ) -> int | None:
        """Store what the graph does not have of a conversation, and the reply to it, if there is one, as a node of its
        own, whose index is returned.

        The messages are those that the model was shown, so they are matched by themselves alone and never as originals
        of others. `originals` maps positions to messages as they came, before a rewrite: they become aliases of their
        nodes. `placement` is what `place` said of the request. Where the model read known messages as other tokens than
        those that are stored (a template that leaves out earlier reasoning, say), the conversation goes on in a branch
        of its own from there.
        """
        shown, twins = tuple(messages), self._twins
        placed, certain = self._again(shown, placement)
        certain = certain or not (self._aliases or originals)
        match = placed._match
        parent, read = placed.parent, match.tokens
        if tokens is not None and tokens.prompt_ids[: len(read)] != read:
            parent, read = self._fork(parent, tokens.prompt_ids, time=time)
        for message in shown[placed.known :]:
            parent = self._add(MessageNode(parent=parent, message=message, timestamp=time))
        if originals:
            self._alias_all(parent, len(shown), originals)
        if certain and parent is not None and parent not in match.ambiguous and self._twins == twins:
            came = match if placement is None or not placement._match.sent else placement._match
            conversation = Conversation(came.sent, shown, parent, read, match.ambiguous)
            self._recent.remember(conversation, instead_of=came.base)
        if reply is None:
            return None
        if tokens is None:
            return self._add(MessageNode(parent=parent, message=reply, sampled=True, timestamp=time))
        new, written = tokens.prompt_ids[len(read) :], tokens.completion_ids
        return self._add(
            MessageNode(
                parent=parent,
                message=reply,
                sampled=True,
                timestamp=time,
                token_ids=(*new, *written),
                mask=(False,) * len(new) + (True,) * len(written),
                logprobs=tokens.logprobs,
            )
        )

    def branches(self) -> list[list[MessageNode]]:
        """Every path from a root to a leaf, in the order of the leaves."""
        leaves = (leaf for leaf in range(len(self.nodes)) if leaf not in self._inner)
        return [[self.nodes[at] for at in self._way(leaf, None)] for leaf in leaves]

    def has_child(self, node: int) -> bool:
        """Whether some conversation goes on after this message."""
        return node in self._inner

    def settle(self) -> None:
        """Nothing more will be stored: forget what only makes that fast. A request is still found where it was."""
        self._recent = RecentConversations()
        self._by_key = None

    # ---- where a conversation stands

    def _reach(self, messages: tuple[Message, ...], base: Conversation, *, aliases: bool) -> Placement:
        """Where the messages stand, of which the leading ones are the conversation's; with `aliases` by the originals
        of rewritten messages, too."""
        begun = len(base.messages)
        known, parent, ambiguous = self._follow(messages, begun, base, aliases=aliases)
        way, new = self._way(parent, base.node), messages[begun:]
        stored = tuple([self.nodes[at].message for at in way])
        sent = as_stored = messages
        untouched = base.sent is base.messages and stored == new[: len(stored)]
        same = not begun or messages[begun - 1] is base.messages[-1]
        if not (untouched and same and all(map(is_, stored, new))):
            as_stored = (*base.messages, *stored, *messages[known:])
            sent = as_stored if untouched else (*base.sent, *new)
        tokens = base.tokens + tuple(chain.from_iterable([self.nodes[at].token_ids or () for at in way]))
        match = Match(base, sent, tokens, ambiguous, self._age)
        return Placement(parent=parent, known=known, messages=as_stored, match=match)

    def _again(self, messages: tuple[Message, ...], placement: Placement | None) -> tuple[Placement, bool]:
        """Where the messages stand that the model was shown, by themselves alone; and whether what was sent in their
        place is found there, too, and nowhere else."""
        if placement is not None and placement._match.age == self._age:  # nothing was stored meanwhile
            if messages is placement.messages:
                return placement, True
            match, known = placement._match, placement.known
            if placement.parent not in match.ambiguous:
                base = Conversation(
                    match.sent[:known], placement.messages[:known], placement.parent, match.tokens, match.ambiguous
                )
                placed = self._reach(messages, base, aliases=False)
                return placed, placed.parent not in placed._match.ambiguous
        base = EMPTY if self._aliases else self._recent.longest(messages, as_sent=False)
        return self._reach(messages, base, aliases=False), False

    def _follow(
        self, messages: tuple[Message, ...], known: int, base: Conversation, *, aliases: bool
    ) -> tuple[int, int | None, frozenset[int]]:
        """Look up the messages after those of the conversation. Returns how many are known, the node of the last of
        these, and every ambiguous node where one of them may stand."""
        fits: tuple[int, ...] = (ROOT if base.node is None else base.node,)
        several: list[int] = []
        for message in messages[known:]:
            further = self._at(fits, message.key, aliases=aliases)
            if not further:
                break
            if len(further) > 1:
                several += further
            fits = further
            known += 1
        at = fits[0] if len(fits) == 1 else self._best(fits, messages[known - 1])
        return known, None if at == ROOT else at, base.ambiguous.union(several) if several else base.ambiguous

    def _at(self, parents: tuple[int, ...], key: Hashable, *, aliases: bool) -> tuple[int, ...]:
        """The nodes below any of the parents that have the key."""
        found: tuple[int, ...] = ()
        for parent in parents:
            found += self._children.get((parent, key), ())
            if aliases and self._aliases:
                found += self._aliases.get((parent, key), ())
        return found

    def _best(self, fits: tuple[int, ...], message: Message) -> int:
        """Of several nodes where a message may stand, the one that is taken."""
        return max(fits, key=lambda node: (self.nodes[node].message is message, node not in self._inner, node))

    def _way(self, node: int | None, above: int | None) -> list[int]:
        """The path to a node, from below another one that it leads through."""
        way = []
        while node is not None and node != above:
            way.append(node)
            node = self.nodes[node].parent
        return way[::-1]

    # ---- growing

    @property
    def _children(self) -> dict[tuple[int, Hashable], tuple[int, ...]]:
        """(parent, key) to the nodes there."""
        if self._by_key is None:
            self._by_key = {}
            for index, node in enumerate(self.nodes):
                place = (ROOT if node.parent is None else node.parent, node.message.key)
                self._by_key[place] = (*self._by_key.get(place, ()), index)
        return self._by_key

    def _add(self, node: MessageNode) -> int:
        index, parent = len(self.nodes), ROOT if node.parent is None else node.parent
        place = (parent, node.message.key)
        there = self._children.get(place, ())
        self._children[place] = (*there, index)
        self.nodes.append(node)
        self._count(index, node)
        self._grown(parent, twin=bool(there) or place in self._aliases)
        return index

    def _count(self, index: int, node: MessageNode) -> None:
        self._inner.add(ROOT if node.parent is None else node.parent)
        if node.sampled:
            self.num_turns += 1
            self.last_reply = index

    def _grown(self, parent: int, *, twin: bool) -> None:
        """Something new is below a node. `twin`: its key led to something else there before."""
        self._age += 1
        self._twins += twin
        if twin or self._recent.ambiguous:
            self._recent.forget(parent, twin=twin)

    def _alias(self, index: int, key: Hashable) -> None:
        parent = self.nodes[index].parent
        place = (ROOT if parent is None else parent, key)
        there = self._at((place[0],), key, aliases=True)
        if index not in there:
            self._aliases[place] = (*self._aliases.get(place, ()), index)
            self._originals.setdefault(index, []).append(key)
            self._grown(place[0], twin=bool(there))

    def _alias_all(self, node: int | None, length: int, originals: Mapping[int, Message]) -> None:
        """Make the originals aliases of their nodes in the conversation of this length that ends with the node."""
        for position in range(length - 1, min(originals) - 1, -1):
            assert node is not None
            if position in originals:
                self._alias(node, originals[position].key)
            node = self.nodes[node].parent

    def _fork(
        self, node: int | None, prompt_ids: tuple[int, ...], *, time: float
    ) -> tuple[int | None, tuple[int, ...]]:
        """Go on in copies of the nodes from where the model read other tokens than those that are stored: the same
        messages, read as others. Returns the last copy, and the tokens before the first."""
        way, read, alike = self._way(node, None), 0, 0
        for at in way:
            ids = self.nodes[at].token_ids or ()
            if prompt_ids[read : read + len(ids)] != ids:
                break
            read += len(ids)
            alike += 1
        parent = way[alike - 1] if alike else None
        for at in way[alike:]:
            parent = self._add(MessageNode(parent=parent, message=self.nodes[at].message, timestamp=time))
            for key in self._originals.get(at, ()):
                self._alias(parent, key)
        return parent, prompt_ids[:read]
