"""Whatever comes is read, or refused with a `DialectError` that names its field; nothing else is ever raised."""

import re
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.dialect import Dialect, DialectError
from rollout_fsm.gateway.dialects.external import without_external
from rollout_fsm.messages import JSON, NativeEvent
from tests.gateway.dialects.strategies import NOBODY
from tests.profiles import examples

WORDS = """
    role content messages tools type function name arguments id tool_calls choices message delta index error usage n
    input output item response call_id item_id output_index content_block tool_use_id thinking signature system source
    url data media_type summary reasoning instructions stop_reason status incomplete_details reason input_schema
    input_tokens output_tokens tool_choice environment execution text refusal stream max_tokens thread image_url part
    partial_json encrypted_content prompt_token_ids token_ids logprobs logprob stream_options finish_reason
"""
FIELDS = st.sampled_from(WORDS.split())
KINDS = """
    user assistant system developer tool text image document tool_use tool_result thinking function custom message
    message_start content_block_start content_block_delta content_block_stop message_delta message_stop text_delta
    input_json_delta thinking_delta signature_delta citations_delta function_call function_call_output reasoning
    custom_tool_call shell_call shell_call_output response.output_item.added response.output_item.done
    response.output_text.delta response.function_call_arguments.delta response.completed response.reasoning_text.delta
    input_text input_image output_text base64 url completed incomplete web_search mcp namespace item_reference error
"""
LEAVES = st.none() | st.booleans() | st.integers(-1, 2) | st.just(0.5) | st.sampled_from(["x", "", *KINDS.split()])
SHAPES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5), max_leaves=25
)
PLAIN = st.dictionaries(FIELDS, SHAPES, max_size=6)
OBJECTS = PLAIN | st.builds(lambda fields, kind: {**fields, "type": kind}, PLAIN, st.sampled_from(KINDS.split()))
ITEMS = st.lists(OBJECTS, max_size=4)

COMPLAINT = re.compile("no complaint|expected .* got|is an error|reports an error|keeps no|failed|has begun|cut off")

every_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))


def complaint(read: Callable[[dict[str, JSON]], object], body: JSON) -> str:
    try:
        read(cast("dict[str, JSON]", body))
    except DialectError as error:
        return str(error)
    return "no complaint"


@every_dialect
@examples(0.1)
@given(body=SHAPES)
def test_a_body_is_read_or_refused(dialect: Dialect, body: JSON) -> None:
    for read in (dialect.parse_request, dialect.parse_response, dialect.wants_stream):
        assert COMPLAINT.search(complaint(read, body))


@every_dialect
@examples(0.1)
@given(said=ITEMS, about=OBJECTS)
def test_a_conversation_is_read_or_refused(dialect: Dialect, said: list[JSON], about: dict[str, JSON]) -> None:
    for body in ({**about, "messages": said}, {**about, "input": said}):
        assert COMPLAINT.search(complaint(dialect.parse_request, body))


@every_dialect
@examples(0.1)
@given(body=OBJECTS, said=ITEMS)
def test_what_is_read_is_passed_on_and_freed_of_tools(
    dialect: Dialect, body: dict[str, JSON], said: list[JSON]
) -> None:
    try:
        request = dialect.parse_request({"messages": said, "input": said, "tools": said, **body})
    except DialectError:
        return
    free, _ = without_external(request)
    for one in (request, free):
        dialect.render_request(one, model="m", sampling=one.sampling, stream=True)


@every_dialect
@examples(0.1)
@given(said=ITEMS, about=OBJECTS)
def test_an_answer_is_read_or_refused_and_written_as_a_stream(
    dialect: Dialect, said: list[JSON], about: dict[str, JSON]
) -> None:
    for body in ({**about, "content": said}, {**about, "output": said}, {**about, "choices": said}):
        assert COMPLAINT.search(complaint(dialect.parse_response, body))
        try:
            response = dialect.parse_response(body)
        except DialectError:
            continue
        for other in DIALECTS.values():
            list(other.renderer(NOBODY, model="m", created=1).end(response))


@every_dialect
@examples(0.1)
@given(events=st.lists(st.tuples(st.sampled_from(KINDS.split()), OBJECTS), max_size=6))
def test_a_stream_is_read_or_refused(dialect: Dialect, events: list[tuple[str, dict[str, JSON]]]) -> None:
    assembler = dialect.assembler()
    for kind, data in events:
        event = NativeEvent(dialect=dialect.name, name=kind, data={**data, "type": kind})
        assert COMPLAINT.search(complaint(lambda _, event=event: assembler.add(event), {}))  # type: ignore[misc]
    assert COMPLAINT.search(complaint(lambda _: assembler.response(), {}))
