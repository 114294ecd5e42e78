"""The routes of the gateway: OpenAI chat completions, and the list of models.

A call parses its body, has the rollout's session respond, and renders the answer. The session commits a turn before it
returns, so a commit precedes the first byte of its answer.
"""

import time
from functools import partial
from uuid import uuid4

import trio
from attrs import evolve, frozen

from rollout_fsm.errors import TurnRefused, leaves
from rollout_fsm.gateway.connection import Call, Head
from rollout_fsm.gateway.dialects.chat import (
    Streaming,
    parse_request,
    parse_streaming,
    render_chunks,
    render_response,
)
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.reply import Reply, error_reply, event_reply, failure_reply, json_reply
from rollout_fsm.gateway.slots import CONCLUDED, Slot, Slots
from rollout_fsm.messages import JSON, Request, Response
from rollout_fsm.strict_json import parse_json

COMPLETIONS = "/v1/chat/completions"
MODELS = "/v1/models"
MAX_VALUES = 1_000_000
"""How many commas and colons a body may have, those in texts included: about what a second of reading amounts to."""

_METHODS = {COMPLETIONS: ("POST",), MODELS: ("GET", "HEAD")}


@frozen(kw_only=True)
class ChatRoutes:
    """The gateway's application."""

    slots: Slots
    max_body: int
    only: Slot | None = None
    """The one slot that is served; None serves all of them."""

    def route(self, head: Head) -> Call | Reply:
        """What answers this request: the call of an open slot, or a reply that says why there is none."""
        path = head.path.rstrip("/")
        methods = _METHODS.get(path)
        if methods is None:
            known = f"this gateway serves POST {COMPLETIONS} and GET {MODELS}"
            return error_reply(404, f"no route {head.method} {head.path}: {known}", code="unknown_route")
        allowed = (("allow", ", ".join((*methods, "OPTIONS"))),)
        if head.method == "OPTIONS":
            return Reply(status=204, headers=allowed)
        if head.method not in methods:
            expected = " or ".join(methods)
            message = f"{path} does not take {head.method}: use {expected}"
            return error_reply(405, message, code="method_not_allowed", headers=allowed)
        slot = self._slot(head)
        if slot is None:
            return error_reply(
                401,
                "no rollout has this key: send the rollout's own secret as `Authorization: Bearer …` or `x-api-key`",
                code="invalid_api_key",
                headers=(("www-authenticate", "Bearer"),),
            )
        if slot.closed:
            return failure_reply(TurnRefused(CONCLUDED))
        if path == MODELS:
            return _models(slot)
        encoding = (head.get(b"content-encoding") or b"identity").decode("latin-1")
        if encoding.lower() != "identity":
            return error_reply(415, f"content-encoding {encoding} is not supported: send the body as it is")
        return partial(_complete, slot)

    def _slot(self, head: Head) -> Slot | None:
        for secret in _secrets(head):
            if (slot := self.slots.find(secret)) is not None:
                return slot if self.only in (None, slot) else None
        return None


def _secrets(head: Head) -> list[bytes]:
    """The keys that a client presents: OpenAI's way and Anthropic's."""
    scheme, _, token = (head.get(b"authorization") or b"").partition(b" ")
    presented = [token.strip()] if scheme.lower() == b"bearer" else []
    if (key := head.get(b"x-api-key")) is not None:
        presented.append(key)
    return presented


def _models(slot: Slot) -> Reply:
    model: dict[str, JSON] = {"id": slot.model_name, "object": "model", "created": 0, "owned_by": "rollout-fsm"}
    return json_reply({"object": "list", "data": [model]})


async def _complete(slot: Slot, body: bytearray) -> Reply:
    """One model call. Whatever fails in it is its answer; only a cancellation of this very call, or an exit, passes."""
    try:
        request, streaming = _parsed(body)
        body.clear()  # a call lasts, and the request has its text now
        response = await slot.respond(request)
        return _rendered(response, request.model or slot.model_name, streaming)
    except BaseException as error:  # foreign code: groups and stray cancellations come too
        if any(not isinstance(leaf, Exception | trio.Cancelled) for leaf in leaves(error)):
            raise
        await trio.lowlevel.checkpoint_if_cancelled()
        return failure_reply(error)


def _rendered(response: Response, model: str, streaming: Streaming) -> Reply:
    answer = response if response.id else evolve(response, id=f"chatcmpl-{uuid4().hex}")
    created = int(time.time())
    if not streaming.stream:
        return json_reply(render_response(answer, model=model, created=created))
    return event_reply(render_chunks(answer, model=model, created=created, include_usage=streaming.include_usage))


def _parsed(body: bytearray) -> tuple[Request, Streaming]:
    document = _document(body)
    return parse_request(document), parse_streaming(document)


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
