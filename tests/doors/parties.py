"""The parties of a house: real implementations of every contract, each of whose calls is a door."""

import weakref
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from rollout_fsm import (
    AssistantMessage,
    Exchange,
    Harness,
    HarnessSession,
    Judge,
    Message,
    Model,
    NetworkPolicy,
    ProgramResult,
    Request,
    Response,
    Rollout,
    RolloutTimeouts,
    Runtime,
    Task,
    Toolset,
    Trace,
    Usage,
    UserMessage,
    intercept,
    metric,
    reward,
    stop,
)
from rollout_fsm.activity import Activity
from rollout_fsm.engine import Engine
from rollout_fsm.trace import TransitionRecord
from tests.doors.house import BOUNDS, House

REPLY = Response(message=AssistantMessage("reply"), usage=Usage(prompt_tokens=10, completion_tokens=5))
ACTIVITIES = {
    "entering the harness": "booting",
    "harness setup": "setup",
    "the caller's next call": "waiting",
    "a model call": "stepping",
    "the release of the harness session": "closing",
    "finalize": "finalizing",
    "scoring": "scoring",
    "the release of the harness 'harness'": "releasing",
}
"""The first changes of a rollout's activity that are doors, by what it does then: one in each state."""
CROSSINGS = {"hello": "intercept.prompt", "and": "intercept.user", "go on": "intercept.request"}
"""By the words that are new: which door the request interceptor is."""


class HouseRuntime(Runtime):
    def __init__(self, house: House, name: str) -> None:
        self.house = house
        self._name = name

    @property
    def name(self) -> Any:  # type: ignore[override]
        return self.house.look("runtime.name" if self.house.state == "booting" else "", self._name)

    @property
    def stopped(self) -> Any:
        return self.house.look(f"runtime.stopped@{self.house.state}", False)

    @property
    def lease(self) -> Any:
        return self.house.look("runtime.lease", {"box": self._name})

    def restrict(self, network: NetworkPolicy) -> Any:
        return self.house.look("runtime.restrict", None)

    def start(self) -> Any:
        return self.house.knock("runtime.start")

    def stop(self) -> Any:
        return self.house.knock("runtime.stop")

    def prepare_setup(self) -> Any:
        return self.house.knock("runtime.prepare_setup")

    def prepare_execution(self, routes: Sequence[str]) -> Any:
        return self.house.knock("runtime.prepare_execution")

    @property
    def restricted(self) -> Any:
        return self.house.look("runtime.restricted", False)

    def host_url(self, url: str) -> Any:
        return self.house.look("runtime.host_url" if url == "http://tools" else "", url)

    def alive(self) -> Any:
        return self.house.knock("runtime.alive", True)

    def kill(self) -> Any:
        return self.house.knock("runtime.kill", True)

    async def run(self, *_: object, **__: object) -> ProgramResult:
        self.house.note("runtime.run")
        raise NotImplementedError

    async def read(self, path: str) -> bytes:
        self.house.note("runtime.read")
        raise NotImplementedError

    async def write(self, path: str, data: bytes | str) -> None:
        self.house.note("runtime.write")
        raise NotImplementedError


class FirstTools(Toolset):
    """The task's own tool server: healthy, so that there is one to release before the other."""

    def __init__(self, house: House) -> None:
        self.house = house

    def start(self, context: object) -> Any:
        return self.house.knock("first.start", "http://first")

    def stop(self) -> Any:
        return self.house.knock("first.stop")


class HouseTools(Toolset):
    def __init__(self, house: House) -> None:
        self.house = house

    @property
    def name(self) -> Any:
        return self.house.look("toolset.name", "tools")

    def start(self, context: object) -> Any:
        return self.house.knock("toolset.start", "http://tools")

    def stop(self) -> Any:
        return self.house.knock("toolset.stop")


class HouseSession(HarnessSession):
    def __init__(self, house: House, exchange: Exchange) -> None:
        self.house = house
        self.exchange = exchange

    def run(self, messages: Sequence[Message] | None) -> Any:
        async def turn() -> object:
            said = (*self.exchange.prompt, *(messages or ()), UserMessage("go on"))
            await self.exchange.respond(Request(messages=said))
            if self.house.scene == "the agent fails":
                raise ValueError("the agent's own")
            return ProgramResult(exit_code=3, stderr="no luck") if self.house.scene == "the program fails" else None

        return self.house.knock("session.run", then=turn)

    def close(self) -> Any:
        return self.house.knock("session.close")


