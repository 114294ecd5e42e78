"""Each cell of the table of what survives translation is true."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import evolve

from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.dialects.translation import ANSWERS, LEFT_OUT, NONE, REFUSED, REQUESTS, Row, markdown
from rollout_fsm.messages import AssistantMessage, Response, Sampling, Tokens, ToolCall, Usage
from tests.gateway.dialects.strategies import NOBODY, wire

PIXEL = "data:image/png;base64,Zg=="
ADD = {"name": "add", "parameters": {"type": "object"}}


def chat(*said: Any, **fields: Any) -> tuple[str, dict[str, Any]]:
    messages = [said if isinstance(said, dict) else {"role": "user", "content": said} for said in said or ("hi",)]
    return "chat", {"messages": messages, **fields}


def responses(*said: Any, **fields: Any) -> tuple[str, dict[str, Any]]:
    items = [said if isinstance(said, dict) else {"role": "user", "content": said} for said in said or ("hi",)]
    return "responses", {"input": items, **fields}


def messages(*said: Any, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "messages", chat(*said, **fields)[1]


CALL: Any = {
    "chat": {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": '{"a":1}'}}]},
    "messages": {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}]},
}


def result(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": content, **fields}]}


Source = tuple[str, dict[str, Any]]
Finder = Callable[[str, dict[str, Any]], Any]


def has(*words: str) -> Finder:
    """Whether the body has all of these words."""
    return lambda target, body: all(word in str(body) for word in words)


def at(**paths: tuple[tuple[Any, ...], Any]) -> Finder:
    """Whether the body has a value at a path, by target."""

    def find(target: str, body: Any) -> bool:
        path, expected = paths[target]
        for step in path:
            body = body[step] if isinstance(step, int) else body.get(step)
            if body is None:
                return False
        return bool(body == expected)

    return find


def setting(chat: Any, responses: Any, messages: Any) -> Finder:
    """Whether the body has these fields, by target."""
    wanted = {"chat": chat, "responses": responses, "messages": messages}
    return lambda target, body: all(body.get(name) == value for name, value in wanted[target].items())


FROM: Mapping[str, tuple[list[Source], Finder]] = {
    "system prompt": (
        [
            chat({"role": "system", "content": "be brief"}, "hi"),
            responses(instructions="be brief"),
            messages(system="be brief"),
        ],
        at(chat=(("messages", 0, "content"), "be brief"), responses=(("instructions",), "be brief"),
           messages=(("system",), "be brief")),
    ),
    "later system messages": (
        [chat("hi", {"role": "system", "content": "now"}), responses("hi", {"role": "system", "content": "now"})],
        at(chat=(("messages", 1), {"role": "system", "content": "now"}),
           responses=(("input", 1), {"type": "message", "role": "system", "content": "now"}),
           messages=(("messages", 1), {"role": "system", "content": "now"})),
    ),
    "text of users and of the assistant": (
        [make("one", {"role": "assistant", "content": "two"}, "three") for make in (chat, responses, messages)],
        has("one", "two", "three"),
    ),
    "image by URL or data URL": (
        [
            chat([{"type": "image_url", "image_url": {"url": PIXEL}}, {"type": "image_url", "image_url": "https://x/y"}]),
            responses([{"type": "input_image", "image_url": PIXEL}, {"type": "input_image", "image_url": "https://x/y"}]),
            messages([
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Zg=="}},
                {"type": "image", "source": {"type": "url", "url": "https://x/y"}},
            ]),
        ],
        has("image/png", "Zg==", "https://x/y"),
    ),
    "detail of an image": (
        [
            chat([{"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}]),
            responses([{"type": "input_image", "image_url": PIXEL, "detail": "low"}]),
        ],
        has("'detail': 'low'"),
    ),
    "document by its bytes": (
        [
            chat([{"type": "file", "file": {"file_data": "data:application/pdf;base64,Zg==", "filename": "y.pdf"}}]),
            responses([{"type": "input_file", "file_data": "data:application/pdf;base64,Zg==", "filename": "y.pdf"}]),
            messages([{
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "Zg=="},
                "title": "y.pdf",
            }]),
        ],
        has("application/pdf", "Zg==", "y.pdf"),
    ),
    "document by URL": (
        [
            responses([{"type": "input_file", "file_url": "https://x/y.pdf"}]),
            messages([{"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}]),
        ],
        has("https://x/y.pdf"),
    ),
    "document as plain text": (
        [messages([{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "long ago"}}])],
        has("long ago", "text"),
    ),
    "file by its id at a provider": (
        [
            chat([{"type": "file", "file": {"file_id": "file-1"}}]),
            responses([{"type": "input_file", "file_id": "file-1"}]),
            responses([{"type": "input_image", "file_id": "file-1"}]),
            messages([{"type": "document", "source": {"type": "file", "file_id": "file_1"}}]),
            messages([{"type": "image", "source": {"type": "file", "file_id": "file_1"}}]),
        ],
        has("file"),
    ),
    "tool calls, with id, name, arguments": (
        [
            chat("hi", CALL["chat"]),
            responses("hi", {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'}),
            messages("hi", CALL["messages"]),
        ],
        at(chat=(("messages", 1, "tool_calls"),
                 [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}]),
           responses=(("input", 1), {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'}),
           messages=(("messages", 1, "content"), CALL["messages"]["content"])),
    ),
    "results of tools": (
        [
            chat("hi", CALL["chat"], {"role": "tool", "tool_call_id": "c1", "content": "one"}, "and"),
            responses("hi", {"type": "function_call_output", "call_id": "c1", "output": "one"}, "and"),
            messages("hi", CALL["messages"], result("one"), "and"),
        ],
        has("c1", "one", "and"),
    ),
    "images in results of tools": (
        [
            responses("hi", {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [{"type": "input_image", "image_url": PIXEL}],
            }),
            messages("hi", CALL["messages"], result([
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Zg=="}}
            ])),
        ],
        has("Zg==", "c1"),
    ),
    "mark of a failed result": ([messages("hi", CALL["messages"], result("no", is_error=True))], has("error")),
    "reasoning that can be read": (
        [
            chat("hi", {"role": "assistant", "content": "x", "reasoning_content": "because"}),
            responses(
                "hi",
                {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "because"}]},
                {"role": "assistant", "content": "x"},
            ),
            messages("hi", {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "because", "signature": "s"},
                    {"type": "text", "text": "x"},
                ],
            }),
        ],
        has("because"),
    ),
    "reasoning that is sealed by another provider": (
        [
            chat("hi", {"role": "assistant", "content": "x", "reasoning_details": [
                {"type": "reasoning.encrypted", "data": "sealed"}
            ]}),
            responses("hi", {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "sealed"}),
            messages("hi", {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "sealed"}]}, "x"),
        ],
        has("sealed"),
    ),
    "cache marks": (
        [
            chat([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]),
            responses([{"type": "input_text", "text": "hi", "prompt_cache_breakpoint": {"mode": "explicit"}}]),
            messages([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]),
        ],
        lambda target, body: "ephemeral" in str(body) or "explicit" in str(body),
    ),
    "tools with a JSON schema": (
        [
            chat(tools=[{"type": "function", "function": ADD}]),
            responses(tools=[{"type": "function", **ADD}]),
            messages(tools=[{"name": "add", "input_schema": ADD["parameters"]}]),
        ],
        at(chat=(("tools", 0), {"type": "function", "function": ADD}),
           responses=(("tools", 0), {"type": "function", **ADD, "strict": False}),
           messages=(("tools", 0), {"name": "add", "input_schema": ADD["parameters"]})),
    ),
    "custom tools, which take free text": (
        [
            chat(tools=[{"type": "custom", "custom": {"name": "p", "format": {
                "type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}}}]),
            responses(tools=[{"type": "custom", "name": "p", "format": {
                "type": "grammar", "syntax": "lark", "definition": "x"}}]),
        ],
        at(chat=(("tools", 0), {"type": "custom", "custom": {"name": "p", "format": {
               "type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}}}),
           responses=(("tools", 0), {"type": "custom", "name": "p", "format": {
               "type": "grammar", "syntax": "lark", "definition": "x"}})),
    ),
    "tools of a provider's own": (
        [
            chat(tools=[{"type": "web_search"}]),
            responses(tools=[{"type": "web_search"}]),
            messages(tools=[{"type": "bash_20250124", "name": "bash"}]),
        ],
        has("tools"),
    ),
    "choice of tool": (
        [
            chat(tool_choice={"type": "function", "function": {"name": "add"}}),
            responses(tool_choice={"type": "function", "name": "add"}),
            messages(tool_choice={"type": "tool", "name": "add"}),
        ],
        setting({"tool_choice": {"type": "function", "function": {"name": "add"}}},
                {"tool_choice": {"type": "function", "name": "add"}},
                {"tool_choice": {"type": "tool", "name": "add"}}),
    ),
    "no calls in parallel": (
        [
            chat(parallel_tool_calls=False),
            responses(parallel_tool_calls=False),
            messages(tool_choice={"type": "auto", "disable_parallel_tool_use": True}),
        ],
        setting({"parallel_tool_calls": False}, {"parallel_tool_calls": False},
                {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ),
    "temperature, top_p, top_k": (
        [make(temperature=0.5, top_p=0.25, top_k=3) for make in (chat, responses, messages)],
        setting(*[{"temperature": 0.5, "top_p": 0.25, "top_k": 3}] * 3),
    ),
    "limit of tokens": (
        [chat(max_completion_tokens=7), chat(max_tokens=7), responses(max_output_tokens=7), messages(max_tokens=7)],
        setting({"max_tokens": 7}, {"max_output_tokens": 7}, {"max_tokens": 7}),
    ),
    "stop sequences": (
        [chat(stop="END"), messages(stop_sequences=["END"])],
        setting({"stop": ["END"]}, {}, {"stop_sequences": ["END"]}),
    ),
    "seed": ([chat(seed=3)], lambda target, body: body.get("seed") == 3),
    "effort of reasoning": (
        [
            chat(reasoning_effort="low"),
            responses(reasoning={"effort": "low", "summary": "auto"}),
            messages(output_config={"effort": "low"}),
        ],
        setting({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}, {"output_config": {"effort": "low"}}),
    ),
    "answer by a JSON schema": (
        [
            chat(response_format={"type": "json_schema", "json_schema": {
                "name": "answer", "schema": {"type": "object"}, "strict": True}}),
            responses(text={"format": {
                "type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": True}}),
            messages(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}),
        ],
        setting({"response_format": {"type": "json_schema", "json_schema": {
                    "name": "answer", "schema": {"type": "object"}, "strict": True}}},
                {"text": {"format": {
                    "type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": True}}},
                {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}),
    ),
    "answer in any JSON": (
        [chat(response_format={"type": "json_object"}), responses(text={"format": {"type": "json_object"}})],
        has("json_object"),
    ),
    "id of the end user": (
        [chat(user="u"), responses(user="u"), messages(metadata={"user_id": "u"})],
        setting({"user": "u"}, {"user": "u"}, {"metadata": {"user_id": "u"}}),
    ),
    "settings of one API only": (
        [
            chat(logit_bias={"5": 1}, x_unknown=1),
            responses(truncation="auto", x_unknown=1),
            messages(thinking={"type": "adaptive"}, x_unknown=1),
        ],
        lambda target, body: any(name in body for name in ("logit_bias", "truncation", "thinking", "x_unknown")),
    ),
}  # fmt: skip

CELLS = [
    (row, source, body, target)
    for row in REQUESTS
    for source, body in FROM[row.thing][0]
    for target in DIALECTS
    if target != source
]


def test_every_row_has_its_proof() -> None:
    assert [row.thing for row in REQUESTS] == list(FROM)
    assert {(row.thing, target) for row, _, _, target in CELLS} == {
        (row.thing, target) for row in REQUESTS for target in DIALECTS if getattr(row, target) != NONE
    }


@pytest.mark.parametrize(
    ("row", "source", "body", "target"), CELLS, ids=[f"{row.thing}-{cell[0]}-{cell[2]}" for row, *cell in CELLS]
)
def test_a_request_is_translated_as_the_table_says(row: Row, source: str, body: Any, target: str) -> None:
    request = DIALECTS[source].parse_request(wire(body))
    said = getattr(row, target)
    if said == REFUSED:
        with pytest.raises(DialectError):
            DIALECTS[target].render_request(request, model="m", sampling=request.sampling, stream=False)
        return
    written = DIALECTS[target].render_request(request, model="m", sampling=request.sampling, stream=False)
    assert bool(FROM[row.thing][1](target, wire(written))) is (said != LEFT_OUT)


def test_the_runs_own_settings_are_in_the_words_of_the_endpoint() -> None:
    _, body = messages(tool_choice={"type": "any"}, top_k=2, x_unknown=1)
    request = DIALECTS["messages"].parse_request(body)
    run = Sampling(extra={"return_token_ids": True, "top_k": 5})
    written = DIALECTS["chat"].render_request(request, model="m", sampling=run.over(request.sampling), stream=False)
    assert written == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "tool_choice": "required",
        "return_token_ids": True,
        "top_k": 5,
    }


def test_images_of_results_stand_in_a_users_message_after_all_results() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://x/y"}}
    two = {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "seen"}, image]}
    answered = {"role": "user", "content": [*result([image])["content"], two, {"type": "text", "text": "and"}]}
    _, body = messages("hi", answered)
    request = DIALECTS["messages"].parse_request(body)
    written: Any = DIALECTS["chat"].render_request(request, model="m", sampling=Sampling(), stream=False)
    picture = {"type": "image_url", "image_url": {"url": "https://x/y"}}
    assert written["messages"][1:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "The images of this result are in the next message."},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "seen"}]},
        {"role": "user", "content": [picture, picture]},
        {"role": "user", "content": [{"type": "text", "text": "and"}]},
    ]


# Answers

SAID = Response(
    message=AssistantMessage(
        "Let me see.",
        reasoning_content="because",
        tool_calls=[ToolCall(id="c1", name="add", arguments='{"a":1}')],
        provider_state=({"type": "x_unknown", "data": "sealed"},),
    ),
    finish_reason="length",
    usage=Usage(prompt_tokens=6, completion_tokens=5, cached_input_tokens=4, reasoning_tokens=3),
    tokens=Tokens(prompt_ids=(1,), completion_ids=(77_777,)),
)


def answered(target: str, response: Response = SAID) -> Any:
    return wire(DIALECTS[target].render_response(response, request=NOBODY, model="m", created=1))


def answer_of(row: Row, target: str) -> str:
    """What the table should say of an answer, as it is."""
    body = answered(target)
    read = DIALECTS[target].parse_response(body)
    match row.thing:
        case "text":
            assert read.message.text == "Let me see."
            return row.chat
        case "refusal":
            refused: Any = {"message": {"content": None, "refusal": "I will not."}, "finish_reason": "stop"}
            came = evolve(DIALECTS["chat"].parse_response({"choices": [refused]}), native=None)
            return "text" if DIALECTS[target].parse_response(answered(target, came)).message.text else LEFT_OUT
        case "tool calls, with id, name, arguments":
            assert read.message.tool_calls == SAID.message.tool_calls
            return "arguments as an object" if "'input': {'a': 1}" in str(body) else row.chat
        case "reasoning that can be read":
            assert read.message.reasoning_content == "because"
            fields = {
                "`reasoning_content`": "'reasoning_content': 'because'",
                "a `reasoning` item": "'type': 'reasoning'",
                "a `thinking` block": "'type': 'thinking'",
            }
            return next(said for said, field in fields.items() if field in str(body))
        case "reasoning that is sealed":
            sealed = {"responses": "redacted_thinking", "messages": "reasoning", "chat": "redacted_thinking"}[target]
            state = ({"type": sealed, "data": "sealed"},)
            came = evolve(SAID, message=evolve(SAID.message, provider_state=state))
            return row.chat if "sealed" not in str(answered(target, came)) else "kept"
        case "reason of the end: stop, length":
            return row.chat if read.finish_reason == "length" else LEFT_OUT
        case "usage":
            return row.chat if read.usage == SAID.usage else LEFT_OUT
        case "usage that is unknown":
            body = answered(target, evolve(SAID, usage=None))
            if "usage" not in body:
                return LEFT_OUT
            return "null" if body["usage"] is None else "zeros"
        case "citations and annotations":
            return row.chat
        case "token ids and logprobs":
            return row.chat if "77777" not in str(body) else "kept"
    raise AssertionError(row)


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row.thing)
def test_an_answer_is_translated_as_the_table_says(row: Row, target: str) -> None:
    assert answer_of(row, target) == getattr(row, target)


def test_the_table_is_shown_in_markdown() -> None:
    lines = markdown(REQUESTS, "A request").splitlines()
    assert lines[0] == "| A request | Chat Completions | Responses | Messages |"
    assert lines[2] == "| system prompt | kept | `instructions` | `system` |"
    assert len(lines) == len(REQUESTS) + 2
