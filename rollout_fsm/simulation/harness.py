"""The scripted harness: it keeps the conversation, and runs one segment of the scenario after the other.

What a segment's program does is in `program`; here is what surrounds it, and what it leaves behind.
"""

from collections.abc import Sequence
from typing import cast

import trio
from attrs import define, field

from rollout_fsm.harness import Exchange, Harness, HarnessSession
from rollout_fsm.messages import Message, SystemMessage
from rollout_fsm.runtime import ProgramResult, Runtime
from rollout_fsm.simulation.box import ScriptedRuntime
from rollout_fsm.simulation.program import Caller, Program
from rollout_fsm.simulation.scenario import Turn
from rollout_fsm.simulation.signals import metrics
from rollout_fsm.simulation.stage import Stage
from rollout_fsm.trace import Trace


@define(eq=False)
class ScriptedSession(HarnessSession):
    """The session of a scenario."""

    exchange: Exchange
    stage: Stage
    _conversation: list[Message] = field(init=False)
    _segments: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        system = self.exchange.system_prompt
        opening = [] if system is None else [SystemMessage(system)]
        self._conversation = [*opening, *self.exchange.prompt]

    async def run(self, messages: Sequence[Message] | None) -> ProgramResult:
        """Play the next segment."""
        number, self._segments = self._segments, self._segments + 1
        script, stage = self.stage.scenario.segment(number), self.stage
        self._conversation += messages or ()
        box = self.exchange.runtime
        if isinstance(box, ScriptedRuntime):
            box.unkillable = script.unkillable
        caller = Caller(self.exchange, stage)
        program = Program(number, script, caller, stage, self._conversation)
        with stage.on("segment", f"segment:{number}"):
            try:
                result = await program.run()
            except trio.Cancelled:
                await stage.timeline.settle()
                if script.unkillable:
                    self._leave_behind(program)
                if not script.ignore_cancel:
                    raise
                result = ProgramResult(exit_code=0)
            except BaseException:
                self._leave_behind(program)
                raise
            else:
                self._leave_behind(program)
            if script.raw_exit_error is not None:
                raise script.raw_exit_error.make()
            return result

    async def close(self) -> None:
        """Close, as the scenario says."""
        await self.stage.play(self.stage.scenario.session_close, "session.close", "session_close")

    def _leave_behind(self, program: Program) -> None:
        """What lives on in the box: a process that makes one more call, if the scenario has one."""
        delay, box = program.script.late_call_after, self.exchange.runtime
        if delay is None or not isinstance(box, ScriptedRuntime):
            return
        process = box.leave_behind(unkillable=program.script.unkillable)
        said = tuple(self._conversation)

        async def call() -> None:
            with process.scope:
                await self.stage.timeline.spend(delay)
                await program.caller.ask(f"{program.number}.late", Turn(), said)

        self.stage.timeline.nursery.start_soon(call)


@define(eq=False)
class ScriptedHarness(Harness):
    """The harness of a scenario."""

    stage: Stage

    async def setup(self, runtime: Runtime) -> None:
        """Set up, as the scenario says."""
        await self.stage.play(self.stage.scenario.harness_setup, "harness.setup", "harness_setup")

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        """Open a session, as the scenario says."""
        await self.stage.play(self.stage.scenario.session_open, "session.open", "session_open")
        return ScriptedSession(exchange, self.stage)

    async def cleanup(self, trace: Trace, runtime: Runtime) -> None:
        """Clean up, as the scenario says."""
        await self.stage.play(self.stage.scenario.cleanup, "harness.cleanup", "cleanup")


def scripted_harness(stage: Stage) -> ScriptedHarness:
    """The harness of a scenario, with its metrics."""
    made = type("ScriptedHarness", (ScriptedHarness,), dict(metrics(stage.scenario.harness_metrics, stage)))
    return cast(ScriptedHarness, made(stage))
