"""Whether a contract's optional step is given, however it is given; and what holds where it is not: nothing is called,
and everything else goes as if it had been (L4, L8, L13, L14a, L50)."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from attrs import frozen

from rollout_fsm import (
    Activity,
    AssistantMessage,
    Exchange,
    Harness,
    HarnessSession,
    Model,
    ProgramResult,
    Request,
    Response,
    RolloutTimeouts,
    Runtime,
    Sampling,
    Task,
    Trace,
    Usage,
    open_engine,
)
from rollout_fsm.foreign import is_given


class Box(Runtime):
    """A box without anything of its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def stopped(self) -> bool:
        return False

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def run(self, argv: Any, **_: Any) -> ProgramResult:
        raise AssertionError("no program was asked for")

    async def read(self, path: str) -> bytes:
        raise AssertionError("no file was asked for")

    async def write(self, path: str, data: bytes | str) -> None:
        raise AssertionError("no file was asked for")


class Yes(Model):
    name = "yes"

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        return Response(message=AssistantMessage("yes"), usage=Usage(prompt_tokens=1, completion_tokens=1))


class OneTurn(HarnessSession):
    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    async def run(self, messages: Any) -> None:
        await self.exchange.respond(Request(messages=self.exchange.prompt))


class Bare(Harness):
    """A harness that has nothing to set up, to clean up or to close."""

    session: Callable[[Exchange], HarnessSession] = OneTurn

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        return type(self).session(exchange)


async def played(task: Task | None = None, harness: Harness | None = None, **settings: Any) -> Trace:
    async with open_engine(gateway=False) as engine:
        given = {"harness": harness or Bare(), "model": Yes(), "runtime": Box, **settings}
        return await engine.run(task or Task(prompt="?"), **given)


# ---- how a step may be given


async def another(self: object, *_: object) -> None:
    """A step of the embedder's."""


class Written(Task):
    async def setup(self, trace: Trace, runtime: Runtime) -> None: ...


class Mixin:
    setup = another


class Mixed(Mixin, Task):
    """It comes from beside the contract."""


class Partial(Task):
    setup = functools.partialmethod(another)


class Broken(Task):
    @property
    def setup(self) -> Callable[..., Awaitable[None]]:  # type: ignore[override]
        raise AssertionError("it was looked up")


class Unhashable(Task):
    class _Step:
        __hash__ = None  # type: ignore[assignment]

        async def __call__(self, *_: object) -> None: ...

    setup = _Step()  # type: ignore[assignment]


class MadeUp(Task):
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Inherited(Written):
    """It is its base's."""


@frozen(kw_only=True)
class Row(Task):
    number: int = 1


class Plain(Task):
    """It has a dict, with nothing in it."""


@pytest.mark.parametrize("kind", [Written, Mixed, Partial, Broken, Unhashable, MadeUp, Inherited])
def test_a_step_is_given_however_its_class_has_it(kind: type[Task]) -> None:
    assert is_given(kind(prompt="?"), "setup")


@pytest.mark.parametrize("kind", [Task, Row, Plain])
def test_the_contracts_own_step_is_none(kind: type[Task]) -> None:
    assert not is_given(kind(prompt="?"), "setup")
    assert not is_given(kind(prompt="?"), "finalize")


def test_a_step_is_given_from_the_moment_in_which_an_object_has_one_of_its_own() -> None:
    harness = Bare()
    assert not is_given(harness, "cleanup")
    harness.cleanup = another  # type: ignore[method-assign, assignment]
    assert is_given(harness, "cleanup")


@pytest.mark.parametrize("wraps", [False, True], ids=["replaced", "wrapped"])
def test_a_contract_whose_step_is_replaced_gives_it_to_all(wraps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = functools.wraps(Task.setup)(another) if wraps else another
    monkeypatch.setattr(Task, "setup", traced)
    assert is_given(Task(prompt="?"), "setup")


def test_what_is_no_step_of_a_contract_counts_as_given() -> None:
    assert is_given(object(), "setup")


# ---- what holds where it is given late, or not at all


async def test_a_close_that_a_session_is_given_while_it_runs_is_called() -> None:
    closed: list[str] = []

    class Late(OneTurn):
        async def run(self, messages: Any) -> None:
            async def close() -> None:
                closed.append("session")

            await super().run(messages)
            self.close = close  # type: ignore[method-assign]

    class Its(Bare):
        session = Late

    assert (await played(harness=Its())).ok
    assert closed == ["session"]


async def test_a_cleanup_that_a_harness_is_given_by_its_own_setup_is_called() -> None:
    undone: list[str] = []

    class Late(Bare):
        async def setup(self, runtime: Runtime) -> None:
            async def cleanup(trace: Trace, runtime: Runtime) -> None:
                undone.append(runtime.name)

            self.cleanup = cleanup  # type: ignore[method-assign]

    trace = await played(harness=Late())
    assert undone == [trace.id]


async def test_with_no_time_for_setup_nothing_after_a_task_without_one_is_asked() -> None:
    asked: list[str] = []

    class Its(Bare):
        async def setup(self, runtime: Runtime) -> None:
            asked.append("harness setup")

    trace = await played(harness=Its(), timeouts=RolloutTimeouts(setup=0))
    (error,) = trace.errors
    assert (error.type, asked) == ("TaskError", [])
    assert error.message.endswith("harness setup had not started)")


async def test_with_no_time_to_finalize_a_task_without_a_finalize_times_out_too() -> None:
    trace = await played(timeouts=RolloutTimeouts(finalize=0))
    (error,) = trace.errors
    assert error.message.startswith("finalize timed out")


async def test_a_finalize_that_cannot_be_looked_up_is_the_tasks_failure() -> None:
    class Its(Task):
        @property
        def finalize(self) -> Callable[..., Awaitable[None]]:  # type: ignore[override]
            raise ValueError("no such thing")

    trace = await played(Its(prompt="?"))
    (error,) = trace.errors
    assert (error.type, error.message, trace.transitions[-1].target) == (
        "TaskError",
        "finalize failed: ValueError: no such thing",
        "failed",
    )


@pytest.mark.parametrize("means", ["cancellation", "interrupt"])
@pytest.mark.parametrize(
    ("doing", "never"),
    [
        ("task setup", "tool servers"),
        ("harness setup", "tool servers"),
        ("applying the network policy", "session"),
        ("segment", "harness"),
    ],
)
async def test_who_interrupts_when_told_of_a_step_is_heard_before_the_next_though_the_step_is_none(
    means: str, doing: str, never: str
) -> None:
    asked: list[str] = []

    class Its(Task):
        def toolsets(self) -> tuple[()]:
            asked.append("tool servers")
            return ()

    class Noted(OneTurn):
        async def run(self, messages: Any) -> None:
            asked.append("harness")
            await super().run(messages)

    class Opens(Bare):
        session = Noted

        async def open_session(self, exchange: Exchange) -> HarnessSession:
            asked.append("session")
            return await super().open_session(exchange)

    class Interrupts:
        def on_activity(self, trace: Trace, activity: Activity) -> None:
            if activity.doing == doing:
                if means == "interrupt":
                    raise KeyboardInterrupt
                scope.cancel()

    ended: list[BaseException] = []
    with trio.CancelScope() as scope:
        try:
            await played(Its(prompt="?"), Opens(), observers=[Interrupts()])
        except KeyboardInterrupt as interrupt:
            ended.append(interrupt)
    assert scope.cancelled_caught == (means == "cancellation")
    assert len(ended) == (means == "interrupt")
    assert never not in asked
