"""A scripted model answers the same every time, to any number of conversations at once."""

import gc
import weakref

import pytest
import trio

from rollout_fsm.errors import OverlongPromptError, ProviderError
from rollout_fsm.message_json import as_messages
from rollout_fsm.messages import (
    AssistantMessage,
    Request,
    Response,
    Sampling,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from rollout_fsm.models import ScriptedModel
from rollout_fsm.models.scripted import count_tokens


def conversation(*replies: str) -> Request:
    messages = [*as_messages("2 + 2?")]
    for reply in replies:
        messages += [AssistantMessage(reply), UserMessage("go on")]
    return Request(messages=messages)


async def said(model: ScriptedModel, request: Request) -> str:
    return (await model.respond(request, Sampling())).message.text


async def test_a_sequence_answers_by_the_depth_of_the_conversation() -> None:
    model = ScriptedModel(["one", "two", "three"])
    assert await said(model, conversation("one", "two")) == "three"
    assert await said(model, conversation()) == "one"
    assert await said(model, conversation("one")) == "two"


async def test_conversations_at_once_do_not_disturb_each_other() -> None:
    model = ScriptedModel([f"reply {place}" for place in range(5)])

    async def talk() -> None:
        replies: list[str] = []
        for _ in range(5):
            replies.append(await said(model, conversation(*replies)))
        assert replies == [f"reply {place}" for place in range(5)]

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(talk)


async def test_a_sequence_that_is_too_short_says_so() -> None:
    model = ScriptedModel(["one"], name="short")
    with pytest.raises(ProviderError, match=r"the model 'short' has 1 replies, .* asks for number 2: make the script"):
        await said(model, conversation("one"))


async def test_a_plain_and_an_async_function_answer_the_request() -> None:
    async def later(request: Request) -> str:
        await trio.lowlevel.checkpoint()
        return request.messages[-1].text.upper()

    assert await said(ScriptedModel(lambda request: request.messages[0].text), conversation()) == "2 + 2?"
    assert await said(ScriptedModel(later), conversation("a")) == "GO ON"


async def test_an_exception_in_a_sequence_is_raised_whole_and_keeps_nothing_of_its_caller() -> None:
    error = OverlongPromptError("full", status_code=400)
    model = ScriptedModel([error])

    class Held:
        pass

    async def fail() -> weakref.ref[Held]:
        held = Held()
        with pytest.raises(OverlongPromptError, match="full") as caught:
            await model.respond(conversation(), Sampling())
        assert caught.value.status_code == 400
        assert caught.value is not error
        return weakref.ref(held)

    gone = await fail()
    gc.collect()
    assert error.__traceback__ is None
    assert gone() is None


async def test_usage_counts_words_and_marks_of_prompt_and_reply() -> None:
    response = await ScriptedModel(["It is four, of course."]).respond(
        Request(messages=[SystemMessage("Be brief."), UserMessage("2 + 2?")]), Sampling()
    )
    assert response.usage == Usage(prompt_tokens=3 + 4, completion_tokens=7)
    assert response.finish_reason == "stop"
    assert response.model == "scripted"


async def test_a_reply_counts_in_the_next_prompt_what_it_counted_as_a_reply() -> None:
    call = AssistantMessage("Let me see.", tool_calls=[ToolCall(id="1", name="add", arguments='{"a": 2}')])
    model = ScriptedModel([Response(message=call, finish_reason="tool_calls"), "4"])
    first = Request(messages=as_messages("2 + 2?"))
    result = ToolMessage("4", tool_call_id="1")
    one = (await model.respond(first, Sampling())).usage
    two = (await model.respond(Request(messages=[*first.messages, call, result]), Sampling())).usage
    assert one is not None
    assert two is not None
    assert two.prompt_tokens == one.total_tokens + count_tokens(result)


async def test_a_response_keeps_its_own_usage_and_finish_reason() -> None:
    usage = Usage(prompt_tokens=9, completion_tokens=8)
    scripted = Response(message=AssistantMessage("x"), finish_reason="length", usage=usage, id="mine")
    assert await ScriptedModel([scripted]).respond(conversation(), Sampling()) == scripted


async def test_a_model_without_usage_reports_none() -> None:
    response = await ScriptedModel(["x"], usage=None).respond(conversation(), Sampling())
    assert response.usage is None


async def test_an_answer_is_a_place_to_be_cancelled() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await ScriptedModel(["x"]).respond(conversation(), Sampling())
        raise AssertionError("not cancelled")
    assert scope.cancelled_caught


def test_a_script_that_is_neither_function_nor_sequence_is_refused() -> None:
    with pytest.raises(TypeError, match="a script is a function of the request or a sequence of replies, got 'four'"):
        ScriptedModel("four")


async def test_a_script_that_answers_with_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="answered with int; expected a str or a Response"):
        await said(ScriptedModel(lambda _: 4), conversation())  # type: ignore[arg-type,return-value]
