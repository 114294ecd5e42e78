"""Sessions to put behind a gateway's slot."""

from collections.abc import Iterable, Sequence

import trio

from rollout_fsm.messages import AssistantMessage, Deliver, Delta, Request, Response, Usage

ANSWER = Response(
    message=AssistantMessage("four"),
    usage=Usage(prompt_tokens=10, completion_tokens=2, cached_input_tokens=3),
    id="answer",
    model="upstream",
)


class Counting:
    """Counts the tokens of a prompt."""

    counted: int | BaseException = 41

    async def count_tokens(self, request: Request) -> int:
        await trio.lowlevel.checkpoint()
        if isinstance(self.counted, BaseException):
            raise self.counted
        return self.counted


class Scripted(Counting):
    """Answers each request with the next of its answers, raising exceptions among them; the last one is repeated."""

    def __init__(self, answers: Sequence[Response | BaseException] = (ANSWER,)) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def respond(self, request: Request, *, deliver: Deliver | None = None, keep_answer: bool = False) -> Response:
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Held(Counting):
    """Holds each call until it is released, and says what became of it. Once `answered`, a call whose answer is kept
    goes on though its caller is cancelled, as a session's does."""

    def __init__(self, *, pieces: Sequence[str] = ()) -> None:
        self.pieces = pieces
        """What is told before the call is held."""
        self.answered = False
        self.begun = trio.Event()
        self.release = trio.Event()
        self.cancelled = trio.Event()
        self.committed = trio.Event()
        self.calls = 0
        self.failure: Exception | None = None
        """What a call that is released comes to, instead of an answer."""

    async def respond(self, request: Request, *, deliver: Deliver | None = None, keep_answer: bool = False) -> Response:
        self.calls += 1
        number = self.calls
        for piece in self.pieces if deliver is not None else ():
            assert deliver is not None
            await deliver(Delta(content=piece))
        self.begun.set()
        try:
            await self.release.wait()
        except trio.Cancelled:
            if not (self.answered and keep_answer):
                self.cancelled.set()
                raise
            with trio.CancelScope(shield=True):
                await self.release.wait()
        if self.failure is not None:
            raise self.failure
        self.committed.set()
        return Response(message=AssistantMessage("".join(self.pieces) or f"four, number {number}"), id=f"r{number}")


class Streaming(Counting):
    """Tells one piece each time it is let, then what it comes to."""

    def __init__(self, *pieces: str, end: Exception | None = None) -> None:
        self.pieces = pieces
        self.end = end
        self.told = 0
        self.committed = False
        self.cancelled = trio.Event()
        self._let = trio.Semaphore(0)

    def go_on(self, times: int = 1) -> None:
        """Let it tell so many more pieces; one more than there are lets it end."""
        for _ in range(times):
            self._let.release()

    async def respond(self, request: Request, *, deliver: Deliver | None = None, keep_answer: bool = False) -> Response:
        assert deliver is not None
        try:
            for piece in self.pieces:
                await self._let.acquire()
                await deliver(Delta(content=piece))
                self.told += 1
            await self._let.acquire()
        except trio.Cancelled:
            self.cancelled.set()
            raise
        if self.end is not None:
            raise self.end
        self.committed = True
        return Response(message=AssistantMessage("".join(self.pieces)), id="streamed")


def texts(requests: Iterable[Request]) -> list[str]:
    """The last message of each request."""
    return [request.messages[-1].text for request in requests]
