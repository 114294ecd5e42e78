"""JSON of traces: loads back equal, keeps what it does not know, and refuses what is wrong with every path."""

import json
import math
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.errors import ErrorRecord
from rollout_fsm.message_json import message_from_json, message_to_json
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    ImagePart,
    Message,
    OtherPart,
    Response,
    Sampling,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from rollout_fsm.trace import (
    AgentInfo,
    AgentSpan,
    Ending,
    GroupInfo,
    ModelCall,
    Reward,
    Rewrite,
    RunInfo,
    Span,
    TaskInfo,
    Timing,
    Trace,
    TraceWarning,
    TransitionRecord,
)
from rollout_fsm.trace_json import FormatError, trace_from_json, trace_to_json
from tests.profiles import examples
from tests.trace_strategies import HOSTILE, json_objects, messages, texts, traces


def full_trace() -> Trace:
    """A trace in which nothing is left at its default."""
    trace = Trace(
        id="3f",
        task=TaskInfo(type="Sum", data={"answer": "4", "prompt": "2 + 2?", "idx": 0}, key="k", hash="h"),
        agent=AgentInfo(
            config={"harness": {"id": "chat"}, "model": "m", "max_turns": 8},
            runtime={"type": "subprocess", "id": "box"},
            name="solver",
            trainable=False,
        ),
        rewards={"correct": Reward(score=1.0, weight=0.5), "hoped_for": None},
        metrics={"turns": 1.0, "hoped_for": None},
        info={"seen": [1, None, {"x": True}]},
        is_completed=True,
        ok=True,
        stop_condition="agent_completed",
        errors=[ErrorRecord(type="ProviderError", message="busy", status_code=503)],
        warnings=[TraceWarning(kind="close", message="slow")],
        timing=Timing(start=1.0, boot=Span(start=1.0, end=2.0), agent=AgentSpan(start=2.0, end=5.0)),
        request_rewrites=[Rewrite("redact")],
        response_rewrites=[Rewrite("soften")],
        extra_usage=[Usage(prompt_tokens=1, completion_tokens=2)],
        run=RunInfo(type="eval", id="r", name="nightly"),
        group=GroupInfo(id="g", index=3),
        ending=Ending(name="task_error", cause="task", graded=False, counts=False, retryable=True),
        transitions=[TransitionRecord(time=1.0, trigger="open", source="created", target="booting", reason="because")],
    )
    usage = Usage(prompt_tokens=9, completion_tokens=2, cached_input_tokens=1, reasoning_tokens=1, cost=0.1)
    reply = AssistantMessage(
        "4",
        reasoning_content="hm",
        tool_calls=(ToolCall(id="c", name="add", arguments='{"a": 2}'),),
        provider_state=({"type": "reasoning", "data": None},),
    )
    parts = (TextPart("2 + 2?"), ImagePart("data:,"), ImagePart("data:,", "low"), OtherPart({"type": "audio", "x": 1}))
    node = trace.commit(
        [SystemMessage("s"), UserMessage(parts), ToolMessage("4", tool_call_id="c", name="add")],
        Response(message=reply),
        time=3.0,
    )
    trace.record_call(
        ModelCall(
            node=node,
            model="m",
            sampling=Sampling(temperature=0.5, stop=("x",), extra={"top_k": 3}),
            endpoint="/chat/completions",
            finish_reason="tool_calls",
            usage=usage,
            time=Span(start=2.0, end=3.0),
            error=ErrorRecord(type="E", message="m"),
        )
    )
    return trace


def written(trace: Trace) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(trace_to_json(trace))
    return data


@examples(1 / 2)
@given(traces())
def test_a_trace_loads_back_equal_and_is_written_again_alike(trace: Trace) -> None:
    line = trace_to_json(trace)
    assert line.isascii()
    assert "\n" not in line
    again = trace_from_json(line)
    assert again == trace
    assert trace_to_json(again) == line
    assert again.unknown == {}
    assert again.sealed == trace.is_completed
    for aggregate in ("num_turns", "num_input_tokens", "num_output_tokens", "num_total_tokens", "usage", "last_reply"):
        assert getattr(again, aggregate) == getattr(trace, aggregate)
    assert trace_from_json(line.encode()) == trace


