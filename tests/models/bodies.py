"""What the providers' other APIs answer, written down from their documentation: whole, and as the events of streams."""

import json
from collections.abc import Mapping

from tests.models.misbehaving import Behaviour, streams


def message(text: str = "four", **more: object) -> dict[str, object]:
    """An answer of Anthropic's messages."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-1",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 1, "cache_read_input_tokens": 2},
        **more,
    }


def message_events(*pieces: str) -> list[dict[str, object]]:
    """A stream of Anthropic's messages, in its own order: a start, a ping, a block in pieces, what ended it."""
    start = message() | {"content": [], "stop_reason": None}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": start},
        block,
        {"type": "ping"},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]


def response(text: str = "four", **more: object) -> dict[str, object]:
    """An answer of OpenAI's responses."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-1",
        "output": [_item(text)],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 2},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": 12,
        },
        **more,
    }


def response_events(*pieces: str) -> list[dict[str, object]]:
    """A stream of OpenAI's responses."""
    whole, at = response("".join(pieces)), {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    part = {"type": "output_text", "text": "", "annotations": []}
    events: list[dict[str, object]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**_item(""), "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **at, "part": part},
        *({"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []} for piece in pieces),
        {"type": "response.output_text.done", **at, "text": "".join(pieces), "logprobs": []},
        {"type": "response.content_part.done", **at, "part": {**part, "text": "".join(pieces)}},
        {"type": "response.output_item.done", "output_index": 0, "item": _item("".join(pieces))},
        {"type": "response.completed", "response": whole},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _item(text: str) -> dict[str, object]:
    return {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
    }


def named(*events: Mapping[str, object], named: bool = True) -> Behaviour:
    """Answers with a stream of these events, each under the name of its type."""
    return streams(*(event_bytes(event, named=named) for event in events), done=False)


def event_bytes(event: Mapping[str, object], *, named: bool = True) -> bytes:
    """An event as it is sent."""
    name = f"event: {event['type']}\n" if named else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()
