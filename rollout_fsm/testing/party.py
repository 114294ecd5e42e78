"""The model that a test lets a rollout meet: it says what it is told to say, and remembers what it heard."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn, TypeAlias

import trio
from attrs import define, evolve, field

from rollout_fsm.errors import ProviderError
from rollout_fsm.messages import JSON, AssistantMessage, Request, Response, Sampling, ToolCall
from rollout_fsm.model import Model
from rollout_fsm.models.scripted import count_usage

__all__ = ["KitModel", "Reply", "Together", "calling", "failing", "words"]

Reply: TypeAlias = Callable[[Request], str | Response]


@define(eq=False)
class KitModel(Model):
    """Answers each request with what `reply` makes of it, once `gate` has let it through."""

    reply: Reply
    name: str = "kit-model"
    heard: list[Request] = field(factory=list)
    gate: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        """Say it."""
        self.heard.append(request)
        await self.gate()
        said = self.reply(request)
        response = Response(message=AssistantMessage(said)) if isinstance(said, str) else said
        return response if response.usage else evolve(response, usage=count_usage(request, response))


@define(eq=False)
class Together:
    """A gate that opens once so many have come to it."""

    missing: int
    _open: trio.Event = field(factory=trio.Event, init=False)

    async def wait(self) -> None:
        """Come to it, and pass."""
        self.missing -= 1
        if self.missing <= 0:
            self._open.set()
        await self._open.wait()


def failing(_: Request) -> NoReturn:
    """No reply: the endpoint refuses."""
    raise ProviderError("the kit's model refuses every request", status_code=400)


def calling(tool: str, arguments: Mapping[str, JSON], then: Reply) -> Reply:
    """Replies that call a tool once, if it is offered, also under a longer name; afterwards those of `then`."""

    def reply(request: Request) -> str | Response:
        name = next((each.name for each in request.tools if tool in each.name), None)
        if name is None or any(isinstance(message, AssistantMessage) for message in request.messages):
            return then(request)
        called = ToolCall(id="kit_call", name=name, arguments=json.dumps(dict(arguments)))
        return Response(message=AssistantMessage(tool_calls=[called]), finish_reason="tool_calls")

    return reply


def words(request: Request) -> str:
    """All that is said in a request."""
    return "\n".join(message.text for message in request.messages)
