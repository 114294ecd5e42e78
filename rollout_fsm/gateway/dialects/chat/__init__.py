"""The OpenAI chat-completions API."""

from collections.abc import Mapping

from attrs import frozen

from rollout_fsm.gateway.dialects.chat import answers, requests
from rollout_fsm.gateway.dialects.chat.assembling import ChatAssembler
from rollout_fsm.gateway.dialects.chat.messages import parse_message, render_message
from rollout_fsm.gateway.dialects.chat.rendering import ChatRenderer
from rollout_fsm.gateway.dialects.errors import openai_error
from rollout_fsm.gateway.dialects.recall import Recall, afresh
from rollout_fsm.messages import JSON, Request, Response, Sampling

__all__ = ["CHAT", "ChatDialect", "parse_message", "render_message"]


@frozen(kw_only=True)
class ChatDialect:
    """Chat completions. `limit_field` is what the endpoint calls `max_tokens`: OpenAI's own takes
    `max_completion_tokens` only."""

    limit_field: requests.LimitField = "max_tokens"

    @property
    def name(self) -> str:
        """What it is called."""
        return requests.NAME

    @property
    def path(self) -> str:
        """Where requests are posted to."""
        return "/chat/completions"

    def parse_request(self, body: Mapping[str, JSON], recall: Recall = afresh) -> Request:
        """A request, with the body as its `native`."""
        return requests.parse_request(body, recall)

    def wants_stream(self, body: Mapping[str, JSON]) -> bool:
        """Whether the answer is to come as a stream."""
        return requests.wants_stream(body)

    def render_request(self, request: Request, *, model: str, sampling: Sampling, stream: bool) -> dict[str, JSON]:
        """A body for an endpoint."""
        return requests.render_request(
            request, model=model, sampling=sampling, stream=stream, limit_field=self.limit_field
        )

    def parse_response(self, body: Mapping[str, JSON]) -> Response:
        """An answer, with the body as its `native`."""
        return answers.parse_response(body)

    def render_response(self, response: Response, *, request: Request, model: str, created: int) -> dict[str, JSON]:
        """The answer to a request."""
        return answers.render_response(response, model=model, created=created)

    def renderer(self, request: Request, *, model: str, created: int) -> ChatRenderer:
        """Writes the stream that answers a request."""
        native = request.native
        wanted = native is None or native.dialect != self.name or requests.wants_usage(native.body)
        return ChatRenderer(model, created, wanted)

    def assembler(self) -> ChatAssembler:
        """Reads one stream of an endpoint."""
        return ChatAssembler()

    def error_body(
        self, status: int, message: str, *, type: str, param: str | None, code: str | None
    ) -> dict[str, JSON]:
        """An error in OpenAI's shape."""
        return openai_error(message, type=type, param=param, code=code)


CHAT = ChatDialect()
