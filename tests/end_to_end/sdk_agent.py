"""A harness program that is written with the official SDKs, unmodified: API, WHAT and a prompt in, `told.json` out.

It knows nothing of the engine: the SDKs find endpoint and key in their own variables, unless an endpoint is said. The
same little agent is written three times, once against each API, as their users write it.
"""

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

API, WHAT, PROMPT, *ENDPOINT = sys.argv[1:]
SYSTEM = os.environ.get("ROLLOUT_SYSTEM_PROMPT", "")
THREADS = 12
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}

if API == "messages":
    import anthropic as sdk

    client: Any = sdk.Anthropic()
else:
    import openai as sdk  # type: ignore[no-redef]

    client = sdk.OpenAI(base_url=ENDPOINT[0] if ENDPOINT else None)


def add(arguments: dict[str, int]) -> str:
    return str(arguments["a"] + arguments["b"])


# The agent: asks, runs the tools that are asked for, asks again, until there is an answer.


def chat(streamed: bool) -> str:
    tools = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
    while True:
        asked: Any = {"model": "m", "messages": messages, "tools": tools}
        if streamed:
            with client.chat.completions.stream(**asked) as stream:
                reply = stream.get_final_completion().choices[0].message
        else:
            reply = client.chat.completions.create(**asked).choices[0].message
        if not reply.tool_calls:
            return str(reply.content)
        messages.append(reply.to_dict())
        for call in reply.tool_calls:
            result = add(json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def responses(streamed: bool) -> str:
    tools = [{"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA, "strict": None}]
    items: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        asked: Any = {"model": "m", "instructions": SYSTEM, "input": items, "tools": tools, "store": False}
        if streamed:
            with client.responses.stream(**asked) as stream:
                reply = stream.get_final_response()
        else:
            reply = client.responses.create(**asked)
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return str(reply.output_text)
        items += reply.output
        for call in calls:
            result = add(json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


def messages(streamed: bool) -> str:
    tools = [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}]
    turns: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        asked: Any = {"model": "m", "max_tokens": 100, "system": SYSTEM, "messages": turns, "tools": tools}
        if streamed:
            with client.messages.stream(**asked) as stream:
                reply = stream.get_final_message()
        else:
            reply = client.messages.create(**asked)
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in reply.content if block.type == "text")
        turns.append({"role": "assistant", "content": reply.content})
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": add(call.input)} for call in calls]
        turns.append({"role": "user", "content": results})


# Single turns, and what they come to.


def text_of(text: str) -> str:
    """The text of a reply to one message."""
    said: list[Any] = [{"role": "user", "content": text}]
    match API:
        case "chat":
            return str(client.chat.completions.create(model="m", messages=said).choices[0].message.content)
        case "responses":
            return str(client.responses.create(model="m", input=text).output_text)
        case _:
            return str(client.messages.create(model="m", max_tokens=100, messages=said).content[0].text)


def pieces_of(text: str) -> Any:
    """The pieces of a reply to one message, as they come; closed when the caller stops."""
    said: list[Any] = [{"role": "user", "content": text}]
    match API:
        case "chat":
            with client.chat.completions.create(model="m", messages=said, stream=True) as chunks:
                yield from (piece for chunk in chunks for choice in chunk.choices if (piece := choice.delta.content))
        case "responses":
            with client.responses.create(model="m", input=text, stream=True) as events:
                yield from (event.delta for event in events if event.type == "response.output_text.delta")
        case _:
            with client.messages.stream(model="m", max_tokens=100, messages=said) as stream:
                yield from stream.text_stream


def told(error: Any) -> list[object]:
    """How a turn was refused."""
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error", body)
    return [type(error).__name__, getattr(error, "status_code", None), inner.get("code"), inner.get("message")]


def once(text: str) -> object:
    """The text of a reply, or how it was refused."""
    try:
        return text_of(text)
    except sdk.APIStatusError as error:
        return told(error)


def told_pieces(text: str) -> object:
    """The pieces of a reply, or how the stream ended."""
    said: list[object] = []
    try:
        said.extend(pieces_of(text))
    except sdk.APIError as error:
        said.append(told(error))
    return said


def left() -> object:
    """The first piece of a stream that is closed then."""
    stream = pieces_of(PROMPT)
    first = next(stream)
    stream.close()
    return first


def troubled() -> object:
    """A turn that has to be tried again, a stream that is left, one that breaks off, and turns until they are refused;
    between them turns that go well."""
    told = [once("try again"), left(), once("left"), told_pieces("breaks off"), once("broke off")]
    if API == "messages":
        asked: list[Any] = [{"role": "user", "content": PROMPT}]
        told.append(client.messages.count_tokens(model="m", messages=asked).input_tokens)
    return [*told, once("too much"), told_pieces("too much, streamed")]


def parallel() -> object:
    """As many turns at once as there are threads."""
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(once, [f"{PROMPT} {number}" for number in range(THREADS)]))


AGENT: dict[str, Callable[[bool], str]] = {"chat": chat, "responses": responses, "messages": messages}
TASKS: dict[str, Callable[[], object]] = {
    "solve": lambda: AGENT[API](False),
    "solve streamed": lambda: AGENT[API](True),
    "once": lambda: once(PROMPT),
    "troubled": troubled,
    "parallel": parallel,
}

Path("told.json").write_text(json.dumps(TASKS[WHAT]()))
