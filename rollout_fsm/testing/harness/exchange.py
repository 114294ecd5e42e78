"""What a harness makes of an exchange: what reaches the model, how it goes on, and how it ends (L10, L16, L20)."""

import trio

from rollout_fsm.engine import open_engine
from rollout_fsm.limits import RolloutLimits
from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import expect
from rollout_fsm.testing.harness.base import HarnessChecks, fine, summary
from rollout_fsm.testing.harness.party import TOOL, echoed
from rollout_fsm.testing.party import KitModel, Together, calling, failing, words

__all__ = ["ExchangeChecks"]

FIRST, SECOND = "kit-apple", "kit-plum"


class ExchangeChecks(HarnessChecks):
    """Segments of a conversation with a model that says what it is told to."""

    @check
    async def test_a_harness_has_a_name(self) -> None:
        """`name` is what the harness is called on a trace (L84)."""
        name = self.make().name
        expect(isinstance(name, str) and name, f"name is {name!r}", "let `name` be a text")

    @check
    async def test_the_prompt_reaches_the_model(self) -> None:
        """The first segment opens with the exchange's prompt (L10)."""
        model = KitModel(self.reply)
        trace = await self.ran(FIRST, model)
        fine(trace, "run one segment to its end: see what it says of it")
        expect(model.heard, "the model was never asked", "ask it through exchange.respond() or exchange.endpoint")
        heard = words(model.heard[0])
        expect(FIRST in heard, f"the model heard {heard!r}", "begin with exchange.prompt")

    @check
    async def test_the_system_prompt_reaches_the_model(self) -> None:
        """The task's system prompt is the exchange's, and the harness's to use."""
        if not self.uses_system_prompt:
            self.skip("uses_system_prompt is False: this harness has instructions of its own")
        model = KitModel(self.reply)
        await self.ran(FIRST, model)
        heard = words(model.heard[0]) if model.heard else ""
        expect(
            "kit-system" in heard, f"the model heard {heard!r}", "begin with exchange.system_prompt, where there is one"
        )

    @check
    async def test_a_user_may_open_the_conversation(self) -> None:
        """Without a prompt, the first segment opens with the user's messages (L10)."""
        model = KitModel(self.reply)
        async with self.opened(None, model) as rollout:
            await rollout.step(f"Remember the word {SECOND}.")
        heard = words(model.heard[0]) if model.heard else ""
        fine(rollout.trace, "take an exchange whose prompt is empty")
        expect(
            SECOND in heard,
            f"the model heard {heard!r}",
            "give the model the messages that run() is given, also at first",
        )

    @check
    async def test_a_conversation_goes_on_with_the_users_messages(self) -> None:
        """Later segments go on with what the user says, after all that was said before; a harness that cannot go on
        says so by a `HarnessError` (L10)."""
        model = KitModel(self.reply)
        async with self.opened(FIRST, model) as rollout:
            await rollout.step()
            before = len(model.heard)
            await rollout.step(f"Remember the word {SECOND}.")
        trace = rollout.trace
        if not self.resumes:
            failed = trace.errors and trace.errors[0].type == "HarnessError"
            expect(failed, summary(trace), "raise a HarnessError from run() where there is no going on")
            return
        fine(trace, "let run() be called again with what the user says; resumes = False says that it cannot go on")
        heard = words(model.heard[before]) if len(model.heard) > before else ""
        expect(SECOND in heard, f"the model then heard {heard!r}", "add the messages that run() is given")
        expect(FIRST in heard, f"the model then heard {heard!r}", "keep the conversation from segment to segment")

    @check
    async def test_a_refused_turn_ends_the_harness_cleanly(self) -> None:
        """A refused turn is answered with an error; the harness then ends, in time, and raises `TurnRefused` or nothing
        (L16, L18)."""
        trace = await self.ran(FIRST, limits=RolloutLimits(max_turns=0))
        change = "let TurnRefused pass, or return; a program exits when its call is answered with 400"
        expect(trace.stop_condition == "max_turns", summary(trace), "ask the model through the exchange")
        fine(trace, change)
        cut_off = any(taken.trigger == "timed_out" for taken in trace.transitions)
        expect(not cut_off, f"it had not ended {self.patience:g} s after the refusal, and was cut off", change)

    @check
    async def test_a_failure_of_the_model_stays_the_models(self) -> None:
        """A model call that fails for good is the rollout's failure: the harness ends, or lets `ProviderError` pass
        (L20)."""
        model = KitModel(failing)
        trace = await self.ran(FIRST, model)
        error = trace.errors[0] if trace.errors else None
        expect(
            error is not None and (error.type, error.status_code) == ("ProviderError", 400),
            summary(trace),
            "end the segment when the model cannot be asked: let the error pass, or exit",
        )

    @check
    async def test_rollouts_at_once_do_not_mix(self) -> None:
        """One object serves many rollouts at once: what belongs to one lives in its session (L42)."""
        opened, asked = Together(2), Together(2)
        model, harness = KitModel(self.reply, gate=asked.wait), self.make()

        async def run(word: str) -> None:
            async with engine.rollout(self.task(word), **self.settings(model, harness)) as rollout:
                await rollout.open()
                await opened.wait()
                await rollout.step()
            fine(rollout.trace, "serve two rollouts at once")

        async with open_engine() as engine, trio.open_nursery() as nursery:
            nursery.start_soon(run, FIRST)
            nursery.start_soon(run, SECOND)
        self._apart(model)

    @check
    async def test_rollouts_one_after_the_other_do_not_mix(self) -> None:
        """One object serves many rollouts: nothing of one is left for the next (L42)."""
        model, harness = KitModel(self.reply), self.make()
        async with open_engine() as engine:
            for word in (FIRST, SECOND):
                fine(await engine.run(self.task(word), **self.settings(model, harness)), "serve a second rollout")
        self._apart(model)

    @check
    async def test_the_model_is_shown_the_tools_and_its_calls_are_run(self) -> None:
        """The rollout's tool servers are the harness's to use: the model is shown their tools, and told what its calls
        come to (L5)."""
        if not self.uses_tools:
            self.skip("uses_tools is False: this harness uses no tool servers")
        model = KitModel(calling(TOOL, {"word": FIRST}, self.reply))
        trace = await self.ran(FIRST, model, with_tools=True)
        fine(trace, "list the tools of exchange.tool_urls (local_tool_urls in this process), and run the model's calls")
        heard = [words(request) for request in model.heard]
        expect(
            any(echoed(FIRST) in each for each in heard),
            f"the model heard {heard!r}, and never the result of its call",
            "give the model the result of each of its calls; uses_tools = False says that there are none",
        )

    @staticmethod
    def _apart(model: KitModel) -> None:
        heard = list(map(words, model.heard))
        change = "keep a conversation in its session, and nothing of it on the harness"
        for word in (FIRST, SECOND):
            expect(any(word in each for each in heard), f"the model heard {heard!r}, and never of {word}", change)
        for each in heard:
            expect(not (FIRST in each and SECOND in each), f"the model heard of two rollouts in one: {each!r}", change)
