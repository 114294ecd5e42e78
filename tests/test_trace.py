"""The record: its aggregates, its seal, and what makes two traces equal."""

import weakref
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.errors import ErrorRecord
from rollout_fsm.graph import MessageNode
from rollout_fsm.messages import AssistantMessage, Message, Response, Usage, UserMessage
from rollout_fsm.trace import AgentSpan, ModelCall, Reward, Span, TaskInfo, TimeSplit, Trace, TraceWarning
from tests.trace_strategies import conversations

ASK = UserMessage("go")
OBSERVED = UserMessage("observed")


def new_trace() -> Trace:
    return Trace(id="t1", task=TaskInfo(type="Sum"))


def called(trace: Trace, prompt: Sequence[Message], reply: str, tokens: tuple[int, int] | None) -> AssistantMessage:
    usage = None if tokens is None else Usage(prompt_tokens=tokens[0], completion_tokens=tokens[1])
    message = AssistantMessage(reply)
    node = trace.commit(trace.place(prompt).messages, Response(message=message, usage=usage), time=1.0)
    trace.record_call(ModelCall(node=node, usage=usage, time=Span(start=0.0, end=1.0)))
    return message


def counts(trace: Trace) -> tuple[int, int, int]:
    return trace.num_input_tokens, trace.num_output_tokens, trace.num_total_tokens


def test_a_linear_conversation_counts_each_token_once() -> None:
    trace = new_trace()
    a = called(trace, [ASK], "a", (100, 20))
    b = called(trace, [ASK, a, OBSERVED], "b", (150, 30))
    called(trace, [ASK, a, OBSERVED, b, OBSERVED], "c", (210, 10))
    assert counts(trace) == (160, 60, 220)
    assert trace.num_turns == 3


def test_a_rewound_call_counts_its_prompt_beyond_the_reply_that_it_goes_on_from() -> None:
    trace = new_trace()
    a = called(trace, [ASK], "a", (100, 50))
    called(trace, [ASK, a, OBSERVED], "b", (160, 10))
    called(trace, [ASK, a, OBSERVED], "c", (160, 7))
    assert counts(trace) == (120, 67, 337)


def test_parallel_calls_from_one_prompt_each_count_it() -> None:
    trace = new_trace()
    for reply, tokens in (("a", 10), ("b", 20), ("c", 30)):
        called(trace, [ASK], reply, (100, tokens))
    assert counts(trace) == (300, 60, 360)


def test_a_prompt_that_shrank_counts_nothing_instead_of_less() -> None:
    trace = new_trace()
    a = called(trace, [ASK], "a", (100, 50))
    called(trace, [ASK, a, OBSERVED], "b", (120, 10))
    assert counts(trace) == (100, 60, 130)


def test_cache_reads_are_fed_in_all_the_same() -> None:
    trace = new_trace()
    usage = Usage(prompt_tokens=10, cached_input_tokens=90, completion_tokens=5)
    node = trace.commit([ASK], Response(message=AssistantMessage("a"), usage=usage), time=0.0)
    trace.record_call(ModelCall(node=node, usage=usage, time=Span(start=0.0)))
    assert counts(trace) == (100, 5, 105)


def test_a_call_without_usage_counts_nothing_and_hides_nothing() -> None:
    trace = new_trace()
    a = called(trace, [ASK], "a", (100, 20))
    b = called(trace, [ASK, a, OBSERVED], "b", None)
    assert counts(trace) == (100, 20, 120)
    called(trace, [ASK, a, OBSERVED, b, OBSERVED], "c", (200, 10))
    assert counts(trace) == (180, 30, 210)
    assert trace.num_turns == 3


def test_a_prompt_committed_without_a_reply_changes_no_count_wherever_it_branches_off() -> None:
    trace = new_trace()
    a = called(trace, [ASK], "a", (100, 20))
    b = called(trace, [ASK, a, OBSERVED], "b", (150, 30))
    before = counts(trace)
    trace.commit([ASK, a, OBSERVED, b, UserMessage("stop")], None, time=0.0)
    trace.commit([ASK, a, UserMessage("elsewhere")], None, time=0.0)
    trace.commit([UserMessage("from the start")], None, time=0.0)
    assert counts(trace) == before
    assert trace.num_turns == 2


