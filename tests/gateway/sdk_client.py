"""The official SDKs, unmodified, in a process of their own: a line of JSON in for each call, a line of JSON out.

One process serves many calls, since the SDKs take seconds to load.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import anthropic
import openai

QUESTION: list[Any] = [{"role": "user", "content": "2 + 2?"}]
SCHEMA = {"type": "object", "properties": {}}


class Chat:
    def __init__(self, url: str, key: str, retries: int) -> None:
        self.client: Any = openai.OpenAI(base_url=url, api_key=key, max_retries=retries)

    def plain(self) -> object:
        tools = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}]
        said = [{"role": "developer", "content": "be brief"}]
        asked = [{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}]
        return self.client.chat.completions.create(
            model="m",
            messages=said + asked,
            temperature=0.5,
            max_completion_tokens=9,
            stop="END",
            tool_choice="auto",
            tools=tools,
        ).to_dict(mode="json")

    def stream(self) -> object:
        usage = {"include_usage": True}
        with self.client.chat.completions.stream(model="m", messages=QUESTION, stream_options=usage) as events:
            return events.get_final_completion().to_dict(mode="json")

    def stream_without_usage(self) -> object:
        chunks = self.client.chat.completions.create(model="m", messages=QUESTION, stream=True)
        return [chunk.to_dict(mode="json") for chunk in chunks]

    def models(self) -> object:
        return [model.id for model in self.client.models.list()] + [self.client.models.retrieve("small").id]


class Responses(Chat):
    def plain(self) -> object:
        tools = [{"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA, "strict": None}]
        return self.client.responses.create(
            model="m",
            instructions="be brief",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "2 + 2?"}]}],
            temperature=0.5,
            max_output_tokens=9,
            tool_choice="auto",
            tools=tools,
            store=False,
        ).to_dict(mode="json")

    def stream(self) -> object:
        with self.client.responses.stream(model="m", input=QUESTION) as events:
            return events.get_final_response().to_dict(mode="json")


class Messages:
    def __init__(self, url: str, key: str, retries: int) -> None:
        root = url.removesuffix("/v1")
        self.client: Any = anthropic.Anthropic(base_url=root, api_key=key, max_retries=retries)

    def plain(self) -> object:
        return self.client.messages.create(
            model="m",
            system="be brief",
            messages=[{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}],
            extra_body={"temperature": 0.5},  # the SDK has no argument for it any more
            max_tokens=9,
            stop_sequences=["END"],
            tool_choice={"type": "auto"},
            tools=[{"name": "add", "description": "Adds.", "input_schema": SCHEMA}],
        ).to_dict(mode="json")

    def stream(self) -> object:
        with self.client.messages.stream(model="m", max_tokens=9, messages=QUESTION) as stream:
            return stream.get_final_message().to_dict(mode="json")

    def count(self) -> object:
        return self.client.messages.count_tokens(model="m", messages=QUESTION).input_tokens

    def models(self) -> object:
        return [model.id for model in self.client.models.list()] + [self.client.models.retrieve("small").id]


APIS: dict[str, Callable[[str, str, int], object]] = {"chat": Chat, "responses": Responses, "messages": Messages}


def outcome(api: str, what: str, url: str, key: str, retries: int) -> object:
    try:
        return {"result": getattr(APIS[api](url, key, retries), what)()}
    except (openai.APIError, anthropic.APIError) as error:
        body = error.body if isinstance(error.body, dict) else {}
        inner = body.get("error", body)
        return {
            "error": type(error).__name__,
            "status": getattr(error, "status_code", None),
            "message": inner.get("message"),
            "code": inner.get("code"),
        }


for line in sys.stdin:
    print(json.dumps(outcome(**json.loads(line))), flush=True)  # noqa: T201
