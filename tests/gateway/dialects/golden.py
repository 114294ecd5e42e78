"""Bodies and streams as providers and their SDKs write them, with fields that nobody here knows."""

from typing import Any

from rollout_fsm.gateway.dialects.dialect import DONE
from rollout_fsm.messages import NativeEvent

CHAT_TOOL: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
        "strict": True,
        "x_unknown": 1,
    },
}

WEB_RESULT: Any = {"type": "web_search_result", "title": "t", "url": "https://x", "encrypted_content": "sealed"}
CITATION: Any = {
    "type": "char_location",
    "cited_text": "blue",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 4,
}

REQUESTS: dict[str, Any] = {
    "chat plain": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "chat full": {
        "model": "m",
        "messages": [
            {
                "role": "developer",
                "content": [{"type": "text", "text": "be brief", "x_cache": {"ttl": 1}}],
                "name": "d",
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
                    {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
                    {"type": "file", "file": {"file_id": "file-1"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "audio": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}, "x": 1},
                    {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** free"}},
                ],
                "x_unknown": True,
            },
            {"role": "tool", "tool_call_id": "c1", "content": "1", "x_unknown": 2},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "done"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "well"}], "reasoning_content": "hm"},
            {"role": "user", "content": "go on", "name": "ann"},
        ],
        "tools": [
            CHAT_TOOL,
            {"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}},
            {"type": "web_search", "web_search": {"engine": "x"}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "parallel_tool_calls": False,
        "stop": "END",
        "max_completion_tokens": 9,
        "temperature": 0,
        "n": 1,
        "stream": False,
        "return_token_ids": True,
        "logprobs": True,
        "x_unknown": {"deep": [1]},
    },
    "responses plain": {"model": "m", "input": "hi"},
    "responses full": {
        "model": "m",
        "instructions": "be brief",
        "input": [
            {"role": "developer", "content": "more"},
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "look", "prompt_cache_breakpoint": {"mode": "explicit"}},
                    {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
                    {"type": "input_file", "file_id": "file-1"},
                ],
                "x_unknown": 1,
            },
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed", "x_unknown": 1},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "commentary",
                "content": [{"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}],
            },
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a": 1}', "x": 1},
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "patch", "input": "*** free"},
            {
                "type": "shell_call",
                "id": "sh_1",
                "call_id": "c3",
                "action": {"commands": ["ls"]},
                "environment": {"type": "local"},
            },
            {"type": "function_call_output", "call_id": "c1", "output": "1", "x_unknown": 2},
            {
                "type": "custom_tool_call_output",
                "call_id": "c2",
                "output": [
                    {"type": "input_text", "text": "done"},
                    {"type": "input_image", "image_url": "data:image/png;base64,Zg==", "detail": "auto"},
                ],
            },
            {
                "type": "shell_call_output",
                "call_id": "c3",
                "output": [{"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            },
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]},
            {"role": "user", "content": "go on"},
        ],
        "tools": [
            {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True, "x_unknown": 1},
            {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
            {"type": "namespace", "name": "n", "description": "", "tools": [{"type": "function", "name": "sub"}]},
            {"type": "web_search", "filters": {"allowed_domains": ["x.org"]}},
        ],
        "tool_choice": {"type": "function", "name": "add"},
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "max_output_tokens": 9,
        "store": False,
        "stream": False,
        "x_unknown": {"deep": [1]},
    },
    "messages plain": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
    "messages full": {
        "model": "m",
        "max_tokens": 2000,
        "system": [
            {"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "and kind"},
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Zg=="}},
                    {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}, "title": "y"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "redacted_thinking", "data": "sealed"},
                    {"type": "text", "text": "Let me see.", "citations": None},
                    {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}, "x_unknown": 1},
                    {"type": "tool_use", "id": "c2", "name": "add", "input": {}},
                ],
                "x_unknown": 1,
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": "1"}],
                        "is_error": True,
                        "cache_control": {"type": "ephemeral"},
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "content": [{"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}],
                    },
                    {"type": "text", "text": "and now?"},
                ],
            },
            {"role": "assistant", "content": "Well"},
            {"role": "system", "content": "be quick"},
            {"role": "user", "content": "go on"},
        ],
        "tools": [
            {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}, "x_unknown": 1},
            {"type": "bash_20250124", "name": "bash"},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
        ],
        "tool_choice": {"type": "tool", "name": "add", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
        "stream": False,
        "x_unknown": {"deep": [1]},
    },
}

