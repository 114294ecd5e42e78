"""Values of classes of an embedder's own, a number of numpy's say: they are sent as what they are."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from rollout_fsm import (
    AnthropicModel,
    AssistantMessage,
    ImagePart,
    OpenAIModel,
    Request,
    Sampling,
    SystemMessage,
    TextPart,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from rollout_fsm.models.endpoint import EndpointModel
from tests.models.bodies import message, response
from tests.models.misbehaving import answers, completion, serving


class Text(str):
    __slots__ = ()


class Number(float):
    pass


class Object(dict[str, Any]):
    pass


@frozen
class System(SystemMessage):
    own: object = None


@frozen
class User(UserMessage):
    own: object = None


@frozen
class Assistant(AssistantMessage):
    own: object = None


@frozen
class Result(ToolMessage):
    own: object = None


class Call(ToolCall):
    """Only behaves otherwise."""


@frozen(kw_only=True)
class Settings(Sampling):
    own: object = None


@frozen(kw_only=True)
class Offered(Tool):
    own: object = None


Classes = tuple[type[Any], ...]
OURS: Classes = (str, float, dict, SystemMessage, UserMessage, AssistantMessage, ToolMessage, ToolCall, Sampling, Tool)
OWN: Classes = (Text, Number, Object, System, User, Assistant, Result, Call, Settings, Offered)


def conversation(classes: Classes) -> tuple[Request, Sampling]:
    """One that says everything, in these classes."""
    text, number, made, system, user, assistant, result, call, settings, tool = classes
    request = Request(
        messages=(
            system(text("be kind")),
            user((TextPart(text("look")), ImagePart(text("https://images.test/1.png")))),
            assistant(text("so"), tool_calls=[call(id=text("c0"), name=text("add"), arguments=text('{"a": 1.5}'))]),
            result(text("4"), tool_call_id=text("c0")),
            user(text("and?")),
        ),
        tools=(tool(name=text("add"), description=text("adds"), parameters=made(type=text("object"))),),
    )
    return request, settings(temperature=number(0.5), max_tokens=9, extra=made(top_k=number(3)))


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("model", "answer"),
    [
        (lambda url: OpenAIModel("m", base_url=url, api_key_var=None), completion("four")),
        (lambda url: OpenAIModel("m", base_url=url, api_key_var=None, speaks=("responses",)), response()),
        (lambda url: AnthropicModel("m", base_url=url, api_key_var=None), message()),
    ],
    ids=["chat", "responses", "messages"],
)
async def test_a_request_in_classes_of_ones_own_is_the_same_request(
    model: Callable[[str], EndpointModel], answer: dict[str, object]
) -> None:
    async with serving(answers(answer)) as server:
        for classes in (OURS, OWN):
            assert (await model(server.base_url).respond(*conversation(classes))).message.text == "four"
    ours, own = server.heard
    assert own.json == ours.json
    assert own.json["temperature"] == 0.5
