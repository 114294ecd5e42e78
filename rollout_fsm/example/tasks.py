"""The tasks of the example: small questions, each with its answer. `tasks.jsonl` has the rows, this the behaviour."""

import json
import re
from collections.abc import Sequence
from importlib.resources import files

from attrs import frozen

from rollout_fsm.example.calculator import Calculator
from rollout_fsm.hooks import metric, reward, stop
from rollout_fsm.messages import AssistantMessage, Response
from rollout_fsm.rows import structure_task
from rollout_fsm.task import Task
from rollout_fsm.toolset import Toolset
from rollout_fsm.trace import Trace

__all__ = ["Question", "example_tasks"]


@frozen(kw_only=True)
class Question(Task):
    """A question whose answer is known. A reply ends in `Answer: …`; a model that does not know says `I give up`."""

    answer: str

    def toolsets(self) -> Sequence[Toolset]:
        """A calculator."""
        return [Calculator()]

    @stop
    def gave_up(self, response: Response) -> bool:
        """Giving up ends the exchange."""
        return "i give up" in response.message.text.lower()

    @reward
    def correct(self, trace: Trace) -> float:
        """1 for the right answer."""
        return float(_answer(trace.last_reply).casefold() == self.answer.casefold())

    @reward(weight=0.1)
    def well_formed(self, trace: Trace) -> float:
        """1 for an answer in the form that was asked for, right or wrong."""
        return float(bool(_answer(trace.last_reply)))

    @metric
    def tool_calls(self, trace: Trace) -> float:
        """How many tools were called."""
        replies = [node.message for node in trace.nodes if isinstance(node.message, AssistantMessage)]
        return sum(len(reply.tool_calls) for reply in replies)


def _answer(reply: str) -> str:
    found = re.search(r"Answer: *(.+?)\.?\s*$", reply)
    return found[1] if found else ""


def example_tasks() -> list[Question]:
    """The twenty tasks, in order."""
    rows = files(__package__).joinpath("tasks.jsonl").read_text(encoding="utf-8").splitlines()
    return [structure_task(Question, json.loads(row)) for row in rows]
