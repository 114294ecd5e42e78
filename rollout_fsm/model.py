"""The contract of a model: a request in, a response out, a `ProviderError` where there is none."""

from abc import ABC, abstractmethod

from rollout_fsm.foreign import call
from rollout_fsm.messages import Deliver, Request, Response, Sampling


class Model(ABC):
    """A language model. One object serves many rollouts at once; what holds something open is an async context manager,
    which the engine enters once."""

    name: str

    @abstractmethod
    async def respond(self, request: Request, sampling: Sampling) -> Response:
        """Answer a conversation. `sampling` is final: the run's settings over those of the request.

        Raises `ProviderError` with the provider's status, `OverlongPromptError` for a prompt beyond the context window
        (L21). Anything else that is raised is attributed to the model all the same (L40). Retries are the harness's
        business.
        """

    async def stream_response(self, request: Request, sampling: Sampling, deliver: Deliver) -> Response:
        """As `respond`, telling pieces of the answer while it is made. Asked where the harness wants a stream; a model
        that cannot tell pieces answers in one. What `deliver` raises passes on."""
        return await call(self.respond, request, sampling)

    async def count_tokens(self, request: Request) -> int | None:
        """How many tokens the request's prompt has; None where the model does not know."""
        return None
