"""OpenAI's Responses API, without the parts of it that need a memory."""

from collections.abc import Mapping

from attrs import frozen

from rollout_fsm.gateway.dialects.errors import openai_error
from rollout_fsm.gateway.dialects.recall import Recall, afresh
from rollout_fsm.gateway.dialects.responses import answers, requests
from rollout_fsm.gateway.dialects.responses.assembling import ResponsesAssembler
from rollout_fsm.gateway.dialects.responses.content import NAME
from rollout_fsm.gateway.dialects.responses.rendering import ResponsesRenderer
from rollout_fsm.messages import JSON, Request, Response, Sampling

__all__ = ["RESPONSES", "ResponsesDialect"]


@frozen
class ResponsesDialect:
    """Responses."""

    @property
    def name(self) -> str:
        """What it is called."""
        return NAME

    @property
    def path(self) -> str:
        """Where requests are posted to."""
        return "/responses"

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
        return answers.render_response(response, request=request, model=model, created=created)

    def renderer(self, request: Request, *, model: str, created: int) -> ResponsesRenderer:
        """Writes the stream that answers a request."""
        return ResponsesRenderer(request, model, created)

    def assembler(self) -> ResponsesAssembler:
        """Reads one stream of an endpoint."""
        return ResponsesAssembler()

    def error_body(
        self, status: int, message: str, *, type: str, param: str | None, code: str | None
    ) -> dict[str, JSON]:
        """An error in OpenAI's shape."""
        return openai_error(message, type=type, param=param, code=code)


RESPONSES = ResponsesDialect()
