"""A request in, a response out, many at once."""

from functools import partial
from typing import get_args

import trio

from rollout_fsm.engine import open_engine
from rollout_fsm.foreign import call
from rollout_fsm.harnesses.chat import ChatHarness
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    FinishReason,
    Request,
    Response,
    Sampling,
    SystemMessage,
    Tool,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from rollout_fsm.task import Task
from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import expect
from rollout_fsm.testing.model.base import ModelChecks, request, response
from rollout_fsm.testing.sweep import Strike, sweep

__all__ = ["AnswerChecks"]

AT_ONCE = 8
"""How many calls are made at once."""
FEW = 2
"""Tokens that an answer is held to."""
REASONS = get_args(FinishReason)


def conversation() -> Request:
    """A conversation in which a tool was called. Made anew each time, for nobody knows what is done to it."""
    numbers: dict[str, JSON] = {"a": {"type": "number"}, "b": {"type": "number"}}
    add = Tool(name="add", description="Adds two numbers.", parameters={"type": "object", "properties": numbers})
    said = (
        SystemMessage("Answer in one word."),
        UserMessage("How much is 2 + 2?"),
        AssistantMessage(tool_calls=[ToolCall(id="call_1", name="add", arguments='{"a": 2, "b": 2}')]),
        ToolMessage("4", tool_call_id="call_1", name="add"),
    )
    return Request(messages=said, tools=(add,))


class AnswerChecks(ModelChecks):
    """`respond` and `count_tokens`."""

    @check
    async def test_a_model_has_a_name(self) -> None:
        """`name` is what the model is called on a trace (L84)."""
        name = self.make().name
        expect(isinstance(name, str) and name, f"name is {name!r}", "set `name` to a text")

    @check
    async def test_a_request_is_answered_with_a_response(self) -> None:
        """`respond` returns a `Response` with an assistant's message, and says why it ended, if that is known."""
        async with self.model() as model:
            came = await response(model)
        expect(
            isinstance(came.message, AssistantMessage) and isinstance(came.message.content, str | None),
            f"the message of the response is {came.message!r}",
            "return an AssistantMessage, with text or None as its content",
        )
        expect(
            came.finish_reason is None or came.finish_reason in REASONS,
            f"finish_reason is {came.finish_reason!r}",
            f"say one of {', '.join(map(repr, REASONS))}, or None",
        )

    @check
    async def test_a_conversation_with_tools_is_taken(self) -> None:
        """A request has the whole conversation: instructions, tool calls and their results, and the tools."""
        if not self.takes_tools:
            self.skip("takes_tools is False: this model takes no tools")
        async with self.model() as model:
            await response(model, conversation())

    @check
    async def test_a_request_stays_as_it_is(self) -> None:
        """A request is shared by the trace, by hooks and by further calls: nothing in it is changed (L33)."""
        tools = conversation().tools if self.takes_tools else ()
        asked = Request(messages=request().messages, tools=tools, sampling=Sampling(extra={"kit": [1]}))
        before = repr(asked)
        async with self.model() as model:
            await response(model, asked)
        expect(repr(asked) == before, f"the request is now {asked!r}; it was {before}", "change a copy")

    @check
    async def test_usage_is_whole_numbers_or_unknown(self) -> None:
        """`usage` counts the tokens of the call, or is None where the provider reports none: unknown is not zero
        (L15)."""
        async with self.model() as model:
            came = await response(model)
        usage = came.usage
        if usage is None:
            return
        expect(isinstance(usage, Usage), f"usage is of type {type(usage).__name__}", "return a Usage, or None")
        counts = [usage.prompt_tokens, usage.completion_tokens]
        parts = [count for count in (usage.cached_input_tokens, usage.reasoning_tokens) if count is not None]
        expect(
            all(type(count) is int and count >= 0 for count in counts + parts),
            f"usage is {usage!r}",
            "count in whole numbers of at least 0; what is not known of cached and reasoning tokens is None",
        )
        expect(
            usage.total_tokens > 0 and (usage.reasoning_tokens or 0) <= usage.completion_tokens,
            f"usage is {usage!r}",
            "return None for a usage that is not known; reasoning tokens are part of the completion's",
        )

    @check
    async def test_the_samplings_limit_is_kept(self) -> None:
        """`sampling` is final: the run's settings win over those that the request has."""
        if not self.limits_tokens:
            self.skip("limits_tokens is False: this model does not keep to max_tokens, or reports no usage")
        asked = Request(messages=request("Count from 1 to 50.").messages, sampling=Sampling(max_tokens=40))
        async with self.model() as model:
            came = await response(model, asked, Sampling(max_tokens=FEW))
        tokens = None if came.usage is None else came.usage.completion_tokens
        expect(
            tokens is not None and tokens <= FEW,
            f"with max_tokens={FEW}, and 40 in the request, the completion has {tokens} tokens",
            "take what `sampling` says, and nothing of request.sampling; limits_tokens = False declares neither",
        )

    @check
    async def test_many_calls_are_answered_at_once(self) -> None:
        """One object serves many rollouts at once (L42)."""
        asked = [request(f"Repeat this, and nothing else: {number}") for number in range(AT_ONCE)]
        came: dict[int, Response] = {}

        async with self.model() as model:

            async def ask(number: int) -> None:
                came[number] = await response(model, asked[number])

            async with trio.open_nursery() as nursery:
                for number in range(AT_ONCE):
                    nursery.start_soon(ask, number)
        for number, answer in came.items():
            expect(
                self.answers(asked[number], answer),
                f"{asked[number].messages[-1].text!r} was answered with {answer.message.text!r}",
                "keep nothing of one call on the object that another call reads",
            )

    @check
    async def test_a_call_that_is_cancelled_anywhere_harms_no_other(self) -> None:
        """A cancellation may come at any step of `respond`; it passes on, and the model goes on answering (L70)."""
        async with self.model() as model:

            async def life(strike: Strike) -> None:
                await strike.call(model.respond, request(), Sampling())
                with self.in_time("the call after it", "give back what a cancelled call had taken"):
                    await response(model)

            await sweep(life, self.points)

    @check
    async def test_a_model_may_be_entered_again_and_leaves_nothing(self) -> None:
        """What holds something open is an async context manager: an engine enters it once, and another one may do so
        later (L75)."""
        made = self.make()
        with self.nothing_left("let go in __aexit__ of all that __aenter__ and the calls have taken"):
            for _ in range(2):
                async with self.model(made):
                    await response(made)

    @check
    async def test_a_rollout_runs_with_it(self) -> None:
        """An engine runs a rollout with the model, and its turn is on the trace (L81)."""
        async with open_engine(gateway=False) as engine:
            trace = await engine.run(Task(prompt="Say hello."), harness=ChatHarness(), model=self.make())
        expect(
            trace.ok and trace.num_turns == 1,
            f"ok={trace.ok}, turns={trace.num_turns}, errors={[error.message for error in trace.errors]}",
            "see what the other tests of this class say",
        )

    @check
    async def test_tokens_are_counted_or_not_known(self) -> None:
        """`count_tokens` says how many tokens a prompt has, None where the model does not know."""
        async with self.model() as model:
            short, long = [await call(partial(model.count_tokens, request("word " * times))) for times in (1, 100)]
        if short is None and long is None:
            return
        expect(
            type(short) is int and type(long) is int and 0 < short < long,
            f"count_tokens() said {short!r} for a short prompt, and {long!r} for one of a hundred times its length",
            "count the tokens of the whole prompt, or return None",
        )