def test_a_full_trace_has_the_field_names_of_the_schema() -> None:
    data = written(full_trace())
    assert list(data) == [
        *("version", "id", "task", "agent", "nodes", "calls", "tools", "rewards", "metrics", "info", "is_completed"),
        *("ok", "stop_condition", "errors", "warnings", "timing", "request_rewrites", "response_rewrites"),
        *("extra_usage", "run", "group", "ending", "transitions"),
    ]
    assert data["version"] == 1
    assert data["nodes"][-1]["message"] == {
        "role": "assistant",
        "content": "4",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "c", "name": "add", "arguments": '{"a": 2}', "type": "function"}],
        "provider_state": [{"type": "reasoning", "data": None}],
    }
    assert data["nodes"][1]["message"]["content"][1:] == [
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}},
        {"type": "audio", "x": 1},
    ]
    assert data["calls"][0]["sampling"] == {"temperature": 0.5, "stop": ["x"], "top_k": 3}
    assert data["timing"]["agent"] == {
        "start": 2.0,
        "end": 5.0,
        "model": {"duration": 0.0},
        "harness": {"duration": 0.0},
    }
    assert trace_from_json(trace_to_json(full_trace())) == full_trace()


def test_null_fields_are_left_out_and_placeholders_are_not() -> None:
    trace = Trace(id="t", task=TaskInfo(type="Sum", data={"kept": None}), rewards={"r": None}, metrics={"m": None})
    trace.info["kept"] = None
    trace.commit([UserMessage("x")], Response(message=AssistantMessage(None)), time=0.0)
    trace.record_call(ModelCall(time=Span(start=0.0)))
    data = written(trace)
    assert data["rewards"] == {"r": None}
    assert data["metrics"] == {"m": None}
    assert data["task"] == {"type": "Sum", "data": {"kept": None}}
    assert data["info"] == {"kept": None}
    assert data["nodes"] == [
        {"message": {"role": "user", "content": "x"}, "sampled": False, "timestamp": 0.0},
        {"parent": 0, "message": {"role": "assistant"}, "sampled": True, "timestamp": 0.0},
    ]
    assert data["calls"] == [{"time": {"start": 0.0}}]
    assert not {"stop_condition", "run", "group", "ending"} & set(data)


def test_nulls_in_place_of_fields_that_were_left_out_are_the_same() -> None:
    trace = full_trace()
    trace.stop_condition = trace.timing.setup = None
    data = written(trace)
    data["stop_condition"] = data["timing"]["setup"] = data["calls"][0]["policy"] = None
    assert trace_from_json(json.dumps(data)) == trace


def test_state_is_never_written() -> None:
    trace = full_trace()
    trace.state["shared"] = object()
    assert "state" not in written(trace)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_survives_wherever_it_stands(text: str) -> None:
    trace = Trace(id=text, task=TaskInfo(type=text, data={text: text}), info={text: [text]}, stop_condition=text)
    trace.commit([UserMessage(text)], Response(message=AssistantMessage(text)), time=0.0)
    line = trace_to_json(trace)
    assert line.isascii()
    assert "\n" not in line
    assert trace_from_json(line) == trace


def test_a_trace_of_a_thousand_turns_loads_back_equal() -> None:
    trace = Trace(id="t", task=TaskInfo(type="Sum"))
    conversation: tuple[Message, ...] = (UserMessage("0"),)
    for number in range(1000):
        reply = AssistantMessage(f"{number}")
        usage = Usage(prompt_tokens=10 * number, completion_tokens=1)
        node = trace.commit(trace.place(conversation).messages, Response(message=reply), time=0.0)
        trace.record_call(ModelCall(node=node, usage=usage, time=Span(start=0.0)))
        conversation = (*conversation, reply, UserMessage("go on"))
    assert trace_from_json(trace_to_json(trace)) == trace


UNKNOWN: list[tuple[str, ...]] = [
    (),
    ("task",),
    ("task", "data"),
    ("agent",),
    ("agent", "config"),
    ("agent", "runtime"),
    ("nodes", "1"),
    ("nodes", "3", "message"),
    ("nodes", "3", "message", "tool_calls", "0"),
    ("nodes", "1", "message", "content", "0"),
    ("nodes", "1", "message", "content", "2", "image_url"),
    ("calls", "0"),
    ("calls", "0", "time"),
    ("calls", "0", "usage"),
    ("calls", "0", "error"),
    ("calls", "0", "sampling"),
    ("rewards", "correct"),
    ("info",),
    ("errors", "0"),
    ("warnings", "0"),
    ("timing",),
    ("timing", "agent", "model"),
    ("request_rewrites", "0"),
    ("extra_usage", "0"),
    ("run",),
    ("group",),
    ("ending",),
    ("transitions", "0"),
]