ANSWERS: dict[str, Any] = {
    "chat text": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 7,
        "model": "gpt-x",
        "system_fingerprint": "fp",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello!", "refusal": None, "annotations": [{"type": "u"}]},
                "logprobs": {"content": [{"token": "Hello", "logprob": -0.5, "bytes": None, "top_logprobs": []}]},
                "finish_reason": "stop",
                "x_unknown": 1,
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        "x_unknown": {"deep": 1},
    },
    "chat tools": {
        "id": "chatcmpl-2",
        "object": "chat.completion",
        "created": 7,
        "model": "gpt-x",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "I add.",
                    "reasoning_details": [{"type": "reasoning.text", "text": "I add.", "signature": "s", "index": 0}],
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
                        {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "free"}},
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
    },
    "responses text": {
        "id": "resp_1",
        "object": "response",
        "created_at": 7,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "gpt-x",
        "output": [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
                "encrypted_content": "sealed",
            },
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {
                        "type": "output_text",
                        "text": "Hello!",
                        "annotations": [
                            {"type": "url_citation", "start_index": 0, "end_index": 1, "title": "t", "url": "https://x"}
                        ],
                        "logprobs": [],
                    },
                    {"type": "refusal", "refusal": "No more."},
                ],
                "x_unknown": 1,
            },
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 15,
        },
        "x_unknown": {"deep": 1},
    },
    "responses tools": {
        "id": "resp_2",
        "object": "response",
        "created_at": 7,
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "model": "gpt-x",
        "output": [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "I add."}],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c1",
                "name": "add",
                "arguments": '{"a": 1}',
                "status": "completed",
            },
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "patch", "input": "free"},
            {
                "type": "apply_patch_call",
                "id": "ap_1",
                "call_id": "c3",
                "status": "completed",
                "operation": {"type": "delete_file", "path": "x"},
            },
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    },
    "messages text": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [
            {"type": "thinking", "thinking": "One.", "signature": "s1"},
            {"type": "redacted_thinking", "data": "sealed"},
            {"type": "thinking", "thinking": "Two.", "signature": "s2"},
            {"type": "text", "text": "The sky is "},
            {"type": "text", "text": "blue", "citations": [CITATION]},
            {"type": "text", "text": "."},
        ],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 5,
            "cache_creation_input_tokens": 1,
            "cache_read_input_tokens": 4,
            "output_tokens": 5,
            "output_tokens_details": {"thinking_tokens": 3},
            "service_tier": "standard",
        },
        "x_unknown": {"deep": 1},
    },
    "messages tools": {
        "id": "msg_2",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [WEB_RESULT]},
            {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1, "b": [2]}, "x_unknown": 1},
            {"type": "tool_use", "id": "c2", "name": "now", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 5},
    },
}


def _chunk(delta: Any, finish: str | None = None, **more: Any) -> NativeEvent:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "gpt-x",
        "x_unknown": 1,
    }
    return NativeEvent(dialect="chat", data={**head, "choices": [choice], "usage": None, **more})


def _named(dialect: str, *events: Any) -> list[NativeEvent]:
    return [NativeEvent(dialect=dialect, name=event["type"], data=event) for event in events]


def _item(index: int, **fields: Any) -> dict[str, Any]:
    return {"output_index": index, **fields}


_REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I add."}]}
_SAID = {"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}
_MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [_SAID]}
_CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "add",
    "arguments": '{"a": 1}',
    "status": "completed",
}
_OPEN: Any = {**ANSWERS["responses text"], "status": "in_progress", "output": [], "usage": None}