def test_usage_sums_every_call_committed_or_not() -> None:
    trace = new_trace()
    assert trace.usage is None
    called(trace, [ASK], "a", (100, 20))
    failed = ErrorRecord(type="ProviderError", message="gone")
    lost = Usage(prompt_tokens=7, completion_tokens=3, cost=0.5)
    trace.record_call(ModelCall(usage=lost, error=failed, time=Span(start=0.0)))
    trace.record_call(ModelCall(error=failed, time=Span(start=0.0)))
    assert trace.usage == Usage(prompt_tokens=107, completion_tokens=23, cost=0.5)
    assert counts(trace) == (100, 20, 120)
    assert len(trace.calls) == 3


def test_a_call_that_is_recorded_after_its_reply_was_gone_on_from_counts_as_if_before() -> None:
    trace = new_trace()
    late = Usage(prompt_tokens=100, completion_tokens=20)
    a = AssistantMessage("a")
    node = trace.commit([ASK], Response(message=a), time=0.0)
    called(trace, [ASK, a, OBSERVED], "b", (150, 30))
    trace.record_call(ModelCall(node=node, usage=late, time=Span(start=0.0)))
    assert counts(trace) == (130, 50, 180)


@pytest.mark.parametrize(("node", "why"), [(0, "not a reply"), (7, "not a reply"), (-1, "not a reply"), (1, "already")])
def test_a_call_whose_node_it_cannot_have_committed_is_refused_and_not_kept(node: int, why: str) -> None:
    trace = new_trace()
    called(trace, [ASK], "a", (1, 1))
    with pytest.raises(ValueError, match=why):
        trace.record_call(ModelCall(node=node, usage=Usage(prompt_tokens=5, completion_tokens=5), time=Span(start=0.0)))
    assert len(trace.calls) == 1
    assert counts(trace) == (1, 1, 2)


def test_nodes_and_calls_that_fit_nothing_are_refused_all_at_once() -> None:
    reply = AssistantMessage("a")
    nodes = [
        MessageNode(parent=0, message=ASK),
        MessageNode(parent=5, message=reply),
        MessageNode(message=ASK, sampled=True),
    ]
    calls = [ModelCall(node=1, time=Span(start=0.0)), ModelCall(node=9, time=Span(start=0.0))]
    with pytest.raises(ValueError, match="not a node before") as refused:
        Trace(id="t", task=TaskInfo(type="Sum"), nodes=nodes, calls=calls)
    text = str(refused.value)
    for fault in ("nodes[0].parent", "nodes[1].parent", "nodes[2].sampled", "calls[0].node", "calls[1].node"):
        assert fault in text


def test_the_reward_is_the_weighted_sum_of_what_was_measured() -> None:
    trace = new_trace()
    assert trace.reward is None
    trace.rewards["hoped_for"] = None
    assert trace.reward is None
    trace.rewards["a"] = Reward(score=0.5, weight=2.0)
    trace.rewards["b"] = Reward(score=-1.0, weight=0.25)
    assert trace.reward == 0.75


def test_the_last_reply_is_the_last_committed_on_whatever_branch() -> None:
    trace = new_trace()
    assert trace.last_reply == ""
    a = called(trace, [ASK], " four\n", (1, 1))
    assert trace.last_reply == " four\n"
    called(trace, [UserMessage("elsewhere")], "five", (1, 1))
    trace.commit([ASK, a, AssistantMessage("made up")], None, time=0.0)
    assert trace.last_reply == "five"


def test_a_reply_of_tool_calls_alone_is_a_turn_with_an_empty_last_reply() -> None:
    trace = new_trace()
    trace.commit([ASK], Response(message=AssistantMessage(None)), time=0.0)
    assert (trace.num_turns, trace.last_reply) == (1, "")


def test_a_sealed_trace_refuses_to_record_and_can_still_be_read_and_scored() -> None:
    trace = new_trace()
    called(trace, [ASK], "a", (1, 1))
    trace.seal()
    trace.seal()
    assert trace.sealed
    with pytest.raises(RuntimeError, match="cannot commit a turn: the trace t1 is sealed"):
        trace.commit([ASK, OBSERVED], None, time=0.0)
    with pytest.raises(RuntimeError, match="cannot record a model call: the trace t1 is sealed"):
        trace.record_call(ModelCall(time=Span(start=0.0)))
    with pytest.raises(RuntimeError, match="cannot record a warning: the trace t1 is sealed"):
        trace.warn(TraceWarning(kind="close", message="late"))
    assert (len(trace.nodes), len(trace.calls), trace.warnings) == (2, 1, [])
    assert trace.place([ASK]).known == 1
    trace.rewards["again"] = Reward(score=1.0)
    assert trace.reward == 1.0


