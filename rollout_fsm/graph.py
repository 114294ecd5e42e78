"""The message graph of one rollout, and what its tokens add up to (L81, L82). No clock, no JSON, no hooks.

Each message is stored once, with its parent; a conversation is a path from a root. A prompt message that is already
there is shared by all who send it, while every committed reply is a node of its own: two calls that were answered alike
are two turns. Every count is kept as it grows, so that reading one costs the same after two turns and after thousands.
Who goes on with a conversation is recognised by comparing it as a whole with what was sent before; what is new in it
alone is looked up, by its key.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from operator import is_

from attrs import define, field, frozen

from rollout_fsm.messages import AssistantMessage, Message, Tokens, Usage

ROOT = -1
"""Stands for the parent of a first message where a node's index is called for."""

RECENT = 16
"""How many conversations, gone on with in turn, are recognised as a whole."""

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
    sent: tuple[Message, ...] = field(default=(), eq=False, repr=False)
    """The request as it came."""
    fits: tuple[int, ...] = field(default=(ROOT,), eq=False, repr=False)
    """Every node where its last known message may stand; several where replies were alike."""
    passed: set[int] = field(factory=set, eq=False, repr=False)
    """Every node where one of the messages before may stand, of those that may stand at several."""
    tokens: tuple[int, ...] = field(default=(), eq=False, repr=False)
    """The tokens along the path to `parent`."""
    age: int = field(default=0, eq=False, repr=False)
    """The age of the graph when it was found."""
    follows: int = field(default=0, eq=False, repr=False)
    """The age of the one from which it was found."""


@define(eq=False, repr=False)
class Graph:
    """Finds and stores conversations in a list of nodes. Only this class may lengthen the list."""

    nodes: list[MessageNode]
    num_turns: int = field(default=0, init=False)
    """How many of the nodes are replies."""
    last_reply: int | None = field(default=None, init=False)
    """The node of the newest reply."""
    _children: dict[tuple[int, Hashable], tuple[int, ...]] = field(factory=dict, init=False)
    """(parent, key) to the nodes there; more than one only where replies were alike."""
    _aliases: dict[tuple[int, Hashable], tuple[int, ...]] = field(factory=dict, init=False)
    """The same, for the originals of rewritten messages."""
    _originals: dict[int, list[Hashable]] = field(factory=dict, init=False)
    """The keys of these, by node."""
    _inner: set[int] = field(factory=set, init=False)
    """The nodes that have a child."""
    _twins: int = field(default=0, init=False)
    """How often a second node came to where there was one, so that a conversation may be at several places at once."""
    _age: int = field(default=0, init=False)
    """How often the graph has grown."""
    _recent: dict[int, Placement] = field(factory=dict, init=False)
    """By age, conversations that were stored lately. Each is known as a whole, and would be found where it stands."""

    def __attrs_post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            self._register(index, node)

    def place(self, messages: Sequence[Message]) -> Placement:
        """Match a request against the graph, by what was sent or, where that was rewritten, by its original (L33).

        Of several places that fit, the one where most of the request is known is taken; then the one with the very same
        message object; then one that nobody has gone on from; then the newest.
        """
        return self._find(tuple(messages), aliases=True)

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
        parent, read = placed.parent, placed.tokens
        if tokens is not None and tokens.prompt_ids[: len(read)] != read:
            parent, read = self._fork(parent, tokens.prompt_ids, time=time)
        for message in shown[placed.known :]:
            parent = self._add(MessageNode(parent=parent, message=message, timestamp=time))
        if originals:
            self._alias_all(parent, len(shown), originals)
        if certain and parent is not None and self._twins == twins:
            self._remember(shown, parent, read, placed, placement or placed)
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
        return [[self.nodes[at] for at in self._way(leaf, None)[0]] for leaf in leaves]

    def has_child(self, node: int) -> bool:
        """Whether some conversation goes on after this message."""
        return node in self._inner

    # ---- where a conversation stands

    def _find(self, messages: tuple[Message, ...], *, aliases: bool) -> Placement:
        """Where it stands; with `aliases` by the originals of rewritten messages, too."""
        base, length = None, 0
        if aliases or not self._aliases:
            for placed in self._recent.values():
                known, said = placed.known, placed.sent if aliases else placed.messages
                if length < known <= len(messages) and messages[known - 1] == said[-1] and messages[:known] == said:
                    base, length = placed, known
        base = base or Placement(parent=None, known=0, messages=())
        return self._reach(messages, base, aliases=aliases)

    def _reach(self, messages: tuple[Message, ...], base: Placement, *, aliases: bool) -> Placement:
        """The same, from where its leading messages are known to stand."""
        known, fits, passed = base.known, base.fits, base.passed
        for message in messages[known:]:
            further = self._at(fits, message.key, aliases=aliases)
            if not further:
                break
            if len(fits) > 1:
                passed.update(fits)
            fits = further
            known += 1
        at = fits[0] if len(fits) == 1 else self._best(fits, messages[known - 1])
        parent = None if at == ROOT else at
        way, start = self._way(parent, base.parent)
        if start != base.parent:  # of replies that are alike it goes on from another one
            base = Placement(parent=None, known=0, messages=(), passed=passed, age=base.age)
        stored = tuple(self.nodes[node].message for node in way)
        last, new = base.known - 1, messages[base.known :]
        sent = as_stored = messages
        untouched = base.sent is base.messages and stored == new[: len(stored)]
        if not (untouched and (last < 0 or messages[last] is base.messages[last]) and all(map(is_, stored, new))):
            as_stored = (*base.messages[: base.known], *stored, *messages[known:])
            sent = as_stored if untouched else (*base.sent[: base.known], *new)
        return Placement(
            parent=parent,
            known=known,
            messages=as_stored,
            sent=sent,
            fits=fits,
            passed=passed,
            tokens=base.tokens + tuple(chain.from_iterable(self.nodes[node].token_ids or () for node in way)),
            age=self._age,
            follows=base.age,
        )

    def _again(self, messages: tuple[Message, ...], placement: Placement | None) -> tuple[Placement, bool]:
        """Where the messages stand that the model was shown, by themselves alone; and whether what was sent in their
        place is found there, too, and nowhere else."""
        if placement is not None and placement.age == self._age:  # nothing was stored meanwhile
            if messages is placement.messages:
                return placement, True
            if len(placement.fits) == 1:
                placed = self._reach(messages, placement, aliases=False)
                return placed, len(placed.fits) == 1
        return self._find(messages, aliases=False), False

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

    def _way(self, node: int | None, above: int | None) -> tuple[list[int], int | None]:
        """The path to a node from below another one, and that; from a first message on, and None, where it does not
        lead past that."""
        way = []
        while node is not None and node != above:
            way.append(node)
            node = self.nodes[node].parent
        return way[::-1], node

    # ---- growing

    def _add(self, node: MessageNode) -> int:
        index = len(self.nodes)
        self.nodes.append(node)
        self._age += 1
        self._register(index, node)
        return index

    def _register(self, index: int, node: MessageNode) -> None:
        parent = ROOT if node.parent is None else node.parent
        self._inner.add(parent)
        place = (parent, node.message.key)
        there = self._children.get(place, ())
        self._children[place] = (*there, index)
        self._forget(parent, elsewhere=bool(there) or place in self._aliases)
        if node.sampled:
            self.num_turns += 1
            self.last_reply = index

    def _alias(self, index: int, key: Hashable) -> None:
        parent = self.nodes[index].parent
        place = (ROOT if parent is None else parent, key)
        there = self._at((place[0],), key, aliases=True)
        if index not in there:
            self._aliases[place] = (*self._aliases.get(place, ()), index)
            self._originals.setdefault(index, []).append(key)
            self._age += 1
            self._forget(place[0], elsewhere=bool(there))

    def _forget(self, parent: int, *, elsewhere: bool) -> None:
        """Something new is below a node: forget the conversations that may stand there as well now. `elsewhere`: its
        key led to something else before."""
        self._twins += elsewhere
        if self._twins and self._recent:
            self._recent = {
                age: placed
                for age, placed in self._recent.items()
                if parent not in placed.passed and (not elsewhere or parent in placed.fits)
            }

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
        way, read, alike = self._way(node, None)[0], 0, 0
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

    def _remember(
        self,
        shown: tuple[Message, ...],
        parent: int,
        tokens: tuple[int, ...],
        placed: Placement,
        came: Placement,
    ) -> None:
        """Recognise a conversation as a whole from now on. `placed`: where it stood before it was stored; `came`: the
        placement of what was sent."""
        fits = placed.fits
        if parent != placed.parent:
            if len(fits) > 1:
                placed.passed.update(fits)
            fits = (parent,)
        self._recent.pop(came.follows, None)
        self._recent[self._age] = Placement(
            parent=parent,
            known=len(shown),
            messages=shown,
            sent=came.sent,
            fits=fits,
            passed=placed.passed,
            tokens=tokens,
            age=self._age,
            follows=came.follows,
        )
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]


