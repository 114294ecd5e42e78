"""A rollout whose only business is to be judged."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field, frozen

from rollout_fsm import ChatHarness, Model, Request, Response, Sampling, ScriptedModel, Task, Trace, open_engine, reward
from rollout_fsm.judge import Judge

REPLY = "It is 4."


@frozen(kw_only=True)
class Sum(Task):
    """A task with a reference answer and a reward of its own."""

    prompt: Any = "2 + 2?"
    answer: Any = 4

    @reward
    def good(self) -> float:
        return 1.0


@define(eq=False, slots=False)
class Asked(Model):
    """A scripted model that keeps what it was asked, and whether it is open."""

    script: Any
    name: str = "asked"
    requests: list[Request] = field(factory=list)
    samplings: list[Sampling] = field(factory=list)
    events: list[str] = field(factory=list)

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        self.events.append("asked")
        self.requests.append(request)
        self.samplings.append(sampling)
        return await ScriptedModel(self.script).respond(request, sampling)

    @property
    def question(self) -> str:
        """The last question, without what was said of it."""
        return self.requests[-1].messages[1].text


class Held(Asked):
    """One that holds something open."""

    async def __aenter__(self) -> "Held":
        self.events.append("entered")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.events.append("left")


def yes(script: Any = ("VERDICT: yes",), **options: Any) -> Judge:
    """A judge that is asked whether the reply is polite."""
    model = script if isinstance(script, Model) else ScriptedModel(script)
    return Judge(**{"model": model, "prompt": "Is this polite? {last_reply}", "name": "polite", **options})


async def judged(
    *judges: Judge,
    task: Task | None = None,
    reply: str | Sequence[str] = REPLY,
    model: Model | None = None,
    **agent: Any,
) -> Trace:
    """The trace of a rollout with these judges."""
    model = model or ScriptedModel([reply] if isinstance(reply, str) else reply)
    async with open_engine(gateway=False) as engine:
        return await engine.run(task or Sum(), harness=ChatHarness(), model=model, judges=judges, **agent)


def with_judges(judges: Callable[[], Sequence[Judge]]) -> Task:
    """A task that builds these judges itself."""

    @frozen(kw_only=True)
    class Own(Sum):
        def judges(self) -> Sequence[Judge]:
            return judges()

    return Own()


def record(trace: Trace, name: str = "polite") -> dict[str, Any]:
    """What a judge left on the trace."""
    records: Any = trace.info["judge"]
    return dict(records[name])


def records(trace: Trace) -> set[str]:
    """The judges that left something on the trace."""
    kept: Any = trace.info["judge"]
    return {*kept}
