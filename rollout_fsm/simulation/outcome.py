"""What came of a play, as a record and as JSON: what the rollout did, what it asked for, what its trace has."""

from collections.abc import Mapping, Sequence

import trio
from attrs import asdict, field, fields, frozen

from rollout_fsm.messages import JSON, AssistantMessage
from rollout_fsm.simulation.driver import Returned, Returns
from rollout_fsm.simulation.stage import Stage
from rollout_fsm.trace import MessageNode, Span, Trace
from rollout_fsm.trace_json import trace_to_json

SPANS = ("boot", "setup", "agent", "finalize", "scoring")
AFTERMATH = 3600.0
"""Virtual seconds for which the trace is watched after the driver has returned."""
DIGITS = 6
"""Times are rounded to microseconds: the trace has them as epoch seconds, which are no finer."""


@frozen(kw_only=True)
class SimulatedOutcome:
    """The outcome of a scenario. All times are seconds of the virtual clock, which starts at 0 with the driver."""

    state: str
    """The state when the driver returned."""
    ok: bool
    is_completed: bool
    stop_condition: str | None
    ending: Mapping[str, str | bool] | None
    """Its `name`, `cause`, `graded`, `counts`, `retryable`; None until the rollout is over."""
    errors: Sequence[str]
    """Type names, oldest first; the texts are in `trace.errors`."""
    warnings: Sequence[str]
    """Kinds, oldest first; the texts are in `trace.warnings`."""
    rewards: Mapping[str, float | None]
    """Score × weight, None for what was expected and not measured."""
    metrics: Mapping[str, float | None]
    reward: float | None
    num_turns: int
    num_input_tokens: int
    num_output_tokens: int
    num_total_tokens: int
    open_return: Returned
    """True, False, `"raised:Type"`, or None if it was not called."""
    step_returns: Sequence[Returned]
    other_returns: Sequence[tuple[str, Returned]]
    """What the verbs that other tasks called returned, in the order in which they did."""
    raised: str | None
    """Type of the exception that left the driver, `"Cancelled"` for a cancellation."""
    replies: Sequence[str | None] | None
    """In an interaction: the last reply of each turn of the user's."""
    events: Sequence[str]
    """The calls to outside parties, in the order in which they began, of all attempts."""
    calls: Sequence[tuple[str, int]]
    """`segment.turn` and status of every answer that was given to the harness."""
    request_rewrites: Sequence[str]
    response_rewrites: Sequence[str]
    transitions: Sequence[tuple[str, str, str]]
    """Trigger, source, target."""
    spans: Mapping[str, tuple[float, float | None]]
    """Of the last attempt."""
    attempts: Sequence[Mapping[str, object]]
    """Those before the last: the name of its `ending`, the types of its `errors`, when it `began` and `ended`. With
    them, everything else but `events`, `calls` and `clock` is of the last attempt."""
    nodes: Sequence[str]
    """The message graph: `parent>role:text`."""
    clock: float
    """When the driver returned."""
    orphans: Sequence[str]
    """Scripted code that was still running then."""
    mutated_after_return: bool
    """Whether the trace changed after that."""
    trace: Trace = field(repr=False, eq=False)
    """The whole record; not part of the JSON."""

    def to_json(self) -> dict[str, JSON]:
        """The outcome in JSON's own types."""
        values = {name.name: getattr(self, name.name) for name in fields(type(self)) if name.name != "trace"}
        return {name: _plain(value) for name, value in values.items()}


@frozen(kw_only=True)
class Curtain:
    """What is known only at the end of a play."""

    state: str
    raised: str | None
    clock: float
    orphans: Sequence[str]
    other_returns: Sequence[tuple[str, Returned]]


def outcome(
    stage: Stage,
    trace: Trace,
    returns: Returns,
    curtain: Curtain,
    *,
    attempts: Sequence[Mapping[str, object]] = (),
    began: float = 0.0,
) -> SimulatedOutcome:
    """The outcome as it stands now; that the trace changes later is said by whoever watches it. `began`: when the
    rollout was minted."""
    return SimulatedOutcome(
        ok=trace.ok,
        is_completed=trace.is_completed,
        stop_condition=trace.stop_condition,
        errors=[error.type for error in trace.errors],
        warnings=[warning.kind for warning in trace.warnings],
        rewards={name: None if reward is None else reward.value for name, reward in trace.rewards.items()},
        metrics=dict(trace.metrics),
        reward=trace.reward,
        num_turns=trace.num_turns,
        num_input_tokens=trace.num_input_tokens,
        num_output_tokens=trace.num_output_tokens,
        num_total_tokens=trace.num_total_tokens,
        open_return=returns.open_return,
        step_returns=list(returns.step_returns),
        replies=None if returns.replies is None else list(returns.replies),
        events=list(stage.events),
        calls=list(stage.calls),
        request_rewrites=[rewrite.handler for rewrite in trace.request_rewrites],
        response_rewrites=[rewrite.handler for rewrite in trace.response_rewrites],
        transitions=[(taken.trigger, taken.source, taken.target) for taken in trace.transitions],
        spans=_spans(trace, trace.timing.start - began),
        attempts=list(attempts),
        ending=None if trace.ending is None else asdict(trace.ending),
        nodes=[_node(node) for node in trace.nodes],
        mutated_after_return=False,
        trace=trace,
        **asdict(curtain),
    )


async def afterwards(trace: Trace, before: str) -> bool:
    """Wait, and see whether the trace is another than it was."""
    await trio.sleep(AFTERMATH)
    return trace_to_json(trace) != before


def _spans(trace: Trace, zero: float) -> dict[str, tuple[float, float | None]]:
    spans: dict[str, tuple[float, float | None]] = {}
    for name in SPANS:
        span: Span | None = getattr(trace.timing, name)
        if span is not None:
            end = None if span.end is None else round(span.end - zero, DIGITS)
            spans[name] = (round(span.start - zero, DIGITS), end)
    return spans


def _node(node: MessageNode) -> str:
    message = node.message
    parent = "-" if node.parent is None else str(node.parent)
    calls = "".join(f"+call({call.id})" for call in message.tool_calls) if isinstance(message, AssistantMessage) else ""
    return f"{parent}>{message.role}{'*' if node.sampled else ''}:{message.text}{calls}"


def _plain(value: object) -> JSON:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    assert value is None or isinstance(value, str | int | float)
    return value
