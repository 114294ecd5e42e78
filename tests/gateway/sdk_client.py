"""The official SDK, unmodified, in a process of its own: URL, KEY, RETRIES and WHAT… in, JSON out."""

import json
import sys

import openai
from openai.types.chat import ChatCompletionToolParam

URL, KEY, RETRIES, *WHAT = sys.argv[1:]

TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}},
    }
]

client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=int(RETRIES))


def plain() -> object:
    completion = client.chat.completions.create(
        model="m",
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},
        ],
        temperature=0.5,
        max_completion_tokens=9,
        stop="END",
        tool_choice="auto",
        tools=TOOLS,
    )
    return completion.to_dict(mode="json")


def stream() -> object:
    with client.chat.completions.stream(
        model="m", messages=[{"role": "user", "content": "2 + 2?"}], stream_options={"include_usage": True}
    ) as events:
        for _ in events:
            pass
        return events.get_final_completion().to_dict(mode="json")


def stream_without_usage() -> object:
    chunks = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "2 + 2?"}], stream=True)
    return [chunk.to_dict(mode="json") for chunk in chunks]


def models() -> object:
    return [model.id for model in client.models.list()]


def outcome(what: str) -> object:
    try:
        return {"result": globals()[what]()}
    except openai.APIStatusError as error:
        return {
            "error": type(error).__name__,
            "status": error.status_code,
            "message": (error.body or {}).get("message") if isinstance(error.body, dict) else None,
            "code": error.code,
        }


json.dump([outcome(what) for what in WHAT], sys.stdout)