@define(eq=False, repr=False)
class TokenCounts:
    """What the calls of a graph add up to (L81). A call without usage counts nothing: unknown is not zero."""

    num_input_tokens: int = field(default=0, init=False)
    num_output_tokens: int = field(default=0, init=False)
    num_total_tokens: int = field(default=0, init=False)
    usage: Usage | None = field(default=None, init=False)
    """The sum of every call, committed or not."""
    _measured: list[int] = field(factory=list, init=False)
    """For each node seen so far the nearest reply of known length towards its root, itself included; or `ROOT`."""
    _length: dict[int, int] = field(factory=dict, init=False)
    """The sequence length at each reply whose call reported usage."""
    _continued: set[int] = field(factory=set, init=False)
    """The replies of known length that a later one goes on from."""

    def spent(self, usage: Usage) -> None:
        """Count a call, committed or not, in `usage`."""
        self.usage = usage if self.usage is None else self.usage + usage

    def committed(self, nodes: Sequence[MessageNode], reply: int, usage: Usage) -> None:
        """Count the call that committed the reply at this node. Nothing may go on from the reply yet."""
        self._follow(nodes, reply)
        parent = nodes[reply].parent
        before = ROOT if parent is None else self._measured[parent]
        self.num_input_tokens += max(0, usage.input_tokens - self._length.get(before, 0))
        self.num_output_tokens += usage.completion_tokens
        if before != ROOT and before not in self._continued:
            self._continued.add(before)
            self.num_total_tokens -= self._length[before]
        self.num_total_tokens += usage.total_tokens
        self._length[reply] = usage.total_tokens
        self._measured[reply] = reply

    def _follow(self, nodes: Sequence[MessageNode], reply: int) -> None:
        for index in range(len(self._measured), reply + 1):
            parent = nodes[index].parent
            self._measured.append(ROOT if parent is None else self._measured[parent])
