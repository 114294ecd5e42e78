"""A body passes to an endpoint of its own dialect as it is, but for what the run sets and what was rewritten."""

import copy
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.dialect import Dialect
from rollout_fsm.messages import (
    Content,
    ImagePart,
    Message,
    OtherPart,
    Request,
    Sampling,
    TextPart,
    ToolMessage,
    UserMessage,
)
from tests.gateway.dialects.golden import ANSWERS, REQUESTS
from tests.gateway.dialects.strategies import CONTENTS, NOBODY, SAMPLINGS, conversations, wire
from tests.profiles import examples

every_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
every_request = pytest.mark.parametrize("name", REQUESTS)


def read(name: str) -> Request:
    return DIALECTS[name.partition(" ")[0]].parse_request(REQUESTS[name])


def sent(request: Request, *, sampling: Sampling | None = None, model: str = "m", stream: bool = False) -> Any:
    assert request.native is not None
    dialect = DIALECTS[request.native.dialect]
    final = request.sampling if sampling is None else sampling.over(request.sampling)
    before = copy.deepcopy(request.native.body)
    body = dialect.render_request(request, model=model, sampling=final, stream=stream)
    assert request.native.body == before  # nobody writes into what came
    return wire(body)


@every_request
def test_a_request_passes_as_it_came(name: str) -> None:
    assert sent(read(name)) == REQUESTS[name]


@every_request
def test_the_model_and_the_stream_are_the_runs(name: str) -> None:
    body = sent(read(name), model="other", stream=True)
    usage = {"stream_options": {"include_usage": True}} if name.startswith("chat") else {}
    assert body == {**REQUESTS[name], "model": "other", "stream": True, **usage}


@every_request
def test_a_wish_for_a_stream_does_not_reach_an_endpoint_that_is_asked_for_one_piece(name: str) -> None:
    dialect = DIALECTS[name.partition(" ")[0]]
    request = dialect.parse_request({**REQUESTS[name], "stream": True, "stream_options": {"include_obfuscation": True}})
    body = dialect.render_request(request, model="m", sampling=request.sampling, stream=False)
    left = {key: value for key, value in REQUESTS[name].items() if key != "stream"}
    kept = {"stream_options": {"include_obfuscation": True}} if name.startswith("messages") else {}
    assert body == {**left, **kept}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chat full", {"temperature": 0.5, "max_tokens": 4, "reasoning_effort": "low", "x_run": 1}),
        ("responses full", {"temperature": 0.5, "max_output_tokens": 4, "x_run": 1}),
        ("messages full", {"temperature": 0.5, "max_tokens": 4, "x_run": 1}),
    ],
)
def test_the_runs_settings_stand_in_the_place_of_the_requests(name: str, expected: dict[str, Any]) -> None:
    run = Sampling(temperature=0.5, max_tokens=4, reasoning_effort="low", extra={"x_run": 1})
    changed = {**REQUESTS[name], **expected}
    if name == "chat full":
        del changed["max_completion_tokens"]
    if name == "responses full":
        changed["reasoning"] = {"effort": "low", "summary": "auto"}
    if name == "messages full":
        changed["output_config"] = {**REQUESTS[name]["output_config"], "effort": "low"}
    assert sent(read(name), sampling=run) == changed


@every_request
def test_settings_that_the_run_takes_back_are_not_sent(name: str) -> None:
    request = read(name)
    body = DIALECTS[name.partition(" ")[0]].render_request(request, model="m", sampling=Sampling(), stream=False)
    said = {"model", "messages", "input", "system", "instructions", "tools", "stream", "n"}
    assert set(body) == set(REQUESTS[name]) & said


def spoken(dialect: Dialect, sampling: Sampling) -> Sampling:
    """The settings that a dialect can say."""
    if dialect.name == "chat":
        return sampling
    stop = sampling.stop if dialect.name == "messages" else None
    return evolve(sampling, seed=None, stop=stop)


@every_dialect
@examples(0.5)
@given(asked=SAMPLINGS, run=SAMPLINGS, whole=st.booleans())
def test_an_endpoint_is_told_the_settings_that_count(
    dialect: Dialect, asked: Sampling, run: Sampling, whole: bool
) -> None:
    """`whole`: the run's settings are all that count, not those of the request where the run is silent."""
    asked, run = spoken(dialect, asked), spoken(dialect, run)
    came = dialect.render_request(NOBODY, model="m", sampling=asked, stream=False)
    request = dialect.parse_request(wire(came))
    final = run if whole else run.over(request.sampling)
    sent = dialect.parse_request(wire(dialect.render_request(request, model="m", sampling=final, stream=False)))
    assert sent.sampling == final


# Rewriting


@every_dialect
@examples(0.5)
@given(messages=conversations(), data=st.data())
def test_whatever_is_rewritten_is_what_the_endpoint_reads(
    dialect: Dialect, messages: tuple[Message, ...], data: st.DataObject
) -> None:
    body = dialect.render_request(Request(messages=messages), model="m", sampling=Sampling(), stream=False)
    request = dialect.parse_request(wire(body))
    rewritten: list[Message] = [
        evolve(message, content=data.draw(CONTENTS))
        if isinstance(message, UserMessage | ToolMessage) and data.draw(st.booleans())
        else message
        for message in request.messages
    ]
    sent = dialect.render_request(
        evolve(request, messages=rewritten), model="m", sampling=request.sampling, stream=False
    )
    assert [message.key for message in dialect.parse_request(wire(sent)).messages] == [
        message.key for message in rewritten
    ]


