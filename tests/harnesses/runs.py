"""What the tests of harnesses share: one rollout, whole, and what its trace tells in a form that a test can write down."""

from collections.abc import Callable, Sequence
from typing import Unpack

from rollout_fsm import (
    AssistantMessage,
    Harness,
    Model,
    Request,
    Response,
    ScriptedModel,
    Task,
    ToolCall,
    Trace,
    check_trace,
    open_engine,
)
from rollout_fsm.engine import OneRollout
from rollout_fsm.messages import Message


async def run(harness: Harness, model: Model, task: Task, *, gateway: bool = True, **settings: Unpack[OneRollout]) -> Trace:
    """One rollout, with an engine of its own."""
    settings["harness"], settings["model"] = harness, model
    async with open_engine(gateway=gateway) as engine:
        trace = await engine.run(task, **settings)
    assert_legal(trace)
    return trace


def assert_legal(trace: Trace) -> None:
    """The trace's transitions are a path of the declared machine."""
    check_trace(trace)


def said(trace: Trace) -> list[tuple[str, str]]:
    """Who said what, on all branches, in the order of their commit."""
    return [spoken(node.message) for node in trace.nodes]


def spoken(message: Message) -> tuple[str, str]:
    """Who says a message, and its text."""
    return message.role, message.text


def ending(trace: Trace) -> tuple[bool, str | None, list[str], list[str]]:
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
