"""The scripted harness program: one segment of a scenario, with its model calls one after the other or all at once.

It judges nothing: it hands back an exit status, and the engine says what that means.
"""

from collections.abc import Sequence

import trio
from attrs import define, field, frozen

from rollout_fsm.gateway.status import BAD_REQUEST, status_of
from rollout_fsm.harness import Exchange
from rollout_fsm.messages import AssistantMessage, Message, Request, ToolMessage, UserMessage
from rollout_fsm.runtime import ProgramResult
from rollout_fsm.segment_run import SegmentEnded
from rollout_fsm.simulation.model import Asked, asked
from rollout_fsm.simulation.scenario import FOREVER, Segment, Turn
from rollout_fsm.simulation.stage import Stage

OK = 200
REPEATED = 429
SERVER_ERRORS = 500


@frozen
class Answer:
    """What the harness was told: a status, and the reply where that is 200. No status: nothing, it hung up."""

    status: int | None
    reply: AssistantMessage | None = None

    @property
    def refused(self) -> bool:
        """Whether the call was not admitted."""
        return self.status == BAD_REQUEST

    @property
    def worth_repeating(self) -> bool:
        """Whether a client tries such a call again."""
        return self.status is not None and (self.status == REPEATED or self.status >= SERVER_ERRORS)


@define(eq=False)
class Caller:
    """Makes model calls, and keeps what was answered."""

    exchange: Exchange
    stage: Stage

    async def ask(self, label: str, turn: Turn, messages: Sequence[Message]) -> Answer:
        """A call, with its repetitions and its hanging up."""
        answer = await self._once(label, turn, messages)
        for _ in range(turn.retries):
            if not answer.worth_repeating:
                break
            answer = await self._once(label, turn, messages)
        return answer

    async def _once(self, label: str, turn: Turn, messages: Sequence[Message]) -> Answer:
        asked.set(Asked(label=label, turn=turn))
        given_up = trio.CancelScope()
        with given_up, self.stage.timeline.alarm(turn.hang_up, given_up.cancel):
            return await self._answer(label, Request(messages=tuple(messages)))
        return Answer(None)

    async def _answer(self, label: str, request: Request) -> Answer:
        try:
            response = await self.exchange.respond(request)
        except SegmentEnded:
            await trio.sleep_forever()  # cut off with the segment, which is about to be interrupted
            raise
        except Exception as error:  # noqa: BLE001  (whatever a call ends in is told as a status)
            status, reply = status_of(error), None
        else:
            status, reply = OK, response.message
        self.stage.calls.append((label, status))
        return Answer(status, reply)


@define(eq=False)
class Program:
    """One run of the program."""

    number: int
    script: Segment
    caller: Caller
    stage: Stage
    conversation: list[Message]
    """The session's; it goes on in the next segment."""
    _made: int = field(default=0, init=False)
    """How many of the parallel calls were made."""

    async def run(self) -> ProgramResult:
        """Run until the program exits, or is interrupted. Raises `exit_error` instead of exiting."""
        script = self.script
        await self.stage.timeline.spend(script.delay)
        status = await (self._all_at_once() if script.parallel else self._one_by_one())
        if status is None:
            await self.stage.timeline.spend(script.tail_delay)
            if script.exit_error is not None:
                raise script.exit_error.make()
            status = script.exit_code
        return ProgramResult(exit_code=status)

    async def _one_by_one(self) -> int | None:
        """Make the calls in order. Returns an exit status, None if it got through."""
        script = self.script
        for place, turn in enumerate(script.turns):
            if turn.rewind_to is not None:
                del self.conversation[turn.rewind_to :]
            label = f"{self.number}.{place}"
            answer = await self.caller.ask(label, turn, self.conversation)
            if answer.refused and script.ignore_refusal:
                await self.stage.timeline.spend(FOREVER)
            if answer.status != OK:
                if script.on_error != "continue":
                    return 0 if script.on_error == "swallow" else 1
                continue
            self._go_on(label, answer.reply, last=place == len(script.turns) - 1)
        return None

    def _go_on(self, label: str, reply: AssistantMessage | None, *, last: bool) -> None:
        assert reply is not None
        self.conversation.append(reply)
        if reply.tool_calls:
            for call in reply.tool_calls:
                self.conversation.append(ToolMessage(f"result {label}", tool_call_id=call.id))
        elif not last:
            self.conversation.append(UserMessage(f"observation {label}"))

    async def _all_at_once(self) -> int | None:
        """Make all calls on branches of their own. Returns an exit status, None if it got through."""
        script, answers = self.script, list[Answer]()
        left = trio.CancelScope()

        def stays() -> bool:
            return script.ignore_refusal and any(answer.refused for answer in answers)

        def leave() -> None:
            if not stays():
                left.cancel()

        async def call() -> None:
            # The tasks are started in one go and none is of a certain call, so that the calls are made in their order.
            place, self._made = self._made, self._made + 1
            await self.stage.timeline.spend(place * script.stagger)
            answers.append(await self._branch(place, script.turns[place]))

        with left, self.stage.timeline.alarm(script.exit_after, leave):
            async with trio.open_nursery() as nursery:
                for _ in script.turns:
                    nursery.start_soon(call)
            if script.exit_after is None and not stays():
                return self._after(answers)
            await self.stage.timeline.spend(FOREVER)
        return script.exit_code

    async def _branch(self, place: int, turn: Turn) -> Answer:
        label = f"{self.number}.{place}"
        said = self.conversation[: turn.rewind_to]
        return await self.caller.ask(label, turn, [*said, UserMessage(f"subtask {place}")])

    def _after(self, answers: Sequence[Answer]) -> int | None:
        """The exit status once all are answered; None if it goes on to its end."""
        on_error = self.script.on_error
        if on_error == "continue" or all(answer.status == OK for answer in answers):
            return None
        return 1 if on_error is None else 0
