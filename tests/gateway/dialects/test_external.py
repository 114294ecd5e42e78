"""What leaves the box is taken out of a request, and named; all else stays as it was."""

from typing import Any

import pytest
from attrs import evolve

from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.external import FIELDS, TOOLS, Row, without_external
from rollout_fsm.messages import Request, Sampling, UserMessage
from tests.gateway.dialects.golden import REQUESTS

HI: dict[str, Any] = {
    "chat": {"messages": [{"role": "user", "content": "hi"}]},
    "responses": {"input": "hi"},
    "messages": {"messages": [{"role": "user", "content": "hi"}]},
}
FUNCTION: dict[str, Any] = {
    "chat": {"type": "function", "function": {"name": "f"}},
    "responses": {"type": "function", "name": "f", "parameters": {}},
    "messages": {"name": "f", "input_schema": {}},
}


def cleaned(dialect: str, **fields: Any) -> tuple[Any, tuple[str, ...], Request]:
    """The body that is left, the names of what was removed, and the request."""
    request = DIALECTS[dialect].parse_request({**HI[dialect], **fields})
    left, removed = without_external(request)
    body = DIALECTS[dialect].render_request(left, model="m", sampling=left.sampling, stream=False)
    return {name: value for name, value in body.items() if name != "model"}, removed, left


def kind_of(row: Row) -> str:
    """A kind of tool that is in the row."""
    return row.kind.replace("*", "x")


@pytest.mark.parametrize("row", [row for row in TOOLS if row.kind not in ("function", "custom")], ids=str)
def test_each_row_of_the_table_is_kept_to(row: Row) -> None:
    tool = {"type": kind_of(row), "name": "t", "input_schema": {}}
    body, removed, _ = cleaned(row.dialect, tools=[FUNCTION[row.dialect], tool])
    stays = [tool] if row.stays else []
    assert body == {**HI[row.dialect], "tools": [FUNCTION[row.dialect], *stays]}
    assert removed == (() if row.stays else (kind_of(row),))


@pytest.mark.parametrize("row", FIELDS, ids=str)
def test_each_field_of_the_table_is_removed_from_the_body_and_from_the_settings(row: Row) -> None:
    body, removed, left = cleaned(row.dialect, **{row.kind: {"x": 1}, "x_unknown": 1})
    assert body == {**HI[row.dialect], "x_unknown": 1}
    assert removed == (row.kind,)
    assert left.sampling.extra == {"x_unknown": 1}


@pytest.mark.parametrize("name", ["chat plain", "responses plain", "messages plain"])
def test_a_request_that_stays_inside_is_the_very_same(name: str) -> None:
    dialect = DIALECTS[name.partition(" ")[0]]
    request = dialect.parse_request(REQUESTS[name])
    assert without_external(request) == (request, ())
    assert without_external(request)[0] is request


@pytest.mark.parametrize("name", ["chat full", "responses full", "messages full"])
def test_what_came_is_not_written_into(name: str) -> None:
    dialect = DIALECTS[name.partition(" ")[0]]
    request = dialect.parse_request(REQUESTS[name])
    before = str(REQUESTS[name])
    left, removed = without_external(request)
    assert len(removed) == 1
    assert removed[0].startswith("web_search")
    assert str(REQUESTS[name]) == before
    assert left.native is not None
    tools: Any = left.native.body["tools"]
    assert tools == [tool for tool in REQUESTS[name]["tools"] if not str(tool.get("type")).startswith("web_search")]
    assert left.messages is request.messages


@pytest.mark.parametrize(
    ("tool", "stays"),
    [
        ({"type": "code_interpreter", "container": {"type": "auto"}}, True),
        ({"type": "code_interpreter", "container": {"type": "auto", "network_policy": {"type": "disabled"}}}, True),
        ({"type": "code_interpreter", "container": {"type": "auto", "network_policy": {"type": "allowlist"}}}, False),
        ({"type": "code_interpreter", "container": "cntr_1"}, False),
        ({"type": "shell", "environment": {"type": "local"}}, True),
        ({"type": "shell", "environment": {"type": "container_auto"}}, True),
        ({"type": "shell", "environment": {"type": "container_reference", "container_id": "c"}}, False),
    ],
)
def test_a_container_stays_if_it_is_known_to_have_no_network(tool: Any, stays: bool) -> None:
    body, removed, _ = cleaned("responses", tools=[FUNCTION["responses"], tool])
    assert (tool in body["tools"], removed) == (stays, () if stays else (tool["type"],))


@pytest.mark.parametrize(
    ("dialect", "tool", "choice", "stays"),
    [
        ("responses", {"type": "web_search"}, {"type": "web_search"}, False),
        ("responses", {"type": "web_search"}, {"type": "function", "name": "f"}, True),
        ("responses", {"type": "web_search"}, "required", True),
        (
            "responses",
            {"type": "mcp", "server_label": "s", "server_url": "https://x"},
            {"type": "mcp", "server_label": "s"},
            False,
        ),
        (
            "responses",
            {"type": "web_search"},
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]},
            False,
        ),
        (
            "responses",
            {"type": "web_search"},
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            True,
        ),
        ("messages", {"type": "web_fetch_20250910", "name": "web_fetch"}, {"type": "tool", "name": "web_fetch"}, False),
        ("messages", {"type": "web_fetch_20250910", "name": "web_fetch"}, {"type": "tool", "name": "f"}, True),
        ("messages", {"type": "web_fetch_20250910", "name": "web_fetch"}, {"type": "any"}, True),
    ],
)
def test_a_choice_of_a_tool_that_is_gone_goes_with_it(dialect: str, tool: Any, choice: Any, stays: bool) -> None:
    body, _, left = cleaned(dialect, tools=[FUNCTION[dialect], tool], tool_choice=choice)
    assert ("tool_choice" in body) is stays
    assert ("tool_choice" in left.sampling.extra) is stays


def test_where_no_tool_is_left_nothing_speaks_of_tools() -> None:
    body, _, _ = cleaned("responses", tools=[{"type": "web_search"}], tool_choice="auto", parallel_tool_calls=True)
    assert body == HI["responses"]


def test_tools_that_come_within_the_conversation_are_removed_there() -> None:
    brought = {"type": "additional_tools", "role": "developer", "tools": [FUNCTION["responses"], {"type": "mcp"}]}
    body, removed, _ = cleaned("responses", input=[{"role": "user", "content": "x"}, brought])
    assert body["input"][1] == {**brought, "tools": [FUNCTION["responses"]]}
    assert removed == ("mcp",)
    blocks: list[Any] = [
        {"type": "text", "text": "x"},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"type": "mcp_toolset"}}},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": FUNCTION["messages"]}},
    ]
    body, removed, _ = cleaned("messages", messages=[{"role": "user", "content": blocks}])
    assert body["messages"][0]["content"] == [blocks[0], blocks[2]]
    assert removed == ("mcp_toolset",)


def test_a_request_of_this_process_is_cleaned_in_its_settings() -> None:
    sampling = Sampling(extra={"web_search_options": {}, "tools": [{"type": "mcp"}, FUNCTION["chat"]], "top_k": 1})
    request = Request(messages=[UserMessage("x")], sampling=sampling)
    left, removed = without_external(request)
    assert left == evolve(request, sampling=Sampling(extra={"tools": [FUNCTION["chat"]], "top_k": 1}))
    assert set(removed) == {"web_search_options", "mcp"}
