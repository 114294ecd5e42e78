"""What the tests of a model have in common: how it is made and asked, and what may be declared of it."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import ClassVar

from rollout_fsm.foreign import call, manager
from rollout_fsm.messages import Request, Response, Sampling, UserMessage
from rollout_fsm.model import Model
from rollout_fsm.testing.contract import Contract
from rollout_fsm.testing.expecting import ContractError

__all__ = ["ModelChecks", "request", "response"]


class ModelChecks(Contract):
    """The part that a subclass fills in. What is declared absent is skipped, and says so."""

    takes_tools: ClassVar[bool] = True
    """Whether a conversation may have tools, tool calls and their results."""
    limits_tokens: ClassVar[bool] = True
    """Whether the model keeps to `max_tokens`, and reports usage."""

    def make(self) -> Model:
        """A model, as the `model=` of a run takes it."""
        self.unfinished("make(self)", "your model")

    def make_failing(self, status: int | None) -> Model | None:
        """A model whose endpoint answers with this HTTP status; of None, one that nobody answers for. None returned:
        the tests of that are skipped."""
        return None

    def overlong(self) -> Request | None:
        """A request beyond the model's context window. None: the test of that is skipped."""
        return None

    def answers(self, request: Request, response: Response) -> bool:
        """Whether this can be the answer to that, where it can be told; asked when many calls are made at once."""
        return True

    @asynccontextmanager
    async def model(self, made: Model | None = None) -> AsyncIterator[Model]:
        """A model, entered for a block where it is an async context manager."""
        model = made or self.make()
        async with manager(model) if isinstance(model, AbstractAsyncContextManager) else nullcontext():
            yield model


def request(text: str = "Say hello, in one word.") -> Request:
    """A short question."""
    return Request(messages=(UserMessage(text),))


async def response(model: Model, asked: Request | None = None, sampling: Sampling | None = None) -> Response:
    """What the model answers. Raises a `ContractError` where that is no response."""
    came: object = await call(model.respond, asked or request(), sampling or Sampling())
    if not isinstance(came, Response):
        raise ContractError(f"respond() returned {type(came).__name__}", "return a Response")
    return came
