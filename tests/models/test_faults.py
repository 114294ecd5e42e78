"""What a provider said is read out of the shapes in which providers say it, and nothing secret is shown."""

import pytest

from rollout_fsm.errors import OverlongPromptError, ProviderError
from rollout_fsm.messages import JSON
from rollout_fsm.models.faults import (
    BrokenError,
    Complaint,
    ConnectError,
    ConnectTimeoutError,
    EncodingError,
    HeaderError,
    NetworkError,
    SilentError,
    UrlError,
    capped,
    complained,
    complaint_in,
    odd_answer,
    refused,
    shown_url,
    unreachable,
)

URL = "http://models.test/v1/chat/completions"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (
            {
                "error": {
                    "message": "bad key",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "invalid_api_key",
                }
            },
            Complaint(text="bad key", codes=("invalid_api_key", "invalid_request_error")),
        ),
        (
            {"error": {"code": 400, "message": "too big", "type": "exceed_context_size_error", "n_ctx": 8}},
            Complaint(text="too big", codes=("exceed_context_size_error",), number=400),
        ),
        (
            {"object": "error", "message": "no", "type": "BadRequestError", "param": None, "code": 400},
            Complaint(text="no", codes=("BadRequestError",), number=400),
        ),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            Complaint(text="Overloaded", codes=("overloaded_error",)),
        ),
        (
            [{"error": {"code": 400, "message": "too many", "status": "INVALID_ARGUMENT"}}],
            Complaint(text="too many", codes=("INVALID_ARGUMENT",), number=400),
        ),
        (
            {"error": "model is loading", "error_type": "overloaded"},
            Complaint(text="model is loading", codes=("overloaded",)),
        ),
        ({"detail": "Not authenticated"}, Complaint(text="Not authenticated")),
        (
            {"detail": [{"loc": ["body", "messages"], "msg": "Field required", "type": "missing"}]},
            Complaint(text="Field required", codes=("missing",)),
        ),
        ({"message": {"detail": [{"msg": "wrong"}]}, "code": "1261"}, Complaint(text="wrong", codes=("1261",))),
        ({"errors": ["one", "two"]}, Complaint(text="one: two")),
        ({"title": "Bad", "detail": "worse", "status": 422}, Complaint(text="Bad: worse", number=422)),
        (
            {
                "error": {
                    "message": "Provider returned error",
                    "code": 400,
                    "metadata": {"raw": "prompt is too long: 9 > 8"},
                }
            },
            Complaint(text="Provider returned error: prompt is too long: 9 > 8", number=400),
        ),
        ({"surprise": 1}, Complaint(text='{"surprise": 1}')),
        ("just words", Complaint(text="just words")),
        ({"error": {"message": "twice"}, "message": "twice"}, Complaint(text="twice")),
    ],
)
def test_a_complaint_is_read_in_each_of_its_shapes(body: JSON, complaint: Complaint) -> None:
    assert complained(body) == complaint


def test_a_complaint_nested_without_end_is_read_to_a_depth() -> None:
    body: JSON = "the bottom"
    for _ in range(5_000):
        body = {"error": body}
    assert (
        complained({"message": "the top", "error": {"error": {"error": {"message": "deep"}}}}).text == "the top: deep"
    )
    assert "the bottom" not in complained({"message": "the top", "error": body}).text


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no"}},
        {"object": "error", "message": "no"},
        {"type": "error", "message": "no"},
        {"detail": "no"},
        {"choices": [{"error": {"message": "no"}, "message": {"role": "assistant", "content": ""}}]},
    ],
)
def test_a_complaint_with_a_good_status_is_found(body: dict[str, JSON]) -> None:
    complaint = complaint_in(body)
    assert complaint is not None
    assert complaint.text == "no"


def test_an_answer_with_an_empty_error_field_is_no_complaint() -> None:
    assert complaint_in({"error": None, "choices": [{"message": {"content": "hi"}}], "detail": "kept"}) is None


