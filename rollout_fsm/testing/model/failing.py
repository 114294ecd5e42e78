"""Where there is no answer, there is a `ProviderError`."""

from rollout_fsm.errors import OverlongPromptError, ProviderError
from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import expect, raised_by, said
from rollout_fsm.testing.model.base import ModelChecks, response

__all__ = ["FailureChecks"]

STATUSES = (400, 401, 429, 500, 503)
"""A mistake of the request, of the key, of the pace, and two of the endpoint's own."""


class FailureChecks(ModelChecks):
    """What `respond` raises."""

    @check
    async def test_a_refusal_of_the_endpoint_is_told_with_its_status(self) -> None:
        """Where the endpoint fails, `respond` raises `ProviderError` with the HTTP status (L40)."""
        for status in STATUSES:
            error = await self._failure(status)
            expect(
                error.status_code == status,
                f"the endpoint answered {status}, status_code is {error.status_code!r}",
                "hand the status on: ProviderError(message, status_code=…)",
            )

    @check
    async def test_an_endpoint_that_does_not_answer_has_no_status(self) -> None:
        """Where there was no answer, `ProviderError` has no status (L40)."""
        error = await self._failure(None)
        expect(error.status_code is None, f"status_code is {error.status_code!r}", "leave it None without an answer")

    @check
    async def test_a_prompt_beyond_the_context_window_is_told_as_that(self) -> None:
        """A prompt beyond the model's context window is an `OverlongPromptError`: a budget, not a crash (L21)."""
        if (asked := self.overlong()) is None:
            self.skip("overlong() is not defined: it returns a request beyond the model's context window")
        async with self.model() as model:
            came = await raised_by(response(model, asked))
        change = "raise an OverlongPromptError where the provider says that the prompt is too long"
        expect(isinstance(came, OverlongPromptError), f"respond() {said(came)}", change)

    async def _failure(self, status: int | None) -> ProviderError:
        made = self.make_failing(status)
        if made is None:
            self.skip("make_failing(status) is not defined: it returns a model whose endpoint fails")
        async with self.model(made) as model:
            with self.in_time("the call", "tell a failure at once: retries are the harness's business"):
                came = await raised_by(response(model))
        where = "answers with nothing" if status is None else f"answers with {status}"
        change = "raise a ProviderError"
        expect(isinstance(came, ProviderError), f"respond() of an endpoint that {where} {said(came)}", change)
        assert isinstance(came, ProviderError)
        return came
