"""A model that sees which processes there are when it is asked."""

import trio

from rollout_fsm import Request, ScriptedModel
from tests.end_to_end.leftovers import Place


class Watched:
    """A model that tells when it was asked, counts the processes there are then, and answers when it may."""

    def __init__(self, place: Place, *, answers: bool) -> None:
        self.asked = trio.Event()
        self.most = 0
        self._place = place
        self._answers = answers
        self.model = ScriptedModel(self._reply)

    async def _reply(self, request: Request) -> str:
        self.most = max(self.most, len(self._place.processes()))
        self.asked.set()
        if not self._answers:
            await trio.sleep_forever()
        return "yes"

    @property
    def saw_more_than_the_agent(self) -> bool:
        return self.most > 1