def test_a_refusal_says_who_answered_what_with_its_codes_and_what_to_check() -> None:
    error = refused(401, b'{"error": {"message": "bad key", "code": "invalid_api_key"}}', url=URL)
    assert str(error) == f"{URL} answered 401 (invalid_api_key): bad key; check the key"
    assert error.status_code == 401
    assert type(error) is ProviderError


def test_a_refusal_without_json_shows_the_text_on_one_line() -> None:
    error = refused(502, b"<html>\n <h1>502 Bad Gateway</h1>\n</html>", url=URL)
    assert str(error) == f"{URL} answered 502: <html> <h1>502 Bad Gateway</h1> </html>"


def test_a_refusal_without_a_word_says_so() -> None:
    assert str(refused(500, b"", url=URL)) == f"{URL} answered 500: with no word of explanation"


def test_a_redirect_says_where_it_leads() -> None:
    error = refused(308, b"", url=URL, location="https://me:secret@models.test/v1/chat/completions?key=secret")
    assert "it redirects to https://models.test/v1/chat/completions: make that the base URL" in str(error)


def test_a_long_complaint_keeps_both_of_its_ends() -> None:
    error = refused(400, b"beginning " + b"x" * 100_000 + b" end", url=URL)
    assert "beginning" in str(error)
    assert str(error).endswith(" end")
    assert "98014 characters left out" in str(error)
    assert len(str(error)) < 2_200
    assert capped("short") == "short"


def test_a_full_context_is_told_whatever_the_shape() -> None:
    wrapped = (
        b'{"error": {"message": "Provider returned error", "metadata": {"raw": "prompt is too long: 9 > 8 maximum"}}}'
    )
    assert isinstance(refused(400, wrapped, url=URL), OverlongPromptError)
    assert isinstance(refused(500, b"context_length_exceeded", url=URL), OverlongPromptError)
    assert not isinstance(refused(429, wrapped, url=URL), OverlongPromptError)
    inside = odd_answer(
        "the stream reports an error", url=URL, complaint=complained({"code": 400, "message": "prompt is too long"})
    )
    assert isinstance(inside, OverlongPromptError)
    assert inside.status_code == 400


def test_a_url_is_shown_without_what_may_be_secret() -> None:
    assert shown_url("https://me:secret@models.test:8/v1?key=secret#x") == "https://models.test:8/v1"
    assert shown_url("models.test/v1?key=secret") == "models.test/v1"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (ConnectTimeoutError(), "connecting to http://models.test/v1/chat/completions timed out"),
        (SilentError(), "asking http://models.test/v1/chat/completions timed out"),
        (SilentError(), "no byte came or went for 9 s (`timeout` of the model)"),
        (ConnectError("all attempts failed"), "all attempts failed; check the base URL and that it is running"),
        (UrlError("no scheme"), "no scheme; check the base URL"),
        (EncodingError("bad gzip"), "its content encoding is broken: bad gzip"),
        (BrokenError(), "the connection broke: BrokenError"),
        (BrokenError("peer left"), "the connection broke: peer left"),
    ],
)
def test_a_fault_of_the_network_says_what_was_done_where_and_what_to_check(fault: NetworkError, says: str) -> None:
    error = unreachable(fault, doing="asking", url=URL, timeout=9.0)
    assert says in str(error)
    assert error.status_code is None


def test_a_fault_shows_what_the_system_said_at_the_bottom_of_it() -> None:
    fault = ConnectError("")
    fault.__cause__ = ExceptionGroup("", [OSError(111, "Connection refused"), OSError(101, "Network is unreachable")])
    said = str(unreachable(fault, doing="asking", url=URL, timeout=9.0))
    assert "[Errno 111] Connection refused; [Errno 101] Network is unreachable" in said


def test_a_header_that_cannot_be_sent_is_not_quoted() -> None:
    error = unreachable(HeaderError("Illegal header value b'secret'"), doing="asking", url=URL, timeout=None)
    assert "secret" not in str(error)
    assert "`headers`" in str(error)
