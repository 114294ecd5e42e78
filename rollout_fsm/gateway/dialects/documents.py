"""Parts that are neither text nor an image by URL, from one API to another: documents, by their bytes or by URL.

What has no counterpart is refused: a model that is not shown what it is asked about answers something else.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rollout_fsm.gateway.dialects.content import data_url, split_data_url
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.messages import JSON, OtherPart

OWNERS: Mapping[str, str] = {
    "file": "chat",
    "input_file": "responses",
    "input_image": "responses",
    "document": "messages",
    "image": "messages",
    "search_result": "messages",
    "container_upload": "messages",
    "tool_reference": "messages",
    "browser_state": "messages",
    "tool_addition": "messages",
    "tool_removal": "messages",
    "additional_tools": "responses",
    "compaction_trigger": "responses",
    "configuration_update": "responses",
    "mcp_approval_response": "responses",
}
"""The dialects of the kinds that only one dialect has. A part of another kind is nobody's, and passes as it is."""


def part_for(dialect: str, part: OtherPart) -> dict[str, JSON]:
    """The part as a dialect has it. Raises `DialectError` where it has no such part."""
    owner = OWNERS.get(part.type, dialect)
    if owner == dialect:
        return dict(part.data)
    document = _READ[owner](part.data)
    written = None if document is None else _WRITE[dialect](document)
    if written is None:
        raise DialectError(
            f"content: a part of type {part.type!r} that is no document by its bytes or by URL is known to the {owner} "
            f"API only, and the model's endpoint speaks {dialect}",
            param="content",
        )
    return written


Document = Mapping[str, str]
"""`data` (a data URL), `text` or `url`; and `name`, where it has one."""


def _chat(part: Mapping[str, Any]) -> Document | None:
    return _openai(part.get("file")) if part.get("type") == "file" else None


def _responses(part: Mapping[str, Any]) -> Document | None:
    return _openai(part) if part.get("type") == "input_file" else None


def _openai(file: Any) -> Document | None:
    match file:
        case {"file_data": str(data)}:
            found = {"data": data if data.startswith("data:") else data_url("application/pdf", data)}
        case {"file_url": str(url)}:
            found = {"url": url}
        case _:
            return None
    name = file.get("filename")
    return {**found, "name": name} if isinstance(name, str) else found


def _messages(part: Mapping[str, Any]) -> Document | None:
    match part:
        case {"type": "document", "source": {"type": "base64", "media_type": str(media), "data": str(data)}}:
            found = {"data": data_url(media, data)}
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            found = {"text": text}
        case {"type": "document", "source": {"type": "url", "url": str(url)}}:
            found = {"url": url}
        case _:
            return None
    name = part.get("title")
    return {**found, "name": name} if isinstance(name, str) else found


def _to_chat(document: Document) -> dict[str, JSON] | None:
    match document:
        case {"data": data}:
            return {"type": "file", "file": {"filename": document.get("name", "document.pdf"), "file_data": data}}
        case {"text": text}:
            return {"type": "text", "text": text}
    return None


def _to_responses(document: Document) -> dict[str, JSON] | None:
    match document:
        case {"data": data}:
            return {"type": "input_file", "filename": document.get("name", "document.pdf"), "file_data": data}
        case {"text": text}:
            return {"type": "input_text", "text": text}
        case {"url": url}:
            return {"type": "input_file", "file_url": url}
    return None


def _to_messages(document: Document) -> dict[str, JSON] | None:
    title: dict[str, JSON] = {"title": document["name"]} if "name" in document else {}
    match document:
        case {"data": data}:
            media, encoded = split_data_url(data) or ("", "")
            source: dict[str, JSON] = {"type": "base64", "media_type": media, "data": encoded}
        case {"url": url}:
            source = {"type": "url", "url": url}
        case _:
            return None
    return {"type": "document", "source": source, **title}


_READ: Mapping[str, Callable[[Mapping[str, Any]], Document | None]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
}
_WRITE: Mapping[str, Callable[[Document], dict[str, JSON] | None]] = {
    "chat": _to_chat,
    "responses": _to_responses,
    "messages": _to_messages,
}
