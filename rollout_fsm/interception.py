"""What an interceptor may do to what crosses the model boundary, and what a model may answer (L33, L40). Pure.

A request's new user and tool messages may be rewritten, their content only; a reply may be replaced by inert text.
"""

import math
from copy import deepcopy
from operator import countOf
from typing import TypeVar, get_args

from attrs import evolve

from rollout_fsm.errors import TaskError
from rollout_fsm.exact_json import shown
from rollout_fsm.messages import (
    AssistantMessage,
    FinishReason,
    ImagePart,
    Message,
    OtherPart,
    Request,
    Response,
    SystemMessage,
    TextPart,
    Tokens,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

Crossing = TypeVar("Crossing", Request, Response)

FINISHES = (None, *get_args(FinishReason))

_OF_CONTENT = (SystemMessage, ToolMessage, UserMessage)

ONLY = "an interceptor may rewrite the content of new user and tool messages only"


def rewritable(message: Message) -> bool:
    """Whether it is of a kind that an interceptor may rewrite."""
    return isinstance(message, UserMessage | ToolMessage)


def bodiless(crossing: Crossing) -> Crossing:
    """A request or an answer as hooks see it: without the body that it had on the wire."""
    return crossing if crossing.native is None else evolve(crossing, native=None)


def private_request(request: Request) -> Request:
    """The copy of a request that an interceptor is given (L33)."""
    messages = [message if _is_text(message) else deepcopy(message) for message in request.messages]
    tools, sampling = deepcopy(request.tools), deepcopy(request.sampling)
    return evolve(request, messages=messages, tools=tools, sampling=sampling, native=None)


def private_response(response: Response) -> Response:
    """The copy of an answer that an interceptor is given (L33)."""
    message = response.message
    return evolve(response, message=message if _is_text(message) else deepcopy(message), native=None)


def _is_text(message: Message) -> bool:
    """Whether nothing in it can be changed in place, so that it is its own copy."""
    if type(message) is AssistantMessage:
        return message.provider_state is None
    return type(message) in _OF_CONTENT and isinstance(message.content, str)


def rewritten_request(before: Request, given: object, said: str, *, candidates: set[int], settled: set[int]) -> Request:
    """The request as an interceptor leaves it. Raises `TaskError` saying what it did that it may not.

    `candidates`: positions of messages that it may rewrite. `settled`: of new ones that passed the interceptors before
    the harness saw them; they stay as they are (L6). `said` names the interceptor.
    """
    if given is None:
        return before
    if not isinstance(given, Request):
        raise TaskError(f"{said} returned {type(given).__name__}; it returns a Request or None")
    if len(given.messages) != len(before.messages):
        raise TaskError(f"{said} returned {len(given.messages)} messages for {len(before.messages)}; {ONLY}")
    if evolve(given, messages=before.messages) != before:
        raise TaskError(f"{said} changed the tools, the model or the sampling; {ONLY}")
    messages = list(before.messages)
    for at, (old, new) in enumerate(zip(before.messages, given.messages, strict=True)):
        if old is new or old == new or at in settled:
            continue
        if at not in candidates:
            raise TaskError(f"{said} changed message {at} ({old.role}), which is no new user or tool message; {ONLY}")
        if type(old) is not type(new):
            raise TaskError(f"{said} turned message {at} from {old.role} into {type(new).__name__}; {ONLY}")
        if isinstance(old, ToolMessage) and isinstance(new, ToolMessage) and evolve(new, content=old.content) != old:
            raise TaskError(f"{said} changed the tool call of message {at}; {ONLY}")
        if not _is_content(new.content):
            kind = type(new.content).__name__
            raise TaskError(f"{said} gave message {at} a content of type {kind}; it is text, or a tuple of parts")
        messages[at] = new
    return evolve(before, messages=messages) if any(map(_differs, messages, before.messages)) else before


def rewritten_response(before: Response, given: object, said: str) -> Response:
    """The answer as an interceptor leaves it; a replacement ends with `stop`. Raises `TaskError` saying what it did."""
    if given is None:
        return before
    if not isinstance(given, Response) or not isinstance(given.message, AssistantMessage):
        raise TaskError(f"{said} returned {type(given).__name__}; it returns a Response or None")
    if given == before:
        return before
    if evolve(given, message=before.message, finish_reason=before.finish_reason) != before:
        raise TaskError(f"{said} changed more than the assistant's message; that is all it may replace")
    inert = AssistantMessage(given.message.content)
    if given.message != inert or not isinstance(inert.content, str | None):
        raise TaskError(f"{said} returned tool calls, hidden reasoning or no text; a replacement is inert text")
    return evolve(given, finish_reason="stop", tokens=None, native=None)


def fault_of_answer(answer: object) -> str | None:
    """What is wrong with what a model returned; None if it can be used."""
    if not isinstance(answer, Response) or not isinstance(answer.message, AssistantMessage):
        return f"returned {type(answer).__name__}; a model returns a Response with an AssistantMessage"
    message, usage = answer.message, answer.usage
    if not (message.content is None or isinstance(message.content, str)):
        return f"returned a reply whose content is {type(message.content).__name__}; it is text or None"
    if not all(map(_is_call, message.tool_calls)):
        return "returned a tool call that is no ToolCall with an id, a name and arguments as text"
    if answer.tokens is not None and not _are_tokens(answer.tokens):
        return "returned tokens that are no Tokens: ids as whole numbers, and a logprob for each of the completion"
    if usage is not None and not _is_usage(usage):
        return "reported a usage that is no Usage with whole numbers from 0 on; it is None if it is unknown"
    if answer.finish_reason not in FINISHES:
        return f"returned the finish reason {shown(answer.finish_reason)}; it is one of {FINISHES[1:]} or None"
    return None


def _is_call(call: object) -> bool:
    return isinstance(call, ToolCall) and all(isinstance(told, str) for told in (call.id, call.name, call.arguments))


def _are_tokens(tokens: object) -> bool:
    if not isinstance(tokens, Tokens):
        return False
    prompt, completion, logprobs = tokens.prompt_ids, tokens.completion_ids, tokens.logprobs
    if not (_are_whole(prompt) and _are_whole(completion)):
        return False
    paired = logprobs is None or (isinstance(logprobs, tuple) and len(logprobs) == len(completion))
    return paired and all(map(math.isfinite, logprobs or ()))


def _are_whole(ids: object) -> bool:
    return isinstance(ids, tuple) and countOf(map(type, ids), int) == len(ids)


def _is_usage(usage: object) -> bool:
    if not isinstance(usage, Usage):
        return False
    cost = usage.cost
    priced = cost is None or (isinstance(cost, int | float) and math.isfinite(cost))
    return (
        priced
        and _is_count(usage.prompt_tokens)
        and _is_count(usage.completion_tokens)
        and (usage.cached_input_tokens is None or _is_count(usage.cached_input_tokens))
        and (usage.reasoning_tokens is None or _is_count(usage.reasoning_tokens))
    )


def _is_count(count: object) -> bool:
    return isinstance(count, int) and count >= 0


def _is_content(content: object) -> bool:
    if isinstance(content, tuple):
        return all(isinstance(part, TextPart | ImagePart | OtherPart) for part in content)
    return isinstance(content, str)


def _differs(one: object, other: object) -> bool:
    return one is not other
