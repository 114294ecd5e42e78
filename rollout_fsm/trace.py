"""The record of one rollout: what was said, what was measured, how it ended (L80-L84). Text and numbers only.

The engine writes it; hooks, rewards and observers read it. `place`, `commit` and `record_call` are the only ways into
`nodes` and `calls`, so the aggregates are always those of what is stored; a trace made from stored nodes and calls has
the same ones. Nothing here knows a clock: times come from the engine, in epoch seconds. Its JSON is in `trace_json`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, TypeVar

from attrs import Attribute, define, field, frozen

from rollout_fsm.errors import ErrorRecord
from rollout_fsm.exact_json import plain
from rollout_fsm.graph import Graph, MessageNode, Placement
from rollout_fsm.machine.endings import Ending
from rollout_fsm.messages import JSON, AssistantMessage, FinishReason, Message, Response, Sampling, Tool, Usage
from rollout_fsm.token_counts import TokenCounts

__all__ = [
    "AgentInfo",
    "AgentSpan",
    "Ending",
    "ErrorRecord",
    "GroupInfo",
    "MessageNode",
    "ModelCall",
    "Placement",
    "Reward",
    "Rewrite",
    "RunInfo",
    "Span",
    "TaskInfo",
    "TimeSplit",
    "Timing",
    "Trace",
    "TraceWarning",
    "TransitionRecord",
]

T = TypeVar("T")

_NOTHING: Mapping[int, Message] = {}


@frozen(kw_only=True)
class TaskInfo:
    """The task as it stands on a trace: its class name, its row, and what identifies it."""

    type: str
    data: Mapping[str, JSON] = field(factory=dict)
    key: str | None = None
    hash: str | None = None


def _config(given: Mapping[str, object]) -> dict[str, JSON]:
    made = plain(given, "the agent's configuration cannot be recorded")
    assert isinstance(made, dict)
    return made


@define(kw_only=True)
class AgentInfo:
    """Who ran: the settled configuration of harness and model, and the runtime once there is one.

    Readers of the verifiers schema load a `config` that has no keys but `harness` (an object with an `id` and whatever
    else), `model`, `sampling`, `max_turns` and the other caps, `timeout` and `runtime`; and a `runtime` whose `type` is
    one that they know ("subprocess", say) (L84). The configuration is held in JSON's own types, so that it loads back
    equal.
    """

    config: dict[str, JSON] = field(factory=dict, converter=_config)
    runtime: dict[str, JSON] | None = None
    name: str = "agent"
    trainable: bool = True


@frozen(kw_only=True)
class RunInfo:
    """The run that the rollout belongs to."""

    type: str = "eval"
    id: str
    name: str | None = None


@frozen(kw_only=True)
class GroupInfo:
    """The rollouts of one task that are judged against each other, and the place of this one among them."""

    id: str
    index: int | None = None


@frozen(kw_only=True)
class Reward:
    """A weighted score."""

    score: float
    weight: float = 1.0

    @property
    def value(self) -> float:
        """What it adds to the trace's reward (L64)."""
        return self.score * self.weight


@define(kw_only=True)
class Span:
    """A stretch of time, in epoch seconds; `end` is None while it lasts."""

    start: float
    end: float | None = None

    @property
    def duration(self) -> float:
        """Its length in seconds, zero while it lasts."""
        return 0.0 if self.end is None else max(0.0, self.end - self.start)


@frozen
class TimeSplit:
    """A share of a span, in seconds."""

    duration: float = 0.0


_NO_TIME = TimeSplit()


@define(kw_only=True)
class AgentSpan(Span):
    """The exchange, and how its time was shared by model and harness (L80)."""

    model: TimeSplit = _NO_TIME
    harness: TimeSplit = _NO_TIME

    def split(self, model_time: float) -> None:
        """Share the span, once it has ended: the model's seconds, at most all of it, and the rest for the harness."""
        self.model = TimeSplit(min(model_time, self.duration))
        self.harness = TimeSplit(self.duration - self.model.duration)