def rewrite(name: str, position: int, content: Content) -> tuple[Message, Any]:
    """The message at a position of a request, rewritten, and the body that it is sent in."""
    request = read(name)
    messages = list(request.messages)
    old = messages[position]
    assert isinstance(old, UserMessage | ToolMessage)
    messages[position] = evolve(old, content=content)
    return old, sent(evolve(request, messages=messages))


def places(value: Any, other: Any, where: str = "") -> list[str]:
    """Where two bodies differ."""
    if isinstance(value, dict) and isinstance(other, dict) and value.keys() == other.keys():
        return [place for key in value for place in places(value[key], other[key], f"{where}.{key}")]
    if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        return [
            place for at, pair in enumerate(zip(value, other, strict=True)) for place in places(*pair, f"{where}[{at}]")
        ]
    return [] if value == other else [where]


@pytest.mark.parametrize(
    ("name", "position", "place"),
    [
        ("chat plain", 0, ".messages[0].content"),
        ("chat full", 3, ".messages[3].content"),
        ("chat full", 4, ".messages[4].content[0].text"),
        ("chat full", 6, ".messages[6].content"),
        ("responses plain", 0, ".input"),
        ("responses full", 4, ".input[7].output"),
        ("responses full", 6, ".input[9].output"),
        ("responses full", 8, ".input[12].content"),
        ("messages plain", 0, ".messages[0].content"),
        ("messages full", 3, ".messages[2].content[0].content[0].text"),
        ("messages full", 5, ".messages[2].content[2].text"),
        ("messages full", 8, ".messages[5].content"),
    ],
)
def test_a_text_is_rewritten_where_it_stands_and_nothing_else_changes(name: str, position: int, place: str) -> None:
    _, body = rewrite(name, position, "new words")
    assert places(body, REQUESTS[name]) == [place]
    dialect = DIALECTS[name.partition(" ")[0]]
    assert dialect.parse_request(body).messages[position].text == "new words"


@pytest.mark.parametrize(
    ("name", "position", "place"),
    [
        ("chat full", 1, ".messages[1].content[0].text"),
        ("responses full", 2, ".input[1].content[0].text"),
        ("messages full", 1, ".messages[0].content[0].text"),
    ],
)
def test_a_part_that_is_rewritten_keeps_its_other_fields_and_its_siblings(name: str, position: int, place: str) -> None:
    old = read(name).messages[position].content
    assert isinstance(old, tuple)
    _, body = rewrite(name, position, (TextPart("new words"), *old[1:]))
    assert places(body, REQUESTS[name]) == [place]


@pytest.mark.parametrize(
    ("name", "position", "path"),
    [
        ("chat full", 1, ("messages", 1, "content")),
        ("responses full", 2, ("input", 1, "content")),
        ("messages full", 1, ("messages", 0, "content")),
    ],
)
def test_parts_that_stay_are_left_as_they_are_when_others_go_or_come(
    name: str, position: int, path: tuple[Any, ...]
) -> None:
    old = read(name).messages[position].content
    assert isinstance(old, tuple)
    image = ImagePart("data:image/png;base64,aGk=")
    _, body = rewrite(name, position, (image, old[2], old[0]))
    before: Any = REQUESTS[name]
    for step in path:
        before, body = before[step], body[step]
    assert body[1:] == [before[2], before[0]]
    assert "aGk=" in str(body[0])


def test_a_whole_content_that_is_rewritten_as_one_text_keeps_the_mark_of_the_last_text() -> None:
    _, body = rewrite("messages full", 1, "new words")
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "new words", "cache_control": {"type": "ephemeral"}}
    ]


def test_a_result_that_was_read_as_json_is_json_again() -> None:
    _, body = rewrite("responses full", 6, '[{"stdout": "b", "stderr": ""}]')
    assert body["input"][9]["output"] == [{"stdout": "b", "stderr": ""}]


def test_an_input_that_is_one_text_takes_parts() -> None:
    _, body = rewrite("responses plain", 0, (TextPart("look"), ImagePart("https://x/y.png")))
    assert body["input"][0]["content"][0] == {"type": "input_text", "text": "look"}


def test_a_message_that_keeps_its_key_is_not_written() -> None:
    old = read("chat full").messages[4]
    _, body = rewrite("chat full", 4, old.text)
    assert body == REQUESTS["chat full"]


def test_messages_that_no_longer_correspond_to_the_body_are_written_anew() -> None:
    request = read("chat full")
    body = sent(evolve(request, messages=[UserMessage("alone")]))
    assert body["messages"] == [{"role": "user", "content": "alone"}]
    assert body["parallel_tool_calls"] is False


def test_a_body_is_shared_where_nothing_was_rewritten() -> None:
    request = read("chat full")
    assert request.native is not None
    body: Any = DIALECTS["chat"].render_request(request, model="m", sampling=request.sampling, stream=False)
    assert body["messages"] is request.native.body["messages"]
    request = evolve(request, messages=[*request.messages[:-1], UserMessage("new")])
    body = DIALECTS["chat"].render_request(request, model="m", sampling=request.sampling, stream=False)
    assert body["messages"][1] is REQUESTS["chat full"]["messages"][1]


# Answers


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_goes_back_as_it_came(name: str) -> None:
    dialect = DIALECTS[name.partition(" ")[0]]
    response = dialect.parse_response(ANSWERS[name])
    assert dialect.render_response(response, request=NOBODY, model="other", created=1) == ANSWERS[name]


def test_a_part_of_another_kind_passes_through_a_rewrite() -> None:
    audio = OtherPart({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}})
    _, body = rewrite("chat full", 1, (audio,))
    assert body["messages"][1]["content"] == [audio.data]
