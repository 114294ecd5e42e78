"""The contract of a model: a request in, a response out, a `ProviderError` where there is none."""

from abc import ABC, abstractmethod

from rollout_fsm.messages import Request, Response, Sampling


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
