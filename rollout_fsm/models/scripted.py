"""A model that answers offline from a script, the same every time: for tests, demonstrations and dry runs.

It keeps nothing between calls, so one object serves any number of rollouts at once: which line of a script comes next
is read off the conversation itself. A token here is a word or a punctuation mark, counted the same in a prompt and in a
reply.
"""

import copy
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias, cast

import trio
from attrs import define, evolve, field

from rollout_fsm.errors import ProviderError
from rollout_fsm.foreign import ask
from rollout_fsm.messages import (
    AssistantMessage,
    Deliver,
    Delta,
    Message,
    Request,
    Response,
    Sampling,
    ToolCallDelta,
    Usage,
)
from rollout_fsm.model import Model

__all__ = ["ScriptedModel", "count_tokens", "count_usage", "pieces"]

Reply: TypeAlias = str | Response
Script: TypeAlias = Callable[[Request], Reply | Awaitable[Reply]] | Sequence[Reply | Exception]

PIECES = 4
"""In how many pieces a streamed answer tells a text."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


def count_tokens(*messages: Message) -> int:
    """Tokens of messages: one for each run of letters and digits and one for each other mark, in text, hidden reasoning
    and tool calls (name and arguments). Roles, ids, images and tool schemas count nothing."""
    total = 0
    for message in messages:
        texts = [message.text]
        if isinstance(message, AssistantMessage):
            texts.append(message.reasoning_content or "")
            texts += [f"{call.name} {call.arguments}" for call in message.tool_calls]
        total += sum(1 for text in texts for _ in _TOKEN.finditer(text))
    return total


def count_usage(request: Request, response: Response) -> Usage:
    """The tokens of a call by `count_tokens`: the whole conversation as prompt, the reply as completion."""
    return Usage(prompt_tokens=count_tokens(*request.messages), completion_tokens=count_tokens(response.message))


def pieces(message: AssistantMessage) -> Iterator[Delta]:
    """A reply as a stream would tell it: hidden reasoning, text, tool calls, each in a few pieces."""
    for text in _cut(message.reasoning_content or ""):
        yield Delta(reasoning=text)
    for text in _cut(message.text):
        yield Delta(content=text)
    for index, call in enumerate(message.tool_calls):
        yield Delta(tool_calls=(ToolCallDelta(index=index, id=call.id, name=call.name, type=call.type),))
        for text in _cut(call.arguments):
            yield Delta(tool_calls=(ToolCallDelta(index=index, arguments=text, type=call.type),))


def _cut(text: str) -> Iterator[str]:
    size = max(-(-len(text) // PIECES), 1)
    return (text[start : start + size] for start in range(0, len(text), size))


def _is_script(_model: object, _field: object, script: Script) -> None:
    if isinstance(script, str) or not (callable(script) or isinstance(script, Sequence)):
        raise TypeError(f"a script is a function of the request or a sequence of replies, got {script!r}")


@define(eq=False, slots=False)
class ScriptedModel(Model):
    """Answers from `script`: a function of the request, plain or async, or a sequence of replies.

    Of a sequence, the reply at a place answers a conversation with that many assistant messages in it; an exception
    there is raised (a copy of it, so that nothing of the rollout is kept). A reply is a text or a whole `Response`.
    `usage` says what a call used, where the `Response` doesn't; with None the model reports no usage. Raises
    `ProviderError` past the end.
    """

    script: Script = field(validator=_is_script, repr=False)
    name: str = field(default="scripted", kw_only=True)
    usage: Callable[[Request, Response], Usage | None] | None = field(default=count_usage, kw_only=True, repr=False)

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        """The script's answer to this conversation. `sampling` changes nothing."""
        await trio.lowlevel.checkpoint()
        depth = sum(isinstance(message, AssistantMessage) for message in request.messages)
        reply = await self._reply(request, depth)
        if isinstance(reply, str):
            reply = Response(message=AssistantMessage(reply), id=f"{self.name}-{depth}", model=self.name)
        if not isinstance(reply, Response):
            raise TypeError(f"the script answered with {type(reply).__name__}; expected a str or a Response")
        if reply.usage is None and self.usage is not None:
            reply = evolve(reply, usage=self.usage(request, reply))
        return reply

    async def stream_response(self, request: Request, sampling: Sampling, deliver: Deliver) -> Response:
        """As `respond`; the answer is told in a few pieces."""
        response = await self.respond(request, sampling)
        for piece in pieces(response.message):
            await deliver(piece)
        return response

    async def count_tokens(self, request: Request) -> int:
        """Tokens of the conversation, counted as its usage is."""
        return count_tokens(*request.messages)

    async def _reply(self, request: Request, depth: int) -> Reply:
        if callable(self.script):
            return cast("Reply", await ask(self.script, request))
        if depth >= len(self.script):
            raise ProviderError(
                f"the script of the model {self.name!r} has {len(self.script)} replies, and the conversation asks for "
                f"number {depth + 1}: make the script longer, or limit the turns"
            )
        line = self.script[depth]
        if isinstance(line, Exception):
            raise copy.copy(line)
        return line
