"""The body of a request, read as what a dialect makes of it."""

from collections.abc import Mapping

from attrs import evolve

from rollout_fsm.gateway.connection import Head
from rollout_fsm.gateway.dialects.dialect import Dialect, DialectError
from rollout_fsm.messages import JSON, Request
from rollout_fsm.strict_json import parse_json

MAX_VALUES = 1_000_000
"""How many commas and colons a body may have, those in texts included: about what a second of reading amounts to."""

PASSED_ON = (b"anthropic-version", b"anthropic-beta", b"openai-beta")
"""Headers that belong to a dialect: they say which of its features a body makes use of."""


def read_request(head: Head, body: bytearray, dialect: Dialect) -> tuple[Request, Mapping[str, JSON]]:
    """The request, and the document that it was read from. Raises `DialectError`."""
    document = _document(body)
    request = dialect.parse_request(document)
    if request.native is not None:
        headers = {name.decode(): value.decode("latin-1") for name in PASSED_ON if (value := head.get(name))}
        request = evolve(request, native=evolve(request.native, headers=headers))
    return request, document


def _document(body: bytearray) -> dict[str, JSON]:
    """The request as an object. A body of very many values is refused unread: reading it would hold everybody up."""
    if (values := body.count(b",") + body.count(b":")) > MAX_VALUES:
        raise DialectError(f"the request body has {values:,} commas and colons; {MAX_VALUES:,} are allowed")
    try:
        document = parse_json(body)
    except ValueError as error:
        raise DialectError(f"the request body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise DialectError(f"the request body: expected a JSON object, got {type(document).__name__}")
    return document
