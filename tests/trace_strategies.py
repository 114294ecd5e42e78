"""Hypothesis strategies for messages, traces and the JSON inside them, with the text that breaks careless writers."""

from typing import Any

from hypothesis import strategies as st

from rollout_fsm.errors import ErrorRecord
from rollout_fsm.machine.endings import CAUSES
from rollout_fsm.messages import (
    AssistantMessage,
    ImagePart,
    OtherPart,
    Response,
    Sampling,
    SystemMessage,
    TextPart,
    Tokens,
    Tool,
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
    PolicyEvent,
    Reward,
    Rewrite,
    RunInfo,
    Span,
    TaskInfo,
    TimeSplit,
    Timing,
    Trace,
    TraceWarning,
    TransitionRecord,
)

HOSTILE = (
    "",
    "\x00",
    "\n",
    "\r\n",
    "\u2028\u2029\x85",
    "\ud800",
    "\udfff",
    "😀",
    '"\\',
    "</script>",
    "null",
    "NaN",
    "\ufeff",
    "\x1b[31m",
    "\u202e\u200f\u2066",
    '{"id": "t", "info": [1, {"x": "\\u2028\\n"}]}\n',
)


def _joined(value: str) -> str:
    """A high surrogate before a low one, as JSON has them: the one character that they spell."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


texts = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(codec=None), max_size=8).map(_joined))
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70)
counts = st.integers(0, 10**6)
times = st.floats(0, 4e9)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)

_other = st.builds(
    lambda data, kind: OtherPart({**data, "type": kind}), json_objects, st.sampled_from(["audio", "file", "\u2028"])
)
_parts = st.builds(TextPart, texts) | st.builds(ImagePart, texts, maybe(texts)) | _other
_contents = texts | st.lists(_parts, max_size=3).map(tuple)
_tool_calls = st.builds(ToolCall, id=texts, name=texts, arguments=texts, type=st.sampled_from(["function", "custom"]))
replies = st.builds(
    AssistantMessage,
    maybe(texts),
    reasoning_content=maybe(texts),
    tool_calls=st.lists(_tool_calls, max_size=2),
    provider_state=maybe(st.lists(json_objects, max_size=2).map(tuple)),
)
messages = st.one_of(
    st.builds(SystemMessage, _contents),
    st.builds(UserMessage, _contents),
    replies,
    st.builds(ToolMessage, _contents, tool_call_id=texts, name=maybe(texts)),
)
usages = st.builds(
    Usage,
    prompt_tokens=counts,
    completion_tokens=counts,
    cached_input_tokens=maybe(counts),
    reasoning_tokens=maybe(counts),
    cost=maybe(times),
)
_extra_settings = st.dictionaries(texts | st.sampled_from(["temperature", "extra", "stop"]), json_values, max_size=3)
_samplings = st.builds(
    Sampling,
    temperature=maybe(numbers),
    top_p=maybe(numbers),
    max_tokens=maybe(counts),
    seed=maybe(counts),
    stop=maybe(st.lists(texts, max_size=2).map(tuple)),
    reasoning_effort=maybe(texts),
    extra=_extra_settings,
)
errors = st.builds(ErrorRecord, type=texts, message=texts, status_code=maybe(counts), traceback=maybe(texts))
_spans = st.builds(Span, start=times, end=maybe(times))
_splits = st.builds(TimeSplit, times)
_timings = st.builds(
    Timing,
    start=times,
    boot=maybe(_spans),
    setup=maybe(_spans),
    agent=maybe(st.builds(AgentSpan, start=times, end=maybe(times), model=_splits, harness=_splits)),
    finalize=maybe(_spans),
    scoring=maybe(_spans),
)
_endings = st.builds(
    Ending,
    name=texts,
    cause=st.sampled_from(CAUSES),
    graded=st.booleans(),
    counts=st.booleans(),
    retryable=st.booleans(),
)
_rewrites = st.lists(st.builds(Rewrite, texts), max_size=2)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """A trace of any outcome, whose nodes and calls were recorded as the engine records them."""
    trace = Trace(
        id=draw(texts),
        task=TaskInfo(type=draw(texts), data=draw(json_objects), key=draw(maybe(texts)), hash=draw(maybe(texts))),
        agent=AgentInfo(
            config=draw(json_objects),
            runtime=draw(maybe(json_objects)),
            name=draw(texts),
            trainable=draw(st.booleans()),
        ),
        tools=draw(
            st.lists(
                st.builds(Tool, name=texts, description=texts, parameters=json_objects, strict=maybe(st.booleans())),
                max_size=2,
            )
        ),
        rewards=draw(st.dictionaries(texts, maybe(st.builds(Reward, score=numbers, weight=numbers)), max_size=3)),
        metrics=draw(st.dictionaries(texts, maybe(numbers), max_size=3)),
        info=draw(json_objects),
        is_completed=draw(st.booleans()),
        ok=draw(st.booleans()),
        stop_condition=draw(maybe(texts)),
        errors=draw(st.lists(errors, max_size=2)),
        warnings=draw(st.lists(st.builds(TraceWarning, kind=texts, message=texts), max_size=2)),
        timing=draw(_timings),
        request_rewrites=draw(_rewrites),
        response_rewrites=draw(_rewrites),
        extra_usage=draw(st.lists(usages, max_size=2)),
        run=draw(maybe(st.builds(RunInfo, type=texts, id=texts, name=maybe(texts)))),
        group=draw(maybe(st.builds(GroupInfo, id=texts, index=maybe(counts)))),
        ending=draw(maybe(_endings)),
        transitions=draw(
            st.lists(
                st.builds(TransitionRecord, time=times, trigger=texts, source=texts, target=texts, reason=maybe(texts)),
                max_size=3,
            )
        ),
    )
    for _ in range(draw(st.integers(0, 3))):
        usage = draw(maybe(usages))
        node = _committed(draw, trace, messages, replies, usage)
        trace.record_call(
            ModelCall(
                node=node,
                model=draw(maybe(texts)),
                sampling=draw(maybe(_samplings)),
                endpoint=draw(maybe(texts)),
                finish_reason=draw(st.sampled_from([None, "stop", "length", "tool_calls"])),
                usage=usage,
                time=draw(_spans),
                error=draw(maybe(errors)),
                policy=draw(maybe(st.builds(PolicyEvent, code=texts, paths=st.lists(texts, max_size=2).map(tuple)))),
            )
        )
    return trace


_ids = st.lists(st.integers(0, 2), max_size=3).map(tuple)
_tokens = st.builds(Tokens, prompt_ids=_ids, completion_ids=_ids)

_words = st.sampled_from("ab")


@st.composite
def conversations(draw: st.DrawFn) -> Trace:
    """A trace with little but messages, of few words, so that they often meet: branches, retries, parallel calls."""
    trace = Trace(id="t", task=TaskInfo(type="Task"))
    for _ in range(draw(st.integers(0, 8))):
        usage = draw(maybe(st.builds(Usage, prompt_tokens=st.integers(0, 300), completion_tokens=st.integers(0, 50))))
        node = _committed(draw, trace, _words.map(UserMessage), _words.map(AssistantMessage), usage)
        trace.record_call(ModelCall(node=node, usage=usage, time=Span(start=0.0)))
    return trace


def _committed(
    draw: st.DrawFn,
    trace: Trace,
    prompts: st.SearchStrategy[Any],
    answers: st.SearchStrategy[Any],
    usage: Usage | None,
) -> int | None:
    """One model call on a conversation that goes on from some branch, or from the middle of one, or starts anew."""
    if not draw(st.integers(0, 4)):
        return None  # the call failed
    known = [node.message for node in draw(st.sampled_from([[], *trace.branches]))]
    prompt = [*known[: draw(st.integers(0, len(known)))], *draw(st.lists(prompts, max_size=2))]
    answer = Response(message=draw(answers), usage=usage, tokens=draw(maybe(_tokens)))
    response = answer if draw(st.integers(0, 4)) else None
    return trace.commit(trace.place(prompt).messages, response, time=draw(times))
