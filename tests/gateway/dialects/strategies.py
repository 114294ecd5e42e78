"""What there is to say, as strategies, and bodies as they are after their way over a wire."""

import json
from collections.abc import Iterable
from typing import Any, cast

from hypothesis import strategies as st

from rollout_fsm.gateway.dialects.dialect import Dialect
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    Delta,
    FinishReason,
    ImagePart,
    Message,
    NativeEvent,
    OtherPart,
    Request,
    Response,
    Sampling,
    SystemMessage,
    TextPart,
    Tool,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)


def wire(value: object) -> dict[str, JSON]:
    """The value as it is after its way over a wire."""
    return cast("dict[str, JSON]", json.loads(json.dumps(value)))


TEXT = st.text(st.characters(), max_size=40)  # lone surrogates included
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12)
COUNTS = st.integers(0, 2**40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=3)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)

PARTS = st.one_of(
    st.builds(TextPart, TEXT),
    st.builds(ImagePart, TEXT, st.none() | st.sampled_from(["low", "high"])),
    st.builds(lambda extra: OtherPart({"type": "input_audio", "input_audio": extra}), OBJECTS),
)
CONTENT = TEXT | st.lists(PARTS, max_size=3).map(tuple)
CALLS = st.builds(ToolCall, id=NAMES, name=NAMES, arguments=TEXT, type=st.sampled_from(["function", "custom"]))
STATE = st.lists(OBJECTS.map(lambda fields: {"type": "reasoning.text", **fields}), max_size=2).map(
    lambda items: tuple({**item, "index": place} for place, item in enumerate(items))
)


def distinct(calls: list[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls, less those whose id another one has."""
    return tuple({call.id: call for call in calls}.values())


REPLIES = st.builds(
    AssistantMessage,
    st.none() | TEXT,
    reasoning_content=st.none() | TEXT,
    tool_calls=st.lists(CALLS, max_size=3).map(distinct),
    provider_state=st.none() | STATE,
)
MESSAGES = st.one_of(
    st.builds(SystemMessage, CONTENT),
    st.builds(UserMessage, CONTENT),
    st.builds(ToolMessage, CONTENT, tool_call_id=NAMES, name=st.none() | NAMES),
    REPLIES,
)
TOOLS = st.builds(Tool, name=NAMES, description=TEXT, parameters=OBJECTS, strict=st.none() | st.booleans())
CUSTOM_TOOLS = st.builds(
    Tool,
    name=NAMES,
    description=TEXT,
    format=st.just({"type": "text"}) | st.builds(lambda text: {"type": "grammar", "definition": text}, TEXT),
)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.none() | FLOATS,
    top_p=st.none() | FLOATS,
    max_tokens=st.none() | COUNTS,
    seed=st.none() | st.integers(-(2**63), 2**63),
    stop=st.none() | st.lists(TEXT, max_size=3).map(tuple),
    reasoning_effort=st.none() | st.sampled_from(["low", "high"]),
    extra=st.dictionaries(NAMES.map(lambda name: f"x_{name}"), VALUES, max_size=3),
)
USAGES = st.builds(
    Usage,
    prompt_tokens=COUNTS,
    completion_tokens=COUNTS,
    cached_input_tokens=st.none() | COUNTS,
    reasoning_tokens=st.none() | COUNTS,
    cost=st.none() | FLOATS,
)
REASONS = cast("list[FinishReason | None]", ["stop", "length", "tool_calls", None])
RESPONSES = st.builds(
    Response,
    message=REPLIES,
    finish_reason=st.sampled_from(REASONS),
    usage=st.none() | USAGES,
    id=NAMES,
    model=NAMES,
)


@st.composite
def plain_responses(draw: st.DrawFn) -> Response:
    """Answers that every dialect can say: the reason of the end fits the calls, and the usage is known."""
    arguments = TEXT | OBJECTS.map(json.dumps)
    calls = st.builds(ToolCall, id=NAMES, name=NAMES, arguments=arguments)
    message = AssistantMessage(
        draw(st.none() | TEXT.filter(bool)),
        reasoning_content=draw(st.none() | TEXT.filter(bool)),
        tool_calls=draw(st.lists(calls, max_size=3).map(distinct)),
    )
    reason: FinishReason = "tool_calls" if message.tool_calls else "stop"
    usage = Usage(
        prompt_tokens=draw(COUNTS),
        completion_tokens=draw(COUNTS),
        cached_input_tokens=draw(COUNTS),
        reasoning_tokens=draw(COUNTS),
        cost=draw(st.none() | FLOATS),
    )
    finish = draw(st.sampled_from([reason, reason, "length"]))
    return Response(message=message, finish_reason=finish, usage=usage, id=draw(NAMES), model=draw(NAMES))


SAID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


IMAGES = st.builds(ImagePart, st.sampled_from(["https://x/y.png", "data:image/png;base64,Zg=="]))
CONTENTS = SAID | st.lists(st.builds(TextPart, SAID) | IMAGES, min_size=1, max_size=3).map(tuple)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """Conversations that every dialect can say: what is said is not empty, and calls are answered in order."""
    messages: list[Message] = [SystemMessage(draw(SAID))] if draw(st.booleans()) else []
    calls = st.builds(ToolCall, id=NAMES, name=NAMES, arguments=OBJECTS.map(json.dumps))
    for _ in range(draw(st.integers(1, 3))):
        messages.append(UserMessage(draw(CONTENTS)))
        for _ in range(draw(st.integers(0, 2))):
            asked = draw(st.lists(calls, min_size=1, max_size=2).map(distinct))
            messages.append(AssistantMessage(draw(st.none() | SAID), tool_calls=asked))
            messages.extend(ToolMessage(draw(CONTENTS), tool_call_id=call.id) for call in asked)
        messages.append(AssistantMessage(draw(SAID)))
    return tuple(messages)


NOBODY = Request(messages=[UserMessage("x")])
"""A request of nobody's dialect."""


def over_the_wire(events: Iterable[NativeEvent]) -> list[NativeEvent]:
    """The events as their reader has them."""
    return [NativeEvent(dialect=event.dialect, data=wire(event.data), name=event.name) for event in events]


def streamed(dialect: Dialect, response: Response, request: Request = NOBODY) -> list[NativeEvent]:
    """The stream that says a response."""
    return over_the_wire(dialect.renderer(request, model=str(response.model), created=1).end(response))


def assembled(dialect: Dialect, events: Iterable[NativeEvent]) -> Response:
    """The response that a stream says."""
    assembler = dialect.assembler()
    for event in events:
        assembler.add(event)
    return assembler.response()


def deltas(dialect: Dialect, events: Iterable[NativeEvent]) -> tuple[list[Delta], Response]:
    """The pieces that a stream says, and what they add up to."""
    assembler = dialect.assembler()
    return [assembler.add(event) for event in events], assembler.response()


def listed(value: object) -> list[Any]:
    """The value, which is a list."""
    assert isinstance(value, list)
    return value
