"""A model behind an OpenAI-compatible endpoint: its chat completions, its responses, or both.

A request of a harness that speaks a dialect of the endpoint's is passed through in it, so that nothing is lost on the
way; every other request is translated.
"""

from typing import ClassVar, Literal, TypeAlias

from attrs import Attribute, define, field

from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.chat import ChatDialect
from rollout_fsm.gateway.dialects.dialect import Dialect
from rollout_fsm.messages import Request
from rollout_fsm.models.endpoint import EndpointModel

__all__ = ["OpenAIModel"]

Speech: TypeAlias = Literal["chat", "responses"]

DEFAULT_BASE_URL = "https://api.openai.com/v1"
BASE_URL_VAR = "OPENAI_BASE_URL"

NO_KEY = "EMPTY"
"""What is sent to an endpoint of one's own that needs no key: most servers want the header all the same."""

SPOKEN_BY_OPENAI: tuple[Speech, ...] = ("chat", "responses")
SPOKEN_ELSEWHERE: tuple[Speech, ...] = ("chat",)


def _known(_model: object, _field: "Attribute[tuple[Speech, ...] | None]", speaks: tuple[Speech, ...] | None) -> None:
    if speaks is not None and (not speaks or not set(speaks) <= set(SPOKEN_BY_OPENAI)):
        raise ValueError(f"speaks is made of 'chat' and 'responses', the one to translate to first; got {speaks!r}")


@define(eq=False, slots=False)
class OpenAIModel(EndpointModel):
    """The endpoint at `base_url`, else at OPENAI_BASE_URL, else OpenAI's own.

    `api_key_var` names the environment variable of the key (None: no key). `timeout` is in seconds without a byte; a
    model that answers in one piece is silent until it is done, hence the long default. `stream` asks for every answer
    in pieces, which keeps connections alive through proxies. `speaks`: the dialects of the endpoint, `"chat"` and
    `"responses"`; a request that came in none of them is translated to the first. Unless given, OpenAI's own speaks
    both, every other one chat. `limit_field` is what the endpoint's chat calls `max_tokens` (OpenAI's own differs).
    `headers` are added to each request.

    One object serves any number of calls at once. Entered as an async context manager, it keeps its connections; used
    without, it opens one for each call.
    """

    DEFAULT_BASE_URL: ClassVar[str] = DEFAULT_BASE_URL
    BASE_URL_VAR: ClassVar[str] = BASE_URL_VAR
    KEY_VAR: ClassVar[str] = "OPENAI_API_KEY"
    PATHS: ClassVar[tuple[str, ...]] = ("/chat/completions", "/responses")

    limit_field: Literal["max_tokens", "max_completion_tokens"] | None = field(default=None, kw_only=True, repr=False)
    speaks: tuple[Speech, ...] | None = field(default=None, kw_only=True, repr=False, validator=_known)

    def _dialect(self, request: Request) -> Dialect:
        own = self._endpoint() == self.DEFAULT_BASE_URL
        spoken = self.speaks or (SPOKEN_BY_OPENAI if own else SPOKEN_ELSEWHERE)
        wanted = spoken[0] if request.native is None else request.native.dialect
        if (wanted if wanted in spoken else spoken[0]) == "responses":
            return DIALECTS["responses"]
        return ChatDialect(limit_field=self.limit_field or ("max_completion_tokens" if own else "max_tokens"))

    def _authorization(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key or NO_KEY}"}