STREAMS: dict[str, list[NativeEvent]] = {
    "chat text": [
        _chunk({"role": "assistant", "content": "", "refusal": None}),
        _chunk({"content": "Hel"}),
        _chunk({"content": "lo!"}),
        _chunk({}, "stop"),
        _chunk({}, choices=[], usage=ANSWERS["chat text"]["usage"]),
        DONE,
    ],
    "chat tools": [
        _chunk({"role": "assistant", "content": None, "reasoning_content": "I "}),
        _chunk({"reasoning_content": "add."}),
        _chunk({"content": "Let me see."}),
        _chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": ""}},
                    {"index": 1, "id": "c2", "type": "function", "function": {"name": "add", "arguments": '{"a"'}},
                ]
            }
        ),
        _chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1}'}}]}),
        _chunk({"tool_calls": [{"index": 1, "function": {"arguments": ": 2}"}}]}),
        _chunk({}, "tool_calls"),
        _chunk({}, choices=[], usage=ANSWERS["chat text"]["usage"]),
        DONE,
    ],
    "responses": _named(
        "responses",
        *(
            {**event, "sequence_number": number}
            for number, event in enumerate(
                [
                    {"type": "response.created", "response": _OPEN},
                    {"type": "response.in_progress", "response": _OPEN},
                    {"type": "response.output_item.added", **_item(0, item={**_REASONING, "summary": []})},
                    {
                        "type": "response.reasoning_summary_part.added",
                        **_item(0, item_id="rs_1", summary_index=0, part={"type": "summary_text", "text": ""}),
                    },
                    {
                        "type": "response.reasoning_summary_text.delta",
                        **_item(0, item_id="rs_1", summary_index=0, delta="I add."),
                    },
                    {"type": "response.output_item.done", **_item(0, item=_REASONING)},
                    {
                        "type": "response.output_item.added",
                        **_item(1, item={**_MESSAGE, "content": [], "status": "in_progress"}),
                    },
                    {
                        "type": "response.content_part.added",
                        **_item(1, item_id="msg_1", content_index=0, part={**_SAID, "text": ""}),
                    },
                    {
                        "type": "response.output_text.delta",
                        **_item(1, item_id="msg_1", content_index=0, delta="Let me", logprobs=[], obfuscation="x"),
                    },
                    {
                        "type": "response.output_text.delta",
                        **_item(1, item_id="msg_1", content_index=0, delta=" see.", logprobs=[]),
                    },
                    {
                        "type": "response.output_text.done",
                        **_item(1, item_id="msg_1", content_index=0, text="Let me see.", logprobs=[]),
                    },
                    {
                        "type": "response.content_part.done",
                        **_item(1, item_id="msg_1", content_index=0, part=_SAID),
                    },
                    {"type": "response.output_item.done", **_item(1, item=_MESSAGE)},
                    {
                        "type": "response.output_item.added",
                        **_item(2, item={**_CALL, "arguments": "", "status": "in_progress"}),
                    },
                    {
                        "type": "response.function_call_arguments.delta",
                        **_item(2, item_id="fc_1", delta='{"a": '),
                    },
                    {"type": "response.function_call_arguments.delta", **_item(2, item_id="fc_1", delta="1}")},
                    {
                        "type": "response.function_call_arguments.done",
                        **_item(2, item_id="fc_1", arguments='{"a": 1}', name="add"),
                    },
                    {"type": "response.output_item.done", **_item(2, item=_CALL)},
                    {
                        "type": "response.completed",
                        "response": {**ANSWERS["responses text"], "output": [_REASONING, _MESSAGE, _CALL]},
                    },
                ]
            )
        ),
    ),
    "messages": _named(
        "messages",
        {
            "type": "message_start",
            "message": {
                **ANSWERS["messages text"],
                "content": [],
                "stop_reason": None,
                "usage": {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 1},
            },
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "I add."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Let me"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": " see."}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "c1", "name": "add", "input": {}},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ""}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a": 1'}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "}"}},
        {"type": "content_block_stop", "index": 2},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 3}},
        },
        {"type": "message_stop"},
    ),
}
