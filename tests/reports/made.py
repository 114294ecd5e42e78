"""Traces made by hand, with numbers that a test can do in its head."""

from collections.abc import Mapping, Sequence

from rollout_fsm.errors import ErrorRecord
from rollout_fsm.messages import AssistantMessage, Response, Usage, UserMessage
from rollout_fsm.trace import (
    AgentSpan,
    ModelCall,
    Reward,
    Span,
    TaskInfo,
    TimeSplit,
    Timing,
    Trace,
    TraceWarning,
    TransitionRecord,
)

START = 1_700_000_000.0

OPENED = ("open:created>booting", "booted:booting>setup", "ready:setup>waiting")
ENDED = (
    "close:waiting>closing",
    "closed:closing>finalizing",
    "finalized:finalizing>scoring",
    "scored:scoring>releasing",
    "released:releasing>completed",
)
COMPLETED = (*OPENED, "step:waiting>stepping", "segment_ended:stepping>waiting", *ENDED)
FAILED = (
    *OPENED,
    "step:waiting>stepping",
    "errored:stepping>failing",
    "close:failing>discarding",
    "released:discarding>failed",
)
ABORTED = (*OPENED, "cancel:waiting>aborting", "released:aborting>aborted")


def made(
    *,
    id: str = "t-1",
    path: Sequence[str] = COMPLETED,
    stop: str | None = "agent_completed",
    rewards: Mapping[str, Reward | None] | None = None,
    metrics: Mapping[str, float | None] | None = None,
    errors: Sequence[ErrorRecord] = (),
    warnings: Sequence[TraceWarning] = (),
    spans: Mapping[str, float] | None = None,
    model_seconds: float = 0.0,
    turns: int = 0,
    usage: Usage | None = None,
) -> Trace:
    """A trace whose transitions are a second apart; `spans` are lengths in seconds, one after the other."""
    steps = [step.replace(">", ":").split(":") for step in path]
    transitions = [
        TransitionRecord(time=START + place, trigger=trigger, source=source, target=target)
        for place, (trigger, source, target) in enumerate(steps)
    ]
    timing, at = Timing(start=START), START
    for name, length in (spans or {}).items():
        span = AgentSpan(start=at, end=at + length) if name == "agent" else Span(start=at, end=at + length)
        if isinstance(span, AgentSpan):
            span.model, span.harness = TimeSplit(model_seconds), TimeSplit(length - model_seconds)
        setattr(timing, name, span)
        at += length
    trace = Trace(
        id=id,
        task=TaskInfo(type="Sum", data={"idx": 3}),
        rewards=dict(rewards or {}),
        metrics=dict(metrics or {}),
        is_completed=True,
        ok=steps[-1][2] == "completed",
        stop_condition=stop,
        errors=list(errors),
        warnings=list(warnings),
        timing=timing,
        transitions=transitions,
    )
    for turn in range(turns):
        say(trace, f"question {turn}", f"answer {turn}", usage=usage, time=START + 3)
    return trace


def say(trace: Trace, asked: str, answered: str, *, usage: Usage | None, time: float) -> None:
    """A turn of its own conversation."""
    response = Response(message=AssistantMessage(answered), usage=usage)
    node = trace.commit([UserMessage(asked)], response, time=time)
    trace.record_call(ModelCall(node=node, usage=usage, time=Span(start=time, end=time)))