@define(kw_only=True)
class Timing:
    """When the rollout was minted, and the spans that began (L80); None for one that never did. Epoch seconds."""

    start: float = 0.0
    boot: Span | None = None
    setup: Span | None = None
    agent: AgentSpan | None = None
    finalize: Span | None = None
    scoring: Span | None = None

    def open(self, name: str, now: float) -> None:
        """A span begins."""
        setattr(self, name, AgentSpan(start=now) if name == "agent" else Span(start=now))

    def close(self, name: str, now: float, model_time: float) -> None:
        """A span ends; the agent's is shared with the seconds that the model took."""
        span: Span | None = getattr(self, name)
        if span is None:  # somebody took it away; what is left of the record is still right
            return
        span.end = now
        if isinstance(span, AgentSpan):
            span.split(model_time)


@frozen(kw_only=True)
class PolicyEvent:
    """A policy that changed a request before the model saw it."""

    code: str
    paths: tuple[str, ...]
    """What of the request it took out, as the provider's API calls it."""


@frozen(kw_only=True)
class ModelCall:
    """A model call, committed or not: `node` is the reply that it committed, None if it committed none."""

    node: int | None = None
    model: str | None = None
    sampling: Sampling | None = None
    endpoint: str | None = None
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    time: Span
    error: ErrorRecord | None = None
    policy: PolicyEvent | None = None
    """What the network policy took out of the request: that the provider searches the web, say."""


@frozen(kw_only=True)
class TraceWarning:
    """Something that went wrong and changed neither outcome nor reward; `kind` is one of those of L51."""

    kind: str
    message: str


@frozen
class Rewrite:
    """An interceptor, by name, that changed what crossed the model boundary (L33)."""

    handler: str


@frozen(kw_only=True)
class TransitionRecord:
    """A transition that was taken (L83), at `time` in epoch seconds."""

    time: float
    trigger: str
    source: str
    target: str
    reason: str | None = None


def _kept(trace: "Trace", attribute: "Attribute[T]", value: T) -> T:
    """A record's containers are changed in place, never replaced: who holds one would go on writing to the old one."""
    if value is not getattr(trace, attribute.name):
        raise AttributeError(f"trace.{attribute.name} cannot be replaced; change it in place")
    return value


