"""The scripted model: it answers each call as the turn of the scenario says that the harness makes it for."""

from collections import Counter
from contextvars import ContextVar

from attrs import define, field, frozen

from rollout_fsm.messages import AssistantMessage, Request, Response, Sampling, ToolCall, Usage
from rollout_fsm.model import Model
from rollout_fsm.simulation.scenario import Turn
from rollout_fsm.simulation.stage import Stage


@frozen(kw_only=True)
class Asked:
    """The call that is being made: the turn of the script, and its label `segment.turn`."""

    label: str
    turn: Turn


asked: ContextVar[Asked] = ContextVar("asked")
"""Set by the harness in the task that makes the call; the engine's task for the call inherits it."""


@define(eq=False)
class ScriptedModel(Model):
    """The model of a scenario."""

    stage: Stage
    name: str = "scripted"
    _calls: int = field(default=0, init=False)
    _failed: Counter[tuple[int, str]] = field(factory=Counter, init=False)
    """How often the call of a label has failed, in which attempt."""

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        """Answer, or fail, after the turn's delay."""
        label, turn = asked.get().label, asked.get().turn
        number, self._calls = self._calls, self._calls + 1
        with self.stage.on("turn", f"turn:{number}"):
            await self.stage.timeline.spend(turn.delay)
            call = self.stage.attempt, label
            if turn.error is not None and (turn.error_times is None or self._failed[call] < turn.error_times):
                self._failed[call] += 1
                raise turn.error.make()
        return _reply(label, turn)


def _reply(label: str, turn: Turn) -> Response:
    calls = [ToolCall(id=f"call-{label}", name="scripted", arguments="{}")] if turn.tool_call else []
    return Response(
        message=AssistantMessage(f"reply {label}" if turn.text is None else turn.text, tool_calls=calls),
        finish_reason=turn.finish_reason or ("tool_calls" if turn.tool_call else "stop"),
        usage=Usage(prompt_tokens=turn.input_tokens, completion_tokens=turn.output_tokens) if turn.usage else None,
    )
