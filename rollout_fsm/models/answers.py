"""What an endpoint answered in one piece. What is wrong with it is a `ProviderError` that says what came."""

import contextlib
from collections.abc import Mapping

from rollout_fsm.gateway.dialects.dialect import Dialect, DialectError
from rollout_fsm.messages import JSON, Response
from rollout_fsm.models.faults import NetworkError, complaint_in, odd_answer
from rollout_fsm.models.reading import read
from rollout_fsm.models.wire import Answer
from rollout_fsm.strict_json import parse_json

__all__ = ["LARGEST", "NOUNS", "complaint_of", "document", "whole"]

LARGEST = 64 * 1024 * 1024
"""Bytes of an answer beyond which it is taken for a fault."""

LARGEST_COMPLAINT = 1024 * 1024
"""Bytes of an error's body that are read."""

NOUNS: Mapping[str, str] = {"chat": "chat completion", "responses": "response", "messages": "message"}
"""What the dialects call an answer."""


async def complaint_of(answer: Answer) -> bytes:
    """An error's body, or as much as came: the status is known already and says more than a broken connection."""
    body = bytearray()

    async def take(piece: bytes) -> bool:
        body.extend(piece)
        return len(body) >= LARGEST_COMPLAINT

    with contextlib.suppress(NetworkError):
        await read(answer, take)
    return bytes(body[:LARGEST_COMPLAINT])


async def document(answer: Answer, url: str) -> dict[str, JSON]:
    """The JSON object that an endpoint answered. Raises `ProviderError`, also for a complaint in spite of a good
    status."""
    return _document(await _body(answer, url), url, answer.header(b"content-type"))


async def whole(answer: Answer, dialect: Dialect, url: str) -> Response:
    """The response that an endpoint answered. Raises `ProviderError`."""
    body = await _body(answer, url)
    given = _document(body, url, answer.header(b"content-type"))
    try:
        return dialect.parse_response(given)
    except DialectError as error:
        raise odd_answer(f"the answer is no {NOUNS[dialect.name]}: {error}", url=url, body=body) from None


async def _body(answer: Answer, url: str) -> bytes:
    body = bytearray()

    async def take(piece: bytes) -> bool:
        body.extend(piece)
        if len(body) > LARGEST:
            raise odd_answer(f"the answer is larger than {LARGEST} bytes", url=url, body=bytes(body))
        return False

    await read(answer, take)
    return bytes(body)


def _document(body: bytes, url: str, content_type: str | None) -> dict[str, JSON]:
    try:
        answer = parse_json(body)
    except ValueError:
        what = (
            f"the answer is not JSON (content type {content_type or 'not given'}); check the base URL (most end in /v1)"
        )
        raise odd_answer(what, url=url, body=body) from None
    if not isinstance(answer, dict):
        raise odd_answer("the answer is JSON, but no object", url=url, body=body)
    if complaint := complaint_in(answer):
        raise odd_answer("the answer is an error in spite of its status 200", url=url, complaint=complaint)
    return answer