def test_warnings_are_kept_in_order() -> None:
    trace = new_trace()
    one, two = TraceWarning(kind="close", message="a"), TraceWarning(kind="leaked", message="b")
    trace.warn(one, two)
    assert trace.warnings == [one, two]


def test_state_and_the_seal_make_no_difference_to_equality_and_everything_recorded_does() -> None:
    one, other = new_trace(), new_trace()
    one.state["shared"] = object()
    one.seal()
    one.place([ASK])
    assert one == other
    other.commit([ASK], None, time=0.0)
    assert one != other
    assert new_trace() != Trace(id="t2", task=TaskInfo(type="Sum"))


def test_traces_share_nothing() -> None:
    one, other = new_trace(), new_trace()
    one.state["x"] = 1
    one.info["x"] = 1
    called(one, [ASK], "a", (1, 1))
    assert (other.state, other.info, other.nodes, other.calls, other.num_turns) == ({}, {}, [], [], 0)


def test_the_repr_is_one_line_with_what_happened() -> None:
    trace = new_trace()
    called(trace, [ASK], "a", (100, 20))
    assert repr(trace) == "<Trace t1 task=Sum open stop=None reward=None turns=1 tokens=100+20>"
    trace.errors.append(ErrorRecord(type="TaskError", message="a\nb"))
    trace.is_completed = True
    assert repr(trace) == "<Trace t1 task=Sum TaskError stop=None reward=None turns=1 tokens=100+20>"
    trace.ok = True
    trace.stop_condition = "max_turns"
    trace.rewards["r"] = Reward(score=0.5)
    assert repr(trace) == "<Trace t1 task=Sum ok stop=max_turns reward=0.5 turns=1 tokens=100+20>"


def test_a_span_that_lasts_has_no_duration_yet_and_none_is_negative() -> None:
    assert Span(start=5.0).duration == 0.0
    assert Span(start=5.0, end=7.5).duration == 2.5
    assert Span(start=5.0, end=4.0).duration == 0.0


@pytest.mark.parametrize(("model_time", "shares"), [(1.5, (1.5, 2.5)), (9.0, (4.0, 0.0)), (0.0, (0.0, 4.0))])
def test_the_agents_time_is_the_models_at_most_all_of_it_and_the_harnesss(
    model_time: float, shares: tuple[float, float]
) -> None:
    span = AgentSpan(start=1.0, end=5.0)
    span.split(model_time)
    assert (span.model, span.harness) == (TimeSplit(shares[0]), TimeSplit(shares[1]))


def test_a_trace_can_be_referred_to_weakly() -> None:
    trace = new_trace()
    assert weakref.ref(trace)() is trace


def counted_from_scratch(trace: Trace) -> tuple[int, int, int]:
    """The three counts by their definition, walking every branch."""
    by_node = {call.node: call.usage for call in trace.calls if call.node is not None and call.usage is not None}

    def before(node: int | None) -> int | None:
        while node is not None and node not in by_node:
            node = trace.nodes[node].parent
        return node

    previous = {node: before(trace.nodes[node].parent) for node in by_node}
    fed = sum(
        max(0, usage.input_tokens - (by_node[ahead].total_tokens if (ahead := previous[node]) is not None else 0))
        for node, usage in by_node.items()
    )
    ends = set(by_node) - {node for node in previous.values() if node is not None}
    return (
        fed,
        sum(usage.completion_tokens for usage in by_node.values()),
        sum(by_node[node].total_tokens for node in ends),
    )


@given(conversations())
def test_the_kept_counts_are_those_counted_from_scratch(trace: Trace) -> None:
    assert counts(trace) == counted_from_scratch(trace)
    assert trace.num_turns == sum(node.sampled for node in trace.nodes)
    known = [call.usage for call in trace.calls if call.usage is not None]
    assert (trace.usage is None) == (not known)
    if trace.usage is not None:
        assert trace.usage.prompt_tokens == sum(usage.prompt_tokens for usage in known)
        assert trace.usage.completion_tokens == sum(usage.completion_tokens for usage in known)


@given(conversations(), st.booleans())
def test_a_trace_made_from_stored_nodes_and_calls_has_the_same_counts_and_goes_on_alike(
    trace: Trace, at_the_end: bool
) -> None:
    again = Trace(id=trace.id, task=trace.task, nodes=list(trace.nodes), calls=list(trace.calls))
    assert counts(again) == counts(trace)
    assert (again.usage, again.num_turns, again.last_reply) == (trace.usage, trace.num_turns, trace.last_reply)
    for branch in trace.branches:
        request = [node.message for node in branch][: None if at_the_end else 1]
        assert again.place(request) == trace.place(request)
