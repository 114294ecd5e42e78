"""The official OpenAI SDK, as it is, in a process of its own, against a gateway."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from rollout_fsm.errors import ProviderError, TaskError, TurnRefused
from rollout_fsm.gateway import Slot, open_gateway
from rollout_fsm.messages import (
    AssistantMessage,
    Request,
    Response,
    Sampling,
    SystemMessage,
    TextPart,
    Tool,
    ToolCall,
    Usage,
    UserMessage,
)

from .sessions import ANSWER, Scripted

pytestmark = pytest.mark.real_time

CLIENT = Path(__file__).with_name("sdk_client.py")


async def sdk(slot: Slot, *what: str, key: str | None = None, retries: int = 2) -> Any:
    """What each of the client's calls came to."""
    command = [sys.executable, str(CLIENT), slot.url, key or slot.secret, str(retries), *what]
    done = await trio.run_process(command, capture_stdout=True, env={**os.environ, "NO_PROXY": "*"})
    return json.loads(done.stdout)


async def test_the_sdk_gets_the_answer_and_the_session_gets_all_that_was_asked() -> None:
    session = Scripted()
    async with open_gateway() as gateway:
        [said] = await sdk(gateway.open_slot(session), "plain")
    assert session.requests == [
        Request(
            messages=(SystemMessage("be brief"), UserMessage((TextPart("2 + 2?"),))),
            tools=(Tool(name="add", description="Adds.", parameters={"type": "object", "properties": {}}),),
            model="m",
            sampling=Sampling(temperature=0.5, max_tokens=9, stop=("END",), extra={"tool_choice": "auto"}),
        )
    ]
    said = said["result"]
    assert said["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "four"}, "finish_reason": "stop"}
    ]
    assert said["usage"]["prompt_tokens"] == 13
    assert said["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert (said["id"], said["model"], said["object"]) == ("answer", "m", "chat.completion")


async def test_the_sdk_assembles_a_stream_of_text_calls_and_usage() -> None:
    calls = (
        ToolCall(id="a", name="add", arguments='{"x": 1, "y": 2}'),
        ToolCall(id="b", name="sub", arguments="{}"),
    )
    message = AssistantMessage("I will add and then subtract.", tool_calls=calls)
    usage = Usage(prompt_tokens=5, completion_tokens=7, reasoning_tokens=2)
    session = Scripted([Response(message=message, finish_reason="tool_calls", usage=usage)])
    async with open_gateway() as gateway:
        [said] = await sdk(gateway.open_slot(session), "stream")
    said = said["result"]
    [choice] = said["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == message.content
    got = [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in choice["message"]["tool_calls"]
    ]
    assert got == [(call.id, call.name, call.arguments) for call in calls]
    assert said["usage"]["total_tokens"] == 12
    assert said["id"].startswith("chatcmpl-")


async def test_a_stream_has_no_usage_unless_the_sdk_asks_for_it() -> None:
    async with open_gateway() as gateway:
        [said] = await sdk(gateway.open_slot(Scripted()), "stream_without_usage")
    chunks = said["result"]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "four"
    assert all("usage" not in chunk for chunk in chunks)


async def test_a_wrong_key_is_an_authentication_error_and_reaches_no_session() -> None:
    session = Scripted()
    async with open_gateway() as gateway:
        outcomes = await sdk(gateway.open_slot(session), "plain", "stream", "models", key="sk-wrong")
    assert [(said["error"], said["code"]) for said in outcomes] == [("AuthenticationError", "invalid_api_key")] * 3
    assert session.requests == []


async def test_a_refused_turn_is_a_bad_request_and_is_not_tried_again() -> None:
    session = Scripted([TurnRefused("rollout stopped: max_turns", condition="max_turns")])
    async with open_gateway() as gateway:
        plain, stream = await sdk(gateway.open_slot(session), "plain", "stream")
    assert plain == stream
    assert plain == {
        "error": "BadRequestError",
        "status": 400,
        "message": "rollout stopped: max_turns",
        "code": "max_turns",
    }
    assert len(session.requests) == 2


async def test_the_sdk_tries_again_after_a_providers_429_and_500() -> None:
    session = Scripted([ProviderError("slow down", status_code=429), ProviderError("oops", status_code=500), ANSWER])
    async with open_gateway() as gateway:
        [said] = await sdk(gateway.open_slot(session), "plain")
    assert said["result"]["choices"][0]["message"]["content"] == "four"
    assert len(session.requests) == 3


async def test_a_providers_404_is_passed_on_and_is_not_tried_again() -> None:
    session = Scripted([ProviderError("no such model", status_code=404)])
    async with open_gateway() as gateway:
        [said] = await sdk(gateway.open_slot(session), "plain")
    assert (said["error"], said["message"]) == ("NotFoundError", "ProviderError: no such model")
    assert len(session.requests) == 1


async def test_a_failed_hook_is_answered_with_its_error() -> None:
    session = Scripted([TaskError("stop said_done failed: KeyError: 'x'")])
    async with open_gateway() as gateway:
        [said] = await sdk(gateway.open_slot(session), "plain", retries=0)
    assert (said["error"], said["status"]) == ("InternalServerError", 502)
    assert said["message"] == "TaskError: stop said_done failed: KeyError: 'x'"


async def test_the_sdk_lists_the_rollouts_model() -> None:
    async with open_gateway() as gateway:
        assert await sdk(gateway.open_slot(Scripted(), model_name="small"), "models") == [{"result": ["small"]}]