def at(data: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        data = data[int(step) if isinstance(data, list) else step]
    return data


@pytest.mark.parametrize("path", UNKNOWN, ids=".".join)
def test_a_field_that_the_schema_does_not_have_is_kept_and_written_back_in_its_place(path: tuple[str, ...]) -> None:
    data = written(full_trace())
    value = {"deep": [1, {"x": None}], "text": "\u2028"}
    at(data, path)["from_the_future"] = value
    trace = trace_from_json(json.dumps(data))
    assert written(trace) == data
    assert trace_from_json(trace_to_json(trace)) == trace


def test_unknown_fields_all_over_are_kept_together_and_make_a_difference() -> None:
    data = written(full_trace())
    for path in UNKNOWN:
        at(data, path)["from_the_future"] = ".".join(path)
    trace = trace_from_json(json.dumps(data))
    assert written(trace) == data
    assert trace != full_trace()


@given(json_objects, st.sampled_from(UNKNOWN))
def test_unknown_fields_of_any_name_are_kept(fields: dict[str, JSON], path: tuple[str, ...]) -> None:
    data = written(full_trace())
    for name, value in fields.items():
        at(data, path).setdefault(f"x{name}", 0 if value is None else value)
    assert written(trace_from_json(json.dumps(data))) == data


def test_what_was_scored_again_is_not_overwritten_by_what_a_file_said() -> None:
    data = written(full_trace())
    data["rewards"]["correct"]["by"] = "someone"
    trace = trace_from_json(json.dumps(data))
    trace.rewards.clear()
    trace.rewards["other"] = Reward(score=2.0)
    assert written(trace)["rewards"] == {"other": {"score": 2.0, "weight": 1.0}}


def test_every_fault_is_told_with_its_path() -> None:
    data = written(full_trace())
    data["id"] = 3
    data["ok"] = 1
    data["stop_condition"] = ["x"]
    data["nodes"][0]["parent"] = "1"
    data["nodes"][1]["message"]["content"][0]["text"] = None
    data["nodes"][2]["message"]["role"] = "oracle"
    data["nodes"][3]["message"]["tool_calls"][0]["arguments"] = {}
    data["calls"][0]["finish_reason"] = "tired"
    data["calls"][0]["usage"]["prompt_tokens"] = 1.5
    data["rewards"]["correct"]["score"] = True
    data["metrics"]["turns"] = "1"
    data["task"]["data"] = []
    data["errors"] = "none"
    del data["transitions"][0]["trigger"]
    with pytest.raises(FormatError) as refused:
        trace_from_json(json.dumps(data))
    assert set(refused.value.faults) == {
        "id: expected a string, not 3 (a whole number)",
        "ok: expected true or false, not 1 (a whole number)",
        "stop_condition: expected a string, not an array",
        "nodes[0].parent: expected a whole number, not '1' (a string)",
        "nodes[1].message.content[0]: expected a string as `text`, not None",
        "nodes[2].message: expected a message whose role is assistant, system, tool, user, not 'oracle' (a string)",
        "nodes[3].message.tool_calls[0].arguments: expected a string, not an object",
        "calls[0].finish_reason: expected 'stop' or 'length' or 'tool_calls', not 'tired' (a string)",
        "calls[0].usage.prompt_tokens: expected a whole number, not 1.5 (a number)",
        "rewards[correct].score: expected a number, not True (true or false)",
        "metrics[turns]: expected a number, not '1' (a string)",
        "task.data: expected an object, not an array",
        "errors: expected an array, not 'none' (a string)",
        "transitions[0].trigger: missing",
    }
    assert str(refused.value).startswith("the trace cannot be read: ")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "it is not JSON"),
        ('{"id": ', "it is not JSON"),
        (b'{"id": "\xff"}', "it is not JSON"),
        ("[]", "expected an object, not an array"),
        ("null", "expected an object, not None"),
        ("{}", "task: missing"),
        ('{"version": 2, "id": "t", "task": {"type": "Sum"}}', "its schema is version 2; this program reads version 1"),
        ('{"id": "t", "task": {"type": "Sum"}, "metrics": {"m": NaN}}', "NaN is not a number that JSON has"),
        ('{"id": "t", "task": {"type": "Sum"}, "metrics": {"m": -Infinity}}', "-Infinity is not a number"),
        ('{"id": "t", "task": {"type": "Sum"}, "metrics": {"m": 1e999}}', "1e999 is beyond the numbers"),
        ('{"id": "t", "task": {"type": "Sum"}, "info": ' + '{"x": ' * 300 + "1" + "}" * 301, "nested deeper than 200"),
        ('{"x": ' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_trace_is_refused(line: str | bytes, why: str) -> None:
    with pytest.raises(FormatError) as refused:
        trace_from_json(line)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("info", {"x": [1.0, math.nan]}, "info.x[1]: nan is not a number that JSON has"),
        ("info", {"x": math.inf}, "info.x: inf is not a number that JSON has"),
        ("metrics", {"m": -math.inf}, "metrics.m: -inf is not a number that JSON has"),
        ("info", {"x": {1: 2}}, "info.x: the key 1 (a whole number) is not a string"),
        ("info", {"x": b"raw"}, "info.x: b'raw' (bytes) is not JSON"),
        ("info", {"x": Span(start=1.0)}, "info.x: Span(start=1.0, end=None) (Span) is not JSON"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_its_path(field: str, value: object, fault: str) -> None:
    trace = full_trace()
    getattr(trace, field).clear()
    getattr(trace, field).update(value)
    with pytest.raises(FormatError) as refused:
        trace_to_json(trace)
    assert refused.value.faults == (fault,)


def test_a_value_that_holds_itself_is_refused() -> None:
    trace = full_trace()
    loop: dict[str, JSON] = {}
    loop["again"] = loop
    trace.info["loop"] = loop
    with pytest.raises(FormatError, match="nested deeper than 200 levels"):
        trace_to_json(trace)


def test_a_configuration_with_tuples_loads_back_equal() -> None:
    trace = Trace(id="t", task=TaskInfo(type="Sum"), agent=AgentInfo(config={"sampling": {"stop": ("a", "b")}}))
    assert trace_from_json(trace_to_json(trace)) == trace


@given(messages)
def test_a_message_loads_back_equal(message: Message) -> None:
    data = message_to_json(message)
    assert message_from_json(json.loads(json.dumps(data))) == message


@frozen
class OwnSystem(SystemMessage):
    own: object = math.nan


@frozen
class OwnUser(UserMessage):
    own: object = math.nan


@frozen
class OwnAssistant(AssistantMessage):
    own: object = math.nan
    role = "own"  # type: ignore[assignment]


@frozen
class OwnTool(ToolMessage):
    own: object = math.nan


class OwnCall(ToolCall):
    """Of a class that only changes behaviour."""


class OwnText(TextPart):
    """The same."""


class OwnImage(ImagePart):
    """The same."""


class OwnPart(OtherPart):
    """The same."""


@frozen(kw_only=True)
class OwnSampling(Sampling):
    own: float = 0.0


OWN: list[tuple[Message, Message]] = [
    (OwnSystem("s"), SystemMessage("s")),
    (
        OwnUser((OwnText("a"), OwnImage("data:,", "low"), OwnPart({"type": "audio"}))),
        UserMessage((TextPart("a"), ImagePart("data:,", "low"), OtherPart({"type": "audio"}))),
    ),
    (OwnAssistant("sub"), AssistantMessage("sub")),
    (
        OwnAssistant(None, tool_calls=[OwnCall(id="c", name="f", arguments="{}")]),
        AssistantMessage(None, tool_calls=[ToolCall(id="c", name="f", arguments="{}")]),
    ),
    (OwnTool("4", tool_call_id="c", name="f"), ToolMessage("4", tool_call_id="c", name="f")),
]


@pytest.mark.parametrize(("own", "read"), OWN)
def test_a_message_of_a_class_of_ones_own_is_written_as_what_it_is(own: Message, read: Message) -> None:
    assert message_to_json(own) == message_to_json(read)
    assert message_from_json(message_to_json(own)) == read


def test_a_trace_with_classes_of_ones_own_is_read_back_with_the_engines() -> None:
    class OwnTrace(Trace):
        """Only behaves otherwise."""

    def said(kind: type[Trace], messages: list[Message], sampling: Sampling) -> Trace:
        trace = kind(id="t", task=TaskInfo(type="Sum"), is_completed=True)
        node = trace.commit(messages, Response(message=AssistantMessage("4")), time=0.0)
        trace.record_call(ModelCall(node=node, sampling=sampling, time=Span(start=1.0)))
        return trace

    own = said(OwnTrace, [message for message, _ in OWN], OwnSampling(temperature=0.5, extra={"top_k": 3}))
    read = said(Trace, [message for _, message in OWN], Sampling(temperature=0.5, extra={"top_k": 3}))
    assert trace_to_json(own) == trace_to_json(read)
    assert trace_from_json(trace_to_json(own)) == read


@given(texts, texts)
def test_a_tool_call_is_written_flat_and_read_nested_too(name: str, arguments: str) -> None:
    message = AssistantMessage(None, tool_calls=(ToolCall(id="1", name=name, arguments=arguments),))
    flat: JSON = {"id": "1", "type": "function", "name": name, "arguments": arguments}
    nested: JSON = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    assert message_to_json(message) == {"role": "assistant", "tool_calls": [flat]}
    for call in (flat, nested):
        assert message_from_json({"role": "assistant", "content": None, "tool_calls": [call]}) == message


def test_a_message_that_is_none_is_refused_with_every_fault() -> None:
    with pytest.raises(FormatError) as refused:
        message_from_json({"role": "tool", "content": [{"type": "text"}, 3]})
    assert refused.value.faults == (
        "content[0]: expected a string as `text`, not None",
        "content[1]: expected an object, not 3 (a whole number)",
        "tool_call_id: missing",
    )
