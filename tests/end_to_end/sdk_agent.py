"""A harness program that is written with the official SDK, unmodified: WHAT in, `told.json` out.

It knows nothing of the engine: the SDK finds endpoint and key in its own variables.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
from openai.types.chat import ChatCompletionMessageParam

WHAT, PROMPT = sys.argv[1:]
THREADS = 12

client = openai.OpenAI()
asked: ChatCompletionMessageParam = {"role": "user", "content": PROMPT}


def told(error: openai.APIStatusError) -> list[object]:
    return [error.status_code, error.code, error.body["message"] if isinstance(error.body, dict) else None]


def once(text: str) -> object:
    """The text of a reply, or how it was refused."""
    try:
        completion = client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    except openai.APIStatusError as error:
        return told(error)
    return completion.choices[0].message.content


def talk() -> object:
    """A plain turn, then one that streams and goes on from it, then one too many, twice."""
    first = client.chat.completions.create(model="m", messages=[asked]).choices[0].message
    messages: list[ChatCompletionMessageParam] = [
        asked,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "more"},
    ]
    with client.chat.completions.stream(model="m", messages=messages, stream_options={"include_usage": True}) as events:
        second = events.get_final_completion()
    said: list[object] = [first.content, second.choices[0].message.content, second.usage and second.usage.total_tokens]
    said.append(once("too much"))
    try:
        list(client.chat.completions.create(model="m", messages=messages, stream=True))
    except openai.APIStatusError as error:
        said.append(told(error))
    return said


def parallel() -> object:
    """As many turns at once as there are threads."""
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(once, [f"{PROMPT} {number}" for number in range(THREADS)]))


Path("told.json").write_text(json.dumps({"talk": talk, "once": lambda: once(PROMPT), "parallel": parallel}[WHAT]()))
