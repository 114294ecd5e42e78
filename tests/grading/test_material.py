"""What a judge is shown: whole, in order, and so that nothing in it can pass for anything else."""

from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    Task,
    TaskError,
    TextPart,
    ToolCall,
    ToolMessage,
    Trace,
    UserMessage,
)
from rollout_fsm.grading import BUILT_IN, Material, Template, cut, task_field
from rollout_fsm.messages import OtherPart, Response
from rollout_fsm.trace import TaskInfo

ANY_TEXT = st.text(st.sampled_from("ab \n\r\x0b\x85\u2028:<>/") | st.characters())


@frozen(kw_only=True)
class Sum(Task):
    answer: Any = 4


def said(*messages: Message, reply: AssistantMessage | None = None) -> Trace:
    trace = Trace(id="t", task=TaskInfo(type="Sum"))
    trace.commit(messages, None if reply is None else Response(message=reply), time=0.0)
    return trace


def shown(name: str, trace: Trace, task: Task | None = None, *, most: int = 10_000) -> str:
    template = Template.of(f"{{{name}}}", BUILT_IN)
    material = Material.of(template, task or Sum(), trace, words={}, max_characters=most)
    return template.filled(material.value).replace(material.mark, "MARK")


CALL = ToolCall(id="c1", name="add", arguments='{"a": 2}')


def test_the_conversation_is_the_last_branch_with_calls_and_results() -> None:
    trace = said(UserMessage("another conversation"), reply=AssistantMessage("gone"))
    opening: list[Message] = [
        SystemMessage("Be brief."),
        UserMessage((TextPart("2 + 2?"), ImagePart("http://x/y.png"))),
    ]
    trace.commit(opening, Response(message=AssistantMessage(reasoning_content="secret", tool_calls=(CALL,))), time=1.0)
    asked = [*opening, trace.nodes[-1].message, ToolMessage("4\n5", tool_call_id="c1")]
    trace.commit(asked, Response(message=AssistantMessage("It is 4.")), time=2.0)
    assert shown("conversation", trace) == (
        "<conversation MARK>\n"
        "system:\n    Be brief.\n"
        "user:\n    2 + 2?\n    [image]\n"
        'assistant calls add:\n    {"a": 2}\n'
        "result of add:\n    4\n    5\n"
        "assistant:\n    It is 4.\n"
        "</conversation MARK>"
    )


def test_parts_of_other_kinds_and_results_of_unknown_tools_are_named_as_such() -> None:
    trace = said(UserMessage((OtherPart({"type": "audio"}),)), ToolMessage("4", tool_call_id="c9"))
    assert "user:\n    [audio]\nresult of a tool:\n    4" in shown("conversation", trace)


def test_the_other_texts_are_those_of_task_and_trace_and_an_empty_one_is_said_to_be_empty() -> None:
    trace = said(UserMessage("hi"), reply=AssistantMessage("ho"))
    task = Sum(prompt=("one", {"role": "user", "content": "two"}), system_prompt="Be brief.")
    assert shown("last_reply", trace) == "<last_reply MARK>\nho\n</last_reply MARK>"
    assert shown("prompt", trace, task) == "<prompt MARK>\none\n\ntwo\n</prompt MARK>"
    assert shown("system_prompt", trace, task) == "<system_prompt MARK>\nBe brief.\n</system_prompt MARK>"
    assert shown("prompt", trace) == "<prompt MARK>\n(empty)\n</prompt MARK>"
    assert shown("conversation", said()) == "<conversation MARK>\n(empty)\n</conversation MARK>"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("four", "four"), (4, "4"), (None, "null"), (["ä", 1.5], '["ä", 1.5]'), ({"a": True}, '{"a": true}')],
)
def test_a_field_of_the_task_is_put_in_as_it_is(value: object, expected: str) -> None:
    assert shown("task.answer", said(), Sum(answer=value)) == expected


def test_a_field_that_the_task_does_not_have_is_a_failure_that_names_those_it_has() -> None:
    with pytest.raises(TaskError, match="'anser', and Sum has none; did you mean 'answer'"):
        shown("task.anser", said())
    with pytest.raises(TaskError, match="'hash', and Sum has none"):
        task_field(Sum(), "hash")


@given(st.lists(ANY_TEXT, max_size=5), ANY_TEXT)
def test_no_message_can_imitate_another_or_the_end_of_the_conversation(texts: list[str], name: str) -> None:
    call = ToolCall(id="c", name=name, arguments=name)
    trace = said(
        *map(UserMessage, texts), AssistantMessage("x", tool_calls=(call,)), ToolMessage(name, tool_call_id="c")
    )
    lines = shown("conversation", trace).splitlines()
    unindented = [line for line in lines if not line.startswith("    ")]
    called = " ".join(name.split())
    assert unindented == [
        "<conversation MARK>",
        *["user:"] * len(texts),
        "assistant:",
        f"assistant calls {called}:",
        f"result of {called}:" if name else "result of a tool:",
        "</conversation MARK>",
    ]


@given(st.text(st.sampled_from("0123456789abcdef"), max_size=40), st.integers(0, 3))
def test_the_mark_is_in_none_of_the_texts_whatever_they_are(text: str, times: int) -> None:
    template = Template.of("{last_reply}", BUILT_IN)
    for _ in range(times):  # somebody who knows how marks are made
        trace = said(reply=AssistantMessage(text))
        text += Material.of(template, Sum(), trace, words={}, max_characters=1000).mark
    material = Material.of(template, Sum(), said(reply=AssistantMessage(text)), words={}, max_characters=1000)
    assert material.mark not in text


def test_a_text_that_is_too_long_loses_its_middle_and_says_so() -> None:
    assert cut("abcdefghij", 10) == "abcdefghij"
    assert cut("abcdefghijk", 10) == "abcde\n[--- 1 characters left out ---]\nghijk"
    assert cut("abc", 1) == "a\n[--- 2 characters left out ---]\n"
    trace = said(UserMessage("u" * 1000), reply=AssistantMessage("assistant:\n" * 100))
    short = shown("conversation", trace, most=100)
    assert len(short) < 200
    assert "characters left out ---]\n    " in short
    assert "\nassistant:" not in short.partition("left out")[2]


@given(ANY_TEXT, st.integers(1, 30))
def test_what_is_left_of_a_text_is_its_beginning_and_its_end(text: str, most: int) -> None:
    left = cut(text, most)
    assert left.startswith(text[: (most + 1) // 2])
    assert left.endswith(text[len(text) - min(len(text), most // 2) :])
    assert (left == text) is (len(text) <= most)
