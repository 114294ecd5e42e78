"""Anthropic's messages API."""

from collections.abc import Mapping

from attrs import frozen

from rollout_fsm.gateway.dialects.errors import anthropic_error
from rollout_fsm.gateway.dialects.messages import answers, requests
from rollout_fsm.gateway.dialects.messages.assembling import MessagesAssembler
from rollout_fsm.gateway.dialects.messages.blocks import NAME
from rollout_fsm.gateway.dialects.messages.rendering import MessagesRenderer
from rollout_fsm.gateway.dialects.recall import Recall, afresh
from rollout_fsm.messages import JSON, Request, Response, Sampling

__all__ = ["MESSAGES", "MessagesDialect"]


@frozen
class MessagesDialect:
    """Messages."""

    @property
    def name(self) -> str:
        """What it is called."""
        return NAME

    @property
    def path(self) -> str:
        """Where requests are posted to."""
        return "/messages"

    def parse_request(self, body: Mapping[str, JSON], recall: Recall = afresh) -> Request:
        """A request, with the body as its `native`."""
        return requests.parse_request(body, recall)

    def wants_stream(self, body: Mapping[str, JSON]) -> bool:
        """Whether the answer is to come as a stream."""
        return requests.wants_stream(body)

    def render_request(self, request: Request, *, model: str, sampling: Sampling, stream: bool) -> dict[str, JSON]:
        """A body for an endpoint."""
        return requests.render_request(request, model=model, sampling=sampling, stream=stream)

    def parse_response(self, body: Mapping[str, JSON]) -> Response:
        """An answer, with the body as its `native`."""
        return answers.parse_response(body)

    def render_response(self, response: Response, *, request: Request, model: str, created: int) -> dict[str, JSON]:
        """The answer to a request."""
        return answers.render_response(response, model=model)

    def renderer(self, request: Request, *, model: str, created: int) -> MessagesRenderer:
        """Writes the stream that answers a request."""
        return MessagesRenderer(model)

    def assembler(self) -> MessagesAssembler:
        """Reads one stream of an endpoint."""
        return MessagesAssembler()

    def error_body(
        self, status: int, message: str, *, type: str, param: str | None, code: str | None
    ) -> dict[str, JSON]:
        """An error in Anthropic's shape."""
        return anthropic_error(message, status=status, type=type, param=param, code=code)


MESSAGES = MessagesDialect()