class HouseHarness(Harness):
    def __init__(self, house: House) -> None:
        self.house = house

    @property
    def name(self) -> Any:
        return self.house.look("harness.name", "harness")

    def __aenter__(self) -> Any:
        return self.house.knock("harness.enter")

    def __aexit__(self, *_: object) -> Any:
        return self.house.knock("harness.leave")

    def setup(self, runtime: Runtime) -> Any:
        return self.house.knock("harness.setup")

    def open_session(self, exchange: Exchange) -> Any:
        return self.house.knock("harness.open_session", HouseSession(self.house, exchange))

    def cleanup(self, trace: Trace, runtime: Runtime) -> Any:
        return self.house.knock("harness.cleanup")

    @metric
    def its_own(self) -> Any:
        return self.house.knock("metric.harness", 1.0)


class HouseModel(Model):
    def __init__(self, house: House) -> None:
        self.house = house

    @property
    def name(self) -> Any:  # type: ignore[override]
        return self.house.look("model.name", "model")

    def __aenter__(self) -> Any:
        return self.house.knock("model.enter")

    def __aexit__(self, *_: object) -> Any:
        return self.house.knock("model.leave")

    def respond(self, request: Request, sampling: object) -> Any:
        async def answer() -> object:
            await self.house.answer()
            return REPLY

        return self.house.knock("model.respond", REPLY, then=answer)


class HouseJudge(Judge):
    def __init__(self, house: House) -> None:
        self.house = house

    @property
    def name(self) -> Any:  # type: ignore[override]
        return self.house.look("judge.name", "judge")

    @property
    def weight(self) -> Any:  # type: ignore[override]
        return self.house.look("judge.weight", 1.0)

    def score(self, task: Task, trace: Trace) -> Any:
        return self.house.knock("judge.score", 1.0)


class HouseObserver:
    """Told everything; the rollout does not exist yet for whoever is told of its minting."""

    def __init__(self, house: House) -> None:
        self.house = house

    def on_trace(self, trace: Trace) -> Any:
        self.house.trace = trace
        return self.house.look("observer.on_trace", None)

    def on_transition(self, trace: Trace, transition: TransitionRecord) -> Any:
        again = transition.trigger == "segment_ended"
        return self.house.look("" if again else f"observer.on_transition@{transition.target}", None)

    def on_activity(self, trace: Trace, activity: Activity) -> Any:
        door = f"observer.on_activity@{ACTIVITIES.get(activity.doing, '')}"
        return self.house.look("" if door in self.house.looked else door, None)

    def on_finished(self, trace: Trace) -> Any:
        return self.house.look("observer.on_finished", None)


@frozen(kw_only=True, slots=False)
class HouseTask(Task):
    """Every hook and every signal, once. Its house is no part of its row."""

    @property
    def house(self) -> House:
        return vars(self)["_house"]  # type: ignore[no-any-return]

    @property
    def key(self) -> Any:
        return self.house.look("task.key", "key")

    def setup(self, trace: Trace, runtime: Runtime) -> Any:
        return self.house.knock("task.setup")

    def finalize(self, trace: Trace, runtime: Runtime) -> Any:
        return self.house.knock("task.finalize")

    def toolsets(self) -> Any:
        return self.house.look("task.toolsets", [FirstTools(self.house)], noted=True)

    def judges(self) -> Any:
        return self.house.look("task.judges", [HouseJudge(self.house)], noted=True)

    @stop
    def trace_stop(self, trace: Trace) -> Any:
        return self.house.knock("stop.trace", False)

    @stop
    def request_stop(self, request: Request) -> Any:
        return self.house.knock("stop.request", False)

    @stop
    def response_stop(self, response: Response) -> Any:
        return self.house.knock("stop.response", False)

    @intercept
    def request_interceptor(self, request: Request) -> Any:
        return self.house.knock(CROSSINGS[request.messages[-1].text])

    @intercept
    def response_interceptor(self, response: Response) -> Any:
        return self.house.knock("intercept.response")

    @metric
    def measured(self) -> Any:
        return self.house.knock("metric.task", 1.0)

    @reward
    def good(self) -> Any:
        return self.house.knock("reward", 1.0)


def house_task(house: House) -> Task:
    """The task of this house."""
    task = HouseTask(prompt="hello", network=NetworkPolicy())
    vars(task)["_house"] = house
    return task


def mint(engine: Engine, house: House, bounds: RolloutTimeouts = BOUNDS) -> Rollout:
    """The rollout of this house, not opened."""

    def factory(name: str) -> Any:
        return house.look("runtime.factory", HouseRuntime(house, name), noted=True)

    def tools() -> Any:
        return house.look("toolset.factory", HouseTools(house), noted=True)

    rollout = engine.rollout(
        house_task(house),
        harness=HouseHarness(house),
        model=HouseModel(house),
        runtime=HouseRuntime(house, "lent") if house.scene == "borrowed" else factory,
        timeouts=bounds,
        tools=[tools],
        observers=[HouseObserver(house)],
    )
    house.minted = weakref.ref(rollout)
    return rollout


async def live(rollout: Rollout) -> None:
    """What a caller does: open, one segment with words of its own beside the prompt, close."""
    if await rollout.open():
        await rollout.step("and")
    await rollout.close()