@define(kw_only=True)
class Trace:
    """The record of one rollout. Two traces are equal if their records are; `state` and bookkeeping are no record."""

    version: ClassVar[int] = 1
    """Of the schema that the JSON has (L84)."""

    id: str = field(on_setattr=_kept)
    task: TaskInfo = field(on_setattr=_kept)
    agent: AgentInfo = field(factory=AgentInfo, on_setattr=_kept)
    nodes: list[MessageNode] = field(factory=list, on_setattr=_kept)
    """The message graph. Grows by `commit` alone."""
    calls: list[ModelCall] = field(factory=list, on_setattr=_kept)
    """Every model call, in order of completion. Grows by `record_call` alone."""
    tools: list[Tool] = field(factory=list, on_setattr=_kept)
    """The tools that the last request offered."""
    rewards: dict[str, Reward | None] = field(factory=dict, on_setattr=_kept)
    """None says: expected, not measured (L60)."""
    metrics: dict[str, float | None] = field(factory=dict, on_setattr=_kept)
    info: dict[str, JSON] = field(factory=dict)
    """What the task wants to keep."""
    is_completed: bool = False
    ok: bool = False
    stop_condition: str | None = None
    errors: list[ErrorRecord] = field(factory=list, on_setattr=_kept)
    """Oldest first; the first is the primary cause (L40)."""
    warnings: list[TraceWarning] = field(factory=list, on_setattr=_kept)
    timing: Timing = field(factory=Timing, on_setattr=_kept)
    request_rewrites: list[Rewrite] = field(factory=list, on_setattr=_kept)
    response_rewrites: list[Rewrite] = field(factory=list, on_setattr=_kept)
    extra_usage: list[Usage] = field(factory=list, on_setattr=_kept)
    """What judges and others spent outside the exchange (L63)."""
    run: RunInfo | None = field(default=None, on_setattr=_kept)
    group: GroupInfo | None = field(default=None, on_setattr=_kept)
    ending: Ending | None = None
    """How it ended; None until then (L84)."""
    transitions: list[TransitionRecord] = field(factory=list, on_setattr=_kept)
    unknown: dict[tuple[str, ...], JSON] = field(factory=dict)
    """What a file said beyond this schema, by its path: `("nodes", "0", "advantages")`, say (L84)."""
    state: dict[str, object] = field(factory=dict, eq=False)
    """Shared by the hooks, tools and rewards of this rollout; never written, and said to be so where it is read from a
    trace that was."""
    _sealed: bool = field(default=False, init=False, eq=False)
    _made_graph: Graph | None = field(default=None, init=False, eq=False)
    _made_tokens: TokenCounts | None = field(default=None, init=False, eq=False)
    _made_answered: set[int] | None = field(default=None, init=False, eq=False)
    """The bookkeeping, None until it is asked for. No cached properties: on a class with slots these make the reading
    of every field slow."""

    def __attrs_post_init__(self) -> None:
        if faults := [*self._misplaced_nodes(), *self._misplaced_calls()]:
            raise ValueError("; ".join(faults))

    def place(self, messages: Sequence[Message]) -> Placement:
        """Match a request against the conversations so far; nothing is recorded.

        The placement's `messages` are what the model is to be shown: each known message as it is stored, so that a
        rewrite stands when a harness re-sends the original (L33).
        """
        return self._graph.place(messages)

    def commit(
        self,
        messages: Sequence[Message],
        response: Response | None,
        *,
        originals: Mapping[int, Message] = _NOTHING,
        placement: Placement | None = None,
        time: float,
    ) -> int | None:
        """Store a turn: the prompt's messages that the graph does not have, and the reply as a node of its own (L82).

        `messages` are those that the model was shown. They are placed in the graph as it is now, so that calls that ran
        side by side share their prompt; `placement`, what `place` said of them, saves looking. `originals` maps
        positions in them to messages as they came, before an interceptor rewrote them. Without a response the prompt
        alone is stored (L34). `time` is in epoch seconds.

        Returns the node of the reply, None without one. Its tokens count once `record_call` has been told of its call.
        Raises `RuntimeError` on a sealed trace.
        """
        self._refuse_if_sealed("commit a turn")
        reply, tokens = (None, None) if response is None else (response.message, response.tokens)
        return self._graph.store(messages, reply, originals, placement=placement, time=time, tokens=tokens)

    def record_call(self, call: ModelCall) -> None:
        """Add a model call, and its tokens to the aggregates (L81).

        Raises `RuntimeError` on a sealed trace, `ValueError` for a call whose node is no reply or has its call already.
        """
        self._refuse_if_sealed("record a model call")
        if call.node is not None:
            if not 0 <= call.node < len(self.nodes) or not self.nodes[call.node].sampled:
                raise ValueError(f"node {call.node} is not a reply, so no call can have committed it")
            if call.node in self._answered:
                raise ValueError(f"node {call.node} has its call already: one call commits one reply")
            self._answered.add(call.node)
        tokens = self._tokens  # of the calls before this one
        self.calls.append(call)
        if call.node is not None and self._graph.has_child(call.node):
            self._made_tokens = self._counted()  # what goes on from the reply was stored before its length was known
        elif call.usage is not None:
            tokens.spent(call.usage)
            if call.node is not None:
                tokens.committed(self.nodes, call.node, call.usage)

    def warn(self, *warnings: TraceWarning) -> None:
        """Add what went wrong without changing the outcome (L51). Raises `RuntimeError` on a sealed trace."""
        self._refuse_if_sealed("record a warning")
        self.warnings.extend(warnings)

    def seal(self) -> None:
        """End the recording: from now on the recording methods raise. Reading stays, as does scoring again (L65)."""
        self._sealed = True
        if self._made_graph is not None:
            self._made_graph.settle()

    @property
    def sealed(self) -> bool:
        """Whether the recording has ended."""
        return self._sealed

    @property
    def num_turns(self) -> int:
        """Replies committed (L81)."""
        return self._graph.num_turns

    @property
    def num_input_tokens(self) -> int:
        """Tokens fed in, each once: a call's prompt beyond the sequence of the call before it on its branch (L81)."""
        return self._tokens.num_input_tokens

    @property
    def num_output_tokens(self) -> int:
        """Tokens of committed replies, each once (L81)."""
        return self._tokens.num_output_tokens

    @property
    def num_total_tokens(self) -> int:
        """Final sequence lengths, summed over branches (L81)."""
        return self._tokens.num_total_tokens

    @property
    def usage(self) -> Usage | None:
        """The sum of every call, committed or not; None if no call reported usage (L81)."""
        return self._tokens.usage

    @property
    def reward(self) -> float | None:
        """The sum of score x weight over the rewards that were measured; None if none was (L64), and where they add up
        to more than a float holds."""
        measured = [reward.value for reward in self.rewards.values() if isinstance(reward, Reward)]
        return total if measured and math.isfinite(total := sum(measured)) else None

    @property
    def last_reply(self) -> str:
        """The text of the last reply committed, on whatever branch; empty if there is none."""
        last = self._graph.last_reply
        return "" if last is None else self.nodes[last].message.text

    @property
    def branches(self) -> list[list[MessageNode]]:
        """The conversations: each path from a first message to one that nothing follows, in the order of their ends."""
        return self._graph.branches()

    def __repr__(self) -> str:
        end = self.transitions[-1].target if self.transitions else "not ok"
        outcome = "ok" if self.ok else self.errors[0].type if self.errors else end if self.is_completed else "open"
        tokens = f"{self.num_input_tokens}+{self.num_output_tokens}"
        return (
            f"<Trace {self.id} task={self.task.type} {outcome} stop={self.stop_condition} reward={self.reward}"
            f" turns={self.num_turns} tokens={tokens}>"
        )

    def _refuse_if_sealed(self, doing: str) -> None:
        if self._sealed:
            raise RuntimeError(
                f"cannot {doing}: the trace {self.id} is sealed, its rollout is over (a bug of the engine)"
            )

    def _misplaced_nodes(self) -> Iterator[str]:
        for index, node in enumerate(self.nodes):
            if node.parent is not None and not 0 <= node.parent < index:
                yield f"nodes[{index}].parent: {node.parent} is not a node before this one"
            if node.sampled and not isinstance(node.message, AssistantMessage):
                yield f"nodes[{index}].sampled: a {node.message.role} message is no reply of a model"

    def _misplaced_calls(self) -> Iterator[str]:
        calls: dict[int, int] = {}
        for index, call in enumerate(self.calls):
            if call.node is None:
                continue
            if not 0 <= call.node < len(self.nodes) or not self.nodes[call.node].sampled:
                yield f"calls[{index}].node: {call.node} is not a reply"
            elif (first := calls.setdefault(call.node, index)) != index:
                yield f"calls[{index}].node: {call.node} is the reply of calls[{first}] already"

    # ---- the bookkeeping, which a rollout that only waits does without

    @property
    def _graph(self) -> Graph:
        if self._made_graph is None:
            self._made_graph = Graph(self.nodes)
        return self._made_graph

    @property
    def _tokens(self) -> TokenCounts:
        if self._made_tokens is None:
            self._made_tokens = self._counted()
        return self._made_tokens

    @property
    def _answered(self) -> set[int]:
        """The replies whose call is recorded."""
        if self._made_answered is None:
            self._made_answered = {call.node for call in self.calls if call.node is not None}
        return self._made_answered

    def _counted(self) -> TokenCounts:
        tokens = TokenCounts()
        by_node: dict[int, Usage] = {}
        for call in self.calls:
            if call.usage is not None:
                tokens.spent(call.usage)
                if call.node is not None:
                    by_node[call.node] = call.usage
        for node in sorted(by_node):
            tokens.committed(self.nodes, node, by_node[node])
        return tokens
