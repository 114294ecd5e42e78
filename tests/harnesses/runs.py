"""What the tests of harnesses share: one rollout, whole, and what its trace tells, as a test can write it down."""

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypedDict, Unpack

from rollout_fsm import (
    AssistantMessage,
    Harness,
    Model,
    Request,
    Response,
    RolloutLimits,
    RolloutPolicy,
    RolloutTimeouts,
    ScriptedModel,
    Task,
    ToolCall,
    Toolset,
    Trace,
    check_trace,
    open_engine,
)
from rollout_fsm.messages import Message


class Chosen(TypedDict, total=False):
    """What a test may choose of a rollout beside its agent."""

    id: str
    limits: RolloutLimits
    timeouts: RolloutTimeouts
    policy: RolloutPolicy
    tools: Sequence[Callable[[], Toolset]]


async def run(harness: Harness, model: Model, task: Task, *, gateway: bool = True, **settings: Unpack[Chosen]) -> Trace:
    """One rollout, with an engine of its own; its trace is one that the declared machine can have lived."""
    async with open_engine(gateway=gateway) as engine:
        trace = await engine.run(task, harness=harness, model=model, **settings)
    assert check_trace(trace) == []
    return trace


def said(trace: Trace) -> list[tuple[str, str]]:
    """Who said what, on all branches, in the order of their commit."""
    return [spoken(node.message) for node in trace.nodes]


def spoken(message: Message) -> tuple[str, str]:
    """Who says a message, and its text."""
    return message.role, message.text


Ending: TypeAlias = tuple[bool, str | None, list[str], list[str]]


def ending(trace: Trace) -> Ending:
    """How the rollout ended: whether well, its stop condition, its errors' types, its warnings' kinds."""
    return (
        trace.ok,
        trace.stop_condition,
        [error.type for error in trace.errors],
        [warning.kind for warning in trace.warnings],
    )


def failure(trace: Trace) -> tuple[str, str]:
    """The one error of a failed rollout: its type and its message."""
    (error,) = trace.errors
    assert not trace.ok
    return error.type, error.message


def calling(*calls: tuple[str, str], saying: str | None = None) -> Response:
    """A reply that calls tools: names and arguments. The ids are c0, c1, …"""
    tool_calls = [
        ToolCall(id=f"c{place}", name=name, arguments=arguments) for place, (name, arguments) in enumerate(calls)
    ]
    return Response(message=AssistantMessage(saying, tool_calls=tool_calls), finish_reason="tool_calls")


class Listener:
    """A model that answers from a script and keeps what it was asked."""

    def __init__(self, script: Callable[[Request], str | Response] | Sequence[str | Response]) -> None:
        self.requests: list[Request] = []
        self._answer = ScriptedModel(script) if callable(script) else ScriptedModel(list(script))
        self.model = ScriptedModel(self._listen)

    async def _listen(self, request: Request) -> Response:
        self.requests.append(request)
        return await self._answer.respond(request, request.sampling)
