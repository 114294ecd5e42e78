"""An answer that is told while it is made."""

from collections import defaultdict

import trio
from attrs import define, field

from rollout_fsm.foreign import call
from rollout_fsm.messages import Deliver, Delivery, Delta, Response, Sampling
from rollout_fsm.model import Model
from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import ContractError, expect, raised_by, said
from rollout_fsm.testing.model.base import ModelChecks, request, response
from rollout_fsm.testing.sweep import Strike, sweep

__all__ = ["StreamChecks"]


class _NotWanted(Exception):  # noqa: N818  (a decision of who listens)
    """Whoever took the pieces takes no more."""


@define(eq=False)
class _Told:
    """The pieces of an answer, put together."""

    content: str = ""
    reasoning: str = ""
    calls: dict[int, list[str]] = field(factory=lambda: defaultdict(lambda: ["", "", ""]))
    taking: bool = False
    overtaken: bool = False
    """Whether a piece came before the one before it was taken."""

    async def take(self, delta: Delta) -> None:
        self.overtaken = self.overtaken or self.taking
        self.taking = True
        await trio.lowlevel.checkpoint()
        self.taking = False
        self.content += delta.content
        self.reasoning += delta.reasoning
        for piece in delta.tool_calls:
            known = self.calls[piece.index]
            known[:] = [known[0] or piece.id, known[1] or piece.name, known[2] + piece.arguments]


class StreamChecks(ModelChecks):
    """`stream_response`; a model that tells no pieces keeps the contract, too."""

    @check
    async def test_the_pieces_of_a_stream_add_up_to_its_response(self) -> None:
        """`stream_response` returns the whole response; the pieces that it told of a text, of hidden reasoning and of
        tool calls add up to those of the response."""
        told = _Told()
        async with self.model() as model:
            message = (await _streamed(model, told.take)).message
        calls = [[each.id, each.name, each.arguments] for each in message.tool_calls]
        pairs = {
            "content": (told.content, message.text),
            "reasoning_content": (told.reasoning, message.reasoning_content or ""),
            "tool_calls": ([told.calls[index] for index in sorted(told.calls)], calls),
        }
        for what, (pieces, whole) in pairs.items():
            expect(
                not pieces or pieces == whole,
                f"the pieces of {what} add up to {pieces!r}, the response has {whole!r}",
                "tell each piece once, in order, and return all of them",
            )

    @check
    async def test_a_piece_is_told_when_the_one_before_is_taken(self) -> None:
        """`deliver` is awaited: it returns when there is room for more."""
        told = _Told()
        async with self.model() as model:
            await _streamed(model, told.take)
        expect(not told.overtaken, "deliver() was called again before it had returned", "await each call of deliver()")

    @check
    async def test_what_the_listener_raises_passes_on(self) -> None:
        """What `deliver` raises passes on: whoever listened is gone (L33)."""
        took: list[Delta] = []

        async def refuse(delta: Delta) -> None:
            took.append(delta)
            await trio.lowlevel.checkpoint()
            raise _NotWanted

        async with self.model() as model:
            came = await raised_by(_streamed(model, refuse))
            if not took:
                return
            expect(isinstance(came, _NotWanted), f"stream_response() {said(came)}", "let pass what deliver() raises")
            with self.in_time("the call after it", "give back what the call had taken"):
                await response(model)

    @check
    async def test_a_stream_that_is_cancelled_anywhere_harms_no_other(self) -> None:
        """A cancellation may come at any step of `stream_response`; it passes on, and the model goes on answering
        (L70)."""
        async with self.model() as model:

            async def life(strike: Strike) -> None:
                await strike.call(model.stream_response, request(), Sampling(), Delivery(_Told().take))
                with self.in_time("the call after it", "give back what a cancelled call had taken"):
                    await response(model)

            await sweep(life, self.points)


async def _streamed(model: Model, deliver: Deliver) -> Response:
    came: object = await call(model.stream_response, request(), Sampling(), Delivery(deliver))
    if not isinstance(came, Response):
        raise ContractError(f"stream_response() returned {type(came).__name__}", "return the whole Response")
    return came
