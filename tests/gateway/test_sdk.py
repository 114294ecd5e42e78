"""The official SDKs of OpenAI and Anthropic, as they are, in a process of their own, against a gateway."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

from rollout_fsm.errors import ProviderError, TaskError, TurnRefused
from rollout_fsm.gateway import Slot, open_gateway
from rollout_fsm.messages import (
    AssistantMessage,
    Response,
    Sampling,
    SystemMessage,
    Tool,
    ToolCall,
    Usage,
    UserMessage,
)

from .sessions import ANSWER, Scripted, Streaming

pytestmark = pytest.mark.real_time

CLIENT = Path(__file__).with_name("sdk_client.py")
APIS = ("chat", "responses", "messages")
every_api = pytest.mark.parametrize("api", APIS)


@frozen
class Sdk:
    """The process of the SDKs. It makes one call after the other."""

    process: subprocess.Popen[str]

    async def __call__(self, slot: Slot, api: str, what: str, *, key: str | None = None, retries: int = 2) -> Any:
        """What a call came to."""
        call = {"api": api, "what": what, "url": slot.url, "key": key or slot.secret, "retries": retries}
        return json.loads(await trio.to_thread.run_sync(self._make, json.dumps(call)))

    def _make(self, call: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(call + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()


@pytest.fixture(scope="module")
def sdk() -> Iterator[Sdk]:
    command = [sys.executable, str(CLIENT)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, "NO_PROXY": "*"}) as process:
        yield Sdk(process)
        assert process.stdin is not None
        process.stdin.close()


def text_of(api: str, said: Any) -> str:
    """The text of an answer as the SDK has it."""
    match api:
        case "chat":
            return str(said["choices"][0]["message"]["content"])
        case "responses":
            return "".join(
                part["text"] for item in said["output"] if item["type"] == "message" for part in item["content"]
            )
    return "".join(block["text"] for block in said["content"] if block["type"] == "text")


def calls_of(api: str, said: Any) -> list[tuple[str, str, object]]:
    """The tool calls of an answer as the SDK has it."""
    match api:
        case "chat":
            return [
                (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in said["choices"][0]["message"]["tool_calls"]
            ]
        case "responses":
            return [
                (item["call_id"], item["name"], json.loads(item["arguments"]))
                for item in said["output"]
                if item["type"] == "function_call"
            ]
    return [(block["id"], block["name"], block["input"]) for block in said["content"] if block["type"] == "tool_use"]


def usage_of(api: str, said: Any) -> tuple[int, int]:
    """Tokens in and out."""
    usage = said["usage"]
    if api == "chat":
        return usage["prompt_tokens"], usage["completion_tokens"]
    if api == "messages":
        return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]
    return usage["input_tokens"], usage["output_tokens"]


@every_api
async def test_the_sdk_gets_the_answer_and_the_session_gets_all_that_was_asked(api: str, sdk: Sdk) -> None:
    session = Scripted()
    async with open_gateway() as gateway:
        said = (await sdk(gateway.open_slot(session), api, "plain"))["result"]
    (request,) = session.requests
    assert [(message.role, message.text) for message in request.messages] == [
        ("system", "be brief"),
        ("user", "2 + 2?"),
    ]
    assert isinstance(request.messages[0], SystemMessage)
    assert isinstance(request.messages[1], UserMessage)
    assert request.tools == (Tool(name="add", description="Adds.", parameters={"type": "object", "properties": {}}),)
    assert (request.model, request.sampling.temperature, request.sampling.max_tokens) == ("m", 0.5, 9)
    assert request.sampling.stop == (None if api == "responses" else ("END",))
    assert text_of(api, said) == "four"
    assert usage_of(api, said) == (13, 2)
    assert said["model"] == "m"


async def test_a_chat_request_is_read_to_its_last_field(sdk: Sdk) -> None:
    session = Scripted()
    async with open_gateway() as gateway:
        await sdk(gateway.open_slot(session), "chat", "plain")
    sampling = Sampling(temperature=0.5, max_tokens=9, stop=("END",), extra={"tool_choice": "auto"})
    assert session.requests[0].sampling == sampling


TALKATIVE = Response(
    message=AssistantMessage(
        "I will add and then subtract.",
        tool_calls=(
            ToolCall(id="a", name="add", arguments='{"x": 1, "y": 2}'),
            ToolCall(id="b", name="sub", arguments="{}"),
        ),
    ),
    finish_reason="tool_calls",
    usage=Usage(prompt_tokens=5, completion_tokens=7, cached_input_tokens=1),
)


@every_api
@pytest.mark.parametrize("what", ["plain", "stream"])
async def test_the_sdk_puts_text_calls_and_usage_together(api: str, what: str, sdk: Sdk) -> None:
    async with open_gateway() as gateway:
        said = (await sdk(gateway.open_slot(Scripted([TALKATIVE])), api, what))["result"]
    assert text_of(api, said) == TALKATIVE.message.content
    assert calls_of(api, said) == [("a", "add", {"x": 1, "y": 2}), ("b", "sub", {})]
    assert usage_of(api, said) == (6, 7)
    assert said["id"]


@every_api
async def test_the_sdk_puts_the_pieces_of_an_answer_together(api: str, sdk: Sdk) -> None:
    session = Streaming("one ", "two ", "three")
    session.go_on(4)
    async with open_gateway() as gateway:
        said = (await sdk(gateway.open_slot(session), api, "stream"))["result"]
    assert text_of(api, said) == "one two three"


@every_api
async def test_a_stream_that_breaks_off_is_an_error_of_the_sdks(api: str, sdk: Sdk) -> None:
    session = Streaming("one ", end=ProviderError("the line went dead", status_code=502))
    session.go_on(2)
    async with open_gateway() as gateway:
        said = await sdk(gateway.open_slot(session), api, "stream")
    assert said["error"] in ("APIError", "APIStatusError", "InternalServerError")
    assert said["message"] == "ProviderError: the line went dead"


async def test_a_stream_has_no_usage_unless_the_sdk_asks_for_it(sdk: Sdk) -> None:
    async with open_gateway() as gateway:
        chunks = (await sdk(gateway.open_slot(Scripted()), "chat", "stream_without_usage"))["result"]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "four"
    assert all("usage" not in chunk for chunk in chunks)


@every_api
@pytest.mark.parametrize("what", ["plain", "stream", "models"])
async def test_a_wrong_key_is_an_authentication_error_and_reaches_no_session(api: str, what: str, sdk: Sdk) -> None:
    session = Scripted()
    async with open_gateway() as gateway:
        said = await sdk(gateway.open_slot(session), api, what, key="sk-wrong")
    assert (said["error"], said["code"]) == ("AuthenticationError", "invalid_api_key")
    assert session.requests == []


@every_api
async def test_a_refused_turn_is_a_bad_request_and_is_not_tried_again(api: str, sdk: Sdk) -> None:
    session = Scripted([TurnRefused("rollout stopped: max_turns", condition="max_turns")])
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        plain, stream = await sdk(slot, api, "plain"), await sdk(slot, api, "stream")
    assert plain == stream
    assert plain == {
        "error": "BadRequestError",
        "status": 400,
        "message": "rollout stopped: max_turns",
        "code": "max_turns",
    }
    assert len(session.requests) == 2


@pytest.mark.parametrize(("api", "status"), [("chat", 429), ("responses", 500), ("messages", 529)])
async def test_the_sdk_tries_again_what_the_provider_could_not_answer(api: str, status: int, sdk: Sdk) -> None:
    session = Scripted([ProviderError("not now", status_code=status), ANSWER])
    async with open_gateway() as gateway:
        said = (await sdk(gateway.open_slot(session), api, "plain"))["result"]
    assert text_of(api, said) == "four"
    assert len(session.requests) == 2


@every_api
async def test_a_providers_404_is_passed_on_and_is_not_tried_again(api: str, sdk: Sdk) -> None:
    session = Scripted([ProviderError("no such model", status_code=404)])
    async with open_gateway() as gateway:
        said = await sdk(gateway.open_slot(session), api, "plain")
    assert (said["error"], said["message"]) == ("NotFoundError", "ProviderError: no such model")
    assert len(session.requests) == 1


@every_api
async def test_a_failed_hook_is_answered_with_its_error(api: str, sdk: Sdk) -> None:
    session = Scripted([TaskError("stop said_done failed: KeyError: 'x'")])
    async with open_gateway() as gateway:
        said = await sdk(gateway.open_slot(session), api, "plain", retries=0)
    assert (said["error"], said["status"]) == ("InternalServerError", 502)
    assert said["message"] == "TaskError: stop said_done failed: KeyError: 'x'"


@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_the_sdk_lists_the_rollouts_model(api: str, sdk: Sdk) -> None:
    async with open_gateway() as gateway:
        said = await sdk(gateway.open_slot(Scripted(), model_name="small"), api, "models")
    assert said == {"result": ["small", "small"]}


async def test_the_sdk_has_tokens_counted(sdk: Sdk) -> None:
    async with open_gateway() as gateway:
        assert await sdk(gateway.open_slot(Scripted()), "messages", "count") == {"result": 41}
