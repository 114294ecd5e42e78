"""One rollout from beginning to end, in the order in which it happened."""

from rollout_fsm.errors import ErrorRecord
from rollout_fsm.messages import AssistantMessage, Message, Response, ToolCall, ToolMessage, Usage, UserMessage
from rollout_fsm.reports.timeline import Moment, timeline
from rollout_fsm.trace import ModelCall, Span, Trace
from tests.reports.made import START, made, say

STEP, ENDED = START + 3, START + 4
"""When `made` lets the segment begin and end."""


def kinds(moments: list[Moment]) -> list[str]:
    return [moment.who for moment in moments]


def test_messages_stand_between_the_step_and_the_end_of_the_segment_even_where_all_is_one_instant() -> None:
    for at in (STEP, STEP + 0.5, ENDED):
        trace = made()
        say(trace, "2 + 2?", "4", usage=None, time=at)

        moments = timeline(trace)

        start = kinds(moments).index("step")
        assert kinds(moments)[start : start + 4] == ["step", "user", "assistant", "segment_ended"]
        assert moments[start + 1].at == at - START


def test_a_transition_says_where_from_where_to_and_why() -> None:
    (first, *_) = timeline(made())

    assert (first.at, first.kind, first.who, first.text) == (0.0, "transition", "open", "created → booting")


def test_tool_calls_and_their_results_are_named() -> None:
    trace = made()
    call = ToolCall(id="c1", name="add", arguments='{"a": 1}')
    question = UserMessage("1 + 1?")
    asked = AssistantMessage("Let me see.", tool_calls=(call,))
    turns: list[tuple[list[Message], AssistantMessage]] = [
        ([question], asked),
        ([question, asked, ToolMessage("2", tool_call_id="c1")], AssistantMessage("2")),
    ]
    for messages, reply in turns:
        node = trace.commit(messages, Response(message=reply), time=STEP)
        trace.record_call(ModelCall(node=node, time=Span(start=STEP, end=STEP + 0.25)))

    said = [moment for moment in timeline(trace) if moment.kind != "transition"]

    assert [(moment.kind, moment.text) for moment in said] == [
        ("message", "1 + 1?"),
        ("reply", 'Let me see.  add({"a": 1})'),
        ("tool", "2"),
        ("reply", "2"),
    ]
    assert said[2].note == "add"
    assert said[1].note == "250 ms"


def test_a_reply_says_what_it_took_and_used_and_a_new_conversation_says_so() -> None:
    trace = made(turns=2, usage=Usage(prompt_tokens=10, completion_tokens=5, cached_input_tokens=2))

    replies = [moment.note for moment in timeline(trace) if moment.kind == "reply"]
    questions = [moment.note for moment in timeline(trace) if moment.kind == "message"]

    assert replies == ["0 ms, 12+5 tokens"] * 2
    assert questions == ["", "a new conversation"]


def test_a_branch_says_from_which_message_it_goes_on() -> None:
    trace = made()
    question = UserMessage("?")
    first = AssistantMessage("a")
    trace.commit([question], Response(message=first), time=STEP)
    for word in ("b", "c"):
        further = UserMessage(f"{word}?")
        trace.commit([question, first, further], Response(message=AssistantMessage(word)), time=STEP)

    notes = {moment.text: moment.note for moment in timeline(trace) if moment.kind != "transition"}

    assert notes["c?"] == "goes on from message 1"
    assert notes["b?"] == ""


def test_a_failed_model_call_is_a_moment_of_its_own() -> None:
    trace = made()
    failure = ErrorRecord(type="ProviderError", message="overloaded", status_code=503)
    trace.record_call(ModelCall(time=Span(start=STEP, end=STEP + 0.5), error=failure))

    (call,) = [moment for moment in timeline(trace) if moment.kind == "failed call"]

    assert (call.at, call.who, call.text) == (STEP + 0.5 - START, "ProviderError", "overloaded")


def test_what_the_harness_put_into_the_models_mouth_is_not_shown_as_a_reply() -> None:
    trace: Trace = made()
    trace.commit([UserMessage("?"), AssistantMessage("an example"), UserMessage("and?")], None, time=STEP)

    said = [moment for moment in timeline(trace) if moment.text == "an example"]

    assert [(moment.kind, moment.who) for moment in said] == [("message", "assistant (not from this rollout)")]


def test_everything_that_is_on_the_trace_is_on_the_timeline() -> None:
    trace = made(turns=3, usage=None)

    assert len(timeline(trace)) == len(trace.transitions) + len(trace.nodes)
