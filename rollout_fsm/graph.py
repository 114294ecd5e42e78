"""The message graph of one rollout, and what its tokens add up to (L81, L82). No clock, no JSON, no hooks.

Each message is stored once, with its parent; a conversation is a path from a root. A prompt message that is already
there is shared by all who send it, while every committed reply is a node of its own: two calls that were answered alike
are two turns. Every count is kept as it grows, so that reading one costs the same after two turns and after thousands.
"""

from collections.abc import Mapping, Sequence
from operator import is_

from attrs import define, evolve, field, frozen

from rollout_fsm.messages import Message, Tokens, Usage

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


@define(eq=False, repr=False)
class Graph:
    """Finds and stores conversations in a list of nodes. Only this class may lengthen the list."""

    nodes: list[MessageNode]
    num_turns: int = field(default=0, init=False)
    """How many of the nodes are replies."""
    last_reply: int | None = field(default=None, init=False)
    """The node of the newest reply."""
    _children: dict[tuple[int, bytes], tuple[int, ...]] = field(factory=dict, init=False)
    """(parent, key) to the nodes there; more than one only where replies were alike."""
    _aliases: dict[tuple[int, bytes], tuple[int, ...]] = field(factory=dict, init=False)
    """The same, for the originals of rewritten messages."""
    _inner: set[int] = field(factory=set, init=False)
    """The nodes that have a child."""
    _twins: bool = field(default=False, init=False)
    """Whether any (parent, key) leads to several nodes, so that a conversation may be at several places at once."""
    _path: list[int] = field(factory=list, init=False)
    """The conversation that was found or stored last, as nodes …"""
    _stored: list[Message] = field(factory=list, init=False)
    """… and as messages: who goes on with it is recognised by these, or by equal ones, without a look at keys."""
    _placed: tuple[Message, ...] | None = field(default=None, init=False)
    """The messages of the last placement, while `_path` is still where they stand."""

    def __attrs_post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            self._register(index, node)

    def place(self, messages: Sequence[Message]) -> Placement:
        """Match a request against the graph, by what was sent or, where that was rewritten, by its original (L33).

        Of several places that fit, the one where most of the request is known is taken; then the one with the very same
        message object; then one that nobody has gone on from; then the newest.
        """
        known, as_stored = self._find(messages, aliases=True)
        self._placed = tuple(messages) if as_stored else (*self._stored, *messages[known:])
        return Placement(parent=self._path[-1] if known else None, known=known, messages=self._placed)

    def store(
        self,
        messages: Sequence[Message],
        originals: Mapping[int, Message] = _NOTHING,
        *,
        time: float,
        tokens: Tokens | None = None,
    ) -> int | None:
        """Store what the graph does not have of a conversation; returns the node of its last message, if it has one.

        The messages are those that the model was shown, so they are matched by themselves alone and never as originals
        of others. `originals` maps positions to messages as they came, before a rewrite: they become aliases of their
        nodes. Where the model read known messages as other tokens than those that are stored (a template that leaves
        out earlier reasoning, say), the conversation goes on in a branch of its own from there.
        """
        known = len(self._path) if messages is self._placed else self._find(messages, aliases=False)[0]
        if tokens is not None and (read := self._read_alike(tokens.prompt_ids)) < known:
            self._fork(read, known, time=time)
        parent = self._path[-1] if known else None
        for position in range(known, len(messages)):
            parent = self._add(MessageNode(parent=parent, message=messages[position], timestamp=time))
        for position, original in originals.items():
            self._alias(self._path[position], original)
        return parent

    def reply(self, parent: int | None, message: Message, *, time: float, tokens: Tokens | None = None) -> int:
        """Store a reply below the last message of its prompt, which was stored just before; always a new node."""
        node = MessageNode(parent=parent, message=message, sampled=True, timestamp=time)
        if tokens is not None:
            before = sum(len(self.nodes[at].token_ids or ()) for at in self._path)
            read, written = tokens.prompt_ids[before:], tokens.completion_ids
            mask = (False,) * len(read) + (True,) * len(written)
            node = evolve(node, token_ids=(*read, *written), mask=mask, logprobs=tokens.logprobs)
        return self._add(node)

    def branches(self) -> list[list[MessageNode]]:
        """Every path from a root to a leaf, in the order of the leaves."""
        paths = []
        for leaf in range(len(self.nodes)):
            if leaf in self._inner:
                continue
            path: list[MessageNode] = []
            at: int | None = leaf
            while at is not None:
                path.append(self.nodes[at])
                at = self.nodes[at].parent
            paths.append(path[::-1])
        return paths

    def has_child(self, node: int) -> bool:
        """Whether some conversation goes on after this message."""
        return node in self._inner

    def _read_alike(self, prompt_ids: Sequence[int]) -> int:
        """How many leading messages of the path the model read as the tokens that are stored of them."""
        at = 0
        for place, index in enumerate(self._path):
            stored = self.nodes[index].token_ids or ()
            if tuple(prompt_ids[at : at + len(stored)]) != stored:
                return place
            at += len(stored)
        return len(self._path)

    def _fork(self, start: int, end: int, *, time: float) -> None:
        """Go on with the path in copies of its nodes from `start` to `end`: the same messages, read as other tokens."""
        forked = self._path[start:end]
        del self._path[start:], self._stored[start:]
        for index in forked:
            parent = self._path[-1] if self._path else None
            copy = self._add(MessageNode(parent=parent, message=self.nodes[index].message, timestamp=time))
            before = self.nodes[index].parent
            for (above, key), there in [*self._aliases.items()]:
                if above == (ROOT if before is None else before) and index in there:
                    self._alias_by(copy, key)

    def _add(self, node: MessageNode) -> int:
        self._placed = None
        index = len(self.nodes)
        self.nodes.append(node)
        self._register(index, node)
        self._path.append(index)
        self._stored.append(node.message)
        return index

    def _register(self, index: int, node: MessageNode) -> None:
        parent = ROOT if node.parent is None else node.parent
        self._inner.add(parent)
        place = (parent, node.message.key)
        there = self._children.get(place, ())
        self._children[place] = (*there, index)
        self._twins = self._twins or bool(there) or place in self._aliases
        if node.sampled:
            self.num_turns += 1
            self.last_reply = index

    def _alias(self, index: int, original: Message) -> None:
        self._alias_by(index, original.key)

    def _alias_by(self, index: int, key: bytes) -> None:
        parent = self.nodes[index].parent
        place = (ROOT if parent is None else parent, key)
        there = self._children.get(place, ()) + self._aliases.get(place, ())
        if index not in there:
            self._aliases[place] = (*self._aliases.get(place, ()), index)
            self._twins = self._twins or bool(there)

    def _find(self, messages: Sequence[Message], *, aliases: bool) -> tuple[int, bool]:
        """How many leading messages are known, and whether they are the very objects that are stored.

        `_path` and `_stored` become their nodes and they as stored.
        """
        self._placed = None
        if self._twins:
            return self._find_deepest(messages, aliases=aliases)
        path, stored = self._path, self._stored
        if all(map(is_, stored, messages)):
            known = min(len(stored), len(messages))
            del path[known:], stored[known:]
        else:
            known = 0
        as_stored = True
        parent = path[known - 1] if known else ROOT
        for position in range(known, len(messages)):
            message = messages[position]
            if position < len(stored) and stored[position] == message:  # an equal one has an equal key, unhashed
                as_stored = as_stored and stored[position] is message
                parent = path[position]
                continue
            places = self._at(parent, message, aliases=aliases)
            if not places:
                del path[position:], stored[position:]
                return position, as_stored
            parent = places[0]
            if position >= len(path) or path[position] != parent:
                del path[position:], stored[position:]
                path.append(parent)
                stored.append(self.nodes[parent].message)
            as_stored = as_stored and stored[position] is message
        del path[len(messages) :], stored[len(messages) :]
        return len(messages), as_stored

    def _find_deepest(self, messages: Sequence[Message], *, aliases: bool) -> tuple[int, bool]:
        reached: tuple[int, ...] = (ROOT,)
        known = 0
        for message in messages:
            further = tuple(node for parent in reached for node in self._at(parent, message, aliases=aliases))
            if not further:
                break
            reached = further
            known += 1
        at: int | None = None
        if known:
            last = messages[known - 1]
            at = max(reached, key=lambda n: (self.nodes[n].message is last, n not in self._inner, n))
        self._path.clear()
        while at is not None:
            self._path.append(at)
            at = self.nodes[at].parent
        self._path.reverse()
        self._stored[:] = [self.nodes[node].message for node in self._path]
        return known, all(map(is_, self._stored, messages))

    def _at(self, parent: int, message: Message, *, aliases: bool) -> tuple[int, ...]:
        place = (parent, message.key)
        there = self._children.get(place, ())
        return there + self._aliases.get(place, ()) if aliases and self._aliases else there


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
