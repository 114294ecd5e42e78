"""What the tokens of a rollout's calls add up to (L81), kept as they come: a sum costs the same after thousands."""

from collections.abc import Sequence

from attrs import define, field

from rollout_fsm.graph import ROOT, MessageNode
from rollout_fsm.messages import Usage


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
