"""What a caller says: text, messages, dicts, and lists of these."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from rollout_fsm import (
    AssistantMessage,
    ImagePart,
    SystemMessage,
    Task,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    trace_from_json,
    trace_to_json,
)
from rollout_fsm.exact_json import FormatError
from rollout_fsm.message_json import as_messages
from rollout_fsm.messages import OtherPart
from rollout_fsm.trace import TaskInfo, Trace

HI = UserMessage("hi")
SAID: list[tuple[Any, tuple[Any, ...]]] = [
    ("hi", (HI,)),
    ("", (UserMessage(""),)),
    (HI, (HI,)),
    ([], ()),
    (["hi", HI, {"role": "user", "content": "hi"}], (HI, HI, HI)),
    ((item for item in ["hi"]), (HI,)),
    ({"role": "user", "content": "hi"}, (HI,)),
    (MappingProxyType({"role": "user", "content": "hi"}), (HI,)),
    ({"role": "system", "content": "be kind"}, (SystemMessage("be kind"),)),
    ({"role": "assistant", "content": "hello", "refusal": None}, (AssistantMessage("hello"),)),
    (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        (AssistantMessage(tool_calls=[ToolCall(id="1", name="f", arguments="{}")]),),
    ),
    ({"role": "tool", "tool_call_id": "1", "content": "4"}, (ToolMessage("4", tool_call_id="1"),)),
    (
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:,"}},
                {"type": "input_audio", "data": "…"},
            ],
        },
        (UserMessage((TextPart("look"), ImagePart("data:,"), OtherPart({"type": "input_audio", "data": "…"}))),),
    ),
]


@pytest.mark.parametrize(("said", "messages"), SAID)
def test_what_can_be_said(said: Any, messages: tuple[Any, ...]) -> None:
    assert as_messages(said) == messages


UNSAYABLE: list[tuple[Any, str]] = [
    (3, 'expected text, a message, or a dict such as {"role": "user", "content": "hi"}, or a list of these, not 3'),
    (b"hi", "or a list of these, not b'hi' (bytes); decode them first"),
    (["hi", 3], 'messages[1]: expected text, a message, or a dict such as {"role": "user", "content": "hi"}, not 3'),
    ([b"hi"], "messages[0]: expected text"),
    ([["hi"]], "messages[0]: expected text"),
    ([None], "messages[0]: expected text"),
]


@pytest.mark.parametrize(("said", "words"), UNSAYABLE)
def test_what_is_neither_text_nor_a_message_is_a_type_error_that_says_what_is(said: Any, words: str) -> None:
    with pytest.raises(TypeError) as refused:
        as_messages(said)
    assert words in str(refused.value)


NO_MESSAGE: list[tuple[Any, str]] = [
    ({}, "the dict is no message: expected a message whose role is assistant, system, tool, user, not None"),
    ({"role": "usr", "content": "hi"}, "the dict is no message: expected a message whose role is assistant, system, "
     "tool, user, not 'usr' (a string)"),
    ({"role": "user"}, "the dict is no message: content: missing"),
    ({"role": "user", "content": 3}, "content: expected a string or an array of parts, not 3 (a whole number)"),
    ({"role": "user", "content": "hi", "contnet": "x"}, "contnet"),
    ({"role": "user", "content": [{"type": "text", "txt": "x"}]}, "content[0]"),
    ({"role": "tool", "content": "x"}, "tool_call_id: missing"),
    ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "tool_calls[0]"),
    ({"role": "user", "content": "hi", 3: 1}, "the key 3 (a whole number) is not a string"),
    (["hi", {"role": "user", "content": [{"type": "audio", "level": float("nan")}]}],
     "messages[1] is no message: content[0].level: nan is not a number that JSON has"),
    (["hi", {"role": "user"}], "messages[1] is no message: content: missing"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "words"), NO_MESSAGE)
def test_a_dict_that_is_no_message_is_refused_with_its_fault(said: Any, words: str) -> None:
    with pytest.raises(FormatError) as refused:
        as_messages(said)
    assert words in str(refused.value)


def test_what_was_said_does_not_change_with_the_dict_that_said_it() -> None:
    inner = {"type": "input_audio", "data": ["first"]}
    said: Mapping[str, Any] = {"role": "user", "content": [inner]}
    (message,) = as_messages(said)
    inner["data"] = "second"
    assert message == UserMessage((OtherPart({"type": "input_audio", "data": ["first"]}),))


def test_a_task_takes_its_prompt_in_every_form_and_is_the_same_task() -> None:
    as_text, as_dict = Task(prompt=[HI]), Task(prompt=[{"role": "user", "content": "hi"}])
    assert as_text == as_dict
    assert as_text.hash == as_dict.hash
    assert as_dict.opening == (HI,)
    assert Task(prompt={"role": "user", "content": "hi"}).opening == (HI,)


def test_messages_that_were_said_as_dicts_are_written_and_read_back() -> None:
    trace = Trace(id="t", task=TaskInfo(type="Task"))
    for said, _ in SAID[6:]:
        if not isinstance(said, MappingProxyType):
            trace.commit(as_messages(said), None, time=0.0)
    assert trace_from_json(trace_to_json(trace)).nodes == trace.nodes
