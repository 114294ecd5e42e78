"""Sessions to put behind a gateway's slot."""

from collections.abc import Iterable, Sequence

import trio

from rollout_fsm.messages import AssistantMessage, Request, Response, Usage

ANSWER = Response(
    message=AssistantMessage("four"),
    usage=Usage(prompt_tokens=10, completion_tokens=2, cached_input_tokens=3),
    id="answer",
    model="upstream",
)


class Scripted:
    """Answers each request with the next of its answers, raising exceptions among them; the last one is repeated."""

    def __init__(self, answers: Sequence[Response | BaseException] = (ANSWER,)) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def respond(self, request: Request) -> Response:
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Held:
    """Holds each call until it is released, and says what became of it."""

    def __init__(self, *, shielded: bool = False) -> None:
        self.shielded = shielded
        self.begun = trio.Event()
        self.release = trio.Event()
        self.cancelled = trio.Event()
        self.committed = trio.Event()
        self.calls = 0

    async def respond(self, request: Request) -> Response:
        self.calls += 1
        self.begun.set()
        try:
            with trio.CancelScope(shield=self.shielded):
                await self.release.wait()
        except trio.Cancelled:
            self.cancelled.set()
            raise
        self.committed.set()
        return ANSWER


def texts(requests: Iterable[Request]) -> list[str]:
    """The last message of each request."""
    return [request.messages[-1].text for request in requests]
