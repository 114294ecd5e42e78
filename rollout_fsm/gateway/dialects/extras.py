"""Settings that the APIs have under other names than each other, from one to another by way of chat's names.

Only what is named here crosses: a field of one API means nothing to the next, or is refused by it.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from rollout_fsm.messages import JSON

Extra: TypeAlias = Mapping[str, JSON]

SHARED = ("top_k", "min_p", "repetition_penalty")
"""Ways to sample that OpenAI's API lacks and other endpoints have, under these names in each dialect."""

OPENAI = (
    "parallel_tool_calls",
    "user",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
)
"""What chat and Responses have under the same names."""

LOGPROBS = "message.output_text.logprobs"
"""How Responses is asked for logprobs."""


def crossing(extra: Extra, source: str, target: str) -> dict[str, JSON]:
    """The settings of one dialect as another one has them; what does not cross is left out."""
    return _FROM_CHAT[target](_TO_CHAT[source](extra))


def _named(extra: Extra, names: tuple[str, ...]) -> dict[str, JSON]:
    return {name: extra[name] for name in names if extra.get(name) is not None}


# Chat's own


def _chat(extra: Extra) -> dict[str, JSON]:
    named = (*SHARED, *OPENAI, "tool_choice", "response_format", "verbosity", "logprobs", "top_logprobs")
    return _named(extra, named)


# Anthropic's Messages


def _from_messages(extra: Extra) -> dict[str, JSON]:
    chat = _named(extra, SHARED)
    match extra.get("tool_choice"):
        case {"type": "tool", "name": str(name)}:
            chat["tool_choice"] = {"type": "function", "function": {"name": name}}
        case {"type": "any"}:
            chat["tool_choice"] = "required"
        case {"type": "auto" | "none" as word}:
            chat["tool_choice"] = word
    match extra.get("tool_choice"):
        case {"disable_parallel_tool_use": True}:
            chat["parallel_tool_calls"] = False
    match extra.get("output_config"):
        case {"format": {"type": "json_schema", "schema": dict(schema)}}:
            chat["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": schema, "strict": True},
            }
    match extra.get("metadata"):
        case {"user_id": str(user)}:
            chat["user"] = user
    return chat


def _to_messages(chat: Extra) -> dict[str, JSON]:
    extra = _named(chat, ("top_k",))
    choice: dict[str, JSON] | None = None
    match chat.get("tool_choice"):
        case {"type": "function" | "custom" as kind, **fields}:
            named: Any = fields.get(kind)
            choice = {"type": "tool", "name": named["name"]} if isinstance(named, dict) and "name" in named else None
        case "required":
            choice = {"type": "any"}
        case "auto" | "none" as word:
            choice = {"type": word}
    if chat.get("parallel_tool_calls") is False and (choice is None or choice["type"] != "none"):
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    if choice is not None:
        extra["tool_choice"] = choice
    match chat.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            extra["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    match chat.get("user"):
        case str(user):
            extra["metadata"] = {"user_id": user}
    return extra


# OpenAI's Responses


def _from_responses(extra: Extra) -> dict[str, JSON]:
    chat = _named(extra, (*SHARED, *OPENAI))
    match extra.get("tool_choice"):
        case {"type": "function" | "custom" as kind, "name": str(name)}:
            chat["tool_choice"] = {"type": kind, kind: {"name": name}}
        case "auto" | "none" | "required" as word:
            chat["tool_choice"] = word
    text = extra.get("text")
    match text:
        case {"format": dict(format)} if format.get("type") == "json_schema":
            schema: dict[str, JSON] = {name: value for name, value in format.items() if name != "type"}
            chat["response_format"] = {"type": "json_schema", "json_schema": schema}
        case {"format": {"type": "json_object"}}:
            chat["response_format"] = {"type": "json_object"}
    if isinstance(text, dict) and text.get("verbosity") is not None:
        chat["verbosity"] = text["verbosity"]
    include = extra.get("include")
    if isinstance(include, list) and LOGPROBS in include:
        chat |= {"logprobs": True, **_named(extra, ("top_logprobs",))}
    return chat


def _to_responses(chat: Extra) -> dict[str, JSON]:
    extra = _named(chat, (*SHARED, *OPENAI))
    match chat.get("tool_choice"):
        case {"type": "function" | "custom" as kind, **fields}:
            named: Any = fields.get(kind)
            if isinstance(named, dict) and "name" in named:
                extra["tool_choice"] = {"type": kind, "name": named["name"]}
        case "auto" | "none" | "required" as word:
            extra["tool_choice"] = word
    text: dict[str, JSON] = {}
    match chat.get("response_format"):
        case {"type": "json_schema", "json_schema": dict(schema)}:
            text["format"] = {"type": "json_schema", **schema}
        case {"type": "json_object"}:
            text["format"] = {"type": "json_object"}
    if (verbosity := chat.get("verbosity")) is not None:
        text["verbosity"] = verbosity
    if text:
        extra["text"] = text
    if chat.get("logprobs"):
        extra |= {"include": [LOGPROBS], **_named(chat, ("top_logprobs",))}
    return extra


_TO_CHAT: Mapping[str, Callable[[Extra], dict[str, JSON]]] = {
    "chat": _chat,
    "messages": _from_messages,
    "responses": _from_responses,
}
_FROM_CHAT: Mapping[str, Callable[[Extra], dict[str, JSON]]] = {
    "chat": _chat,
    "messages": _to_messages,
    "responses": _to_responses,
}
