"""What crosses the border between trio and asyncio can be called on the other side, and comes back as itself."""

import asyncio
from collections.abc import Awaitable
from typing import cast

import pytest
import trio

from rollout_fsm import (
    Exchange,
    LocalRuntime,
    Request,
    Response,
    RolloutContext,
    Runtime,
    Task,
    Trace,
)
from rollout_fsm.aio import on_trio as call_on_trio
from rollout_fsm.aio.border import Border, unwrapped
from rollout_fsm.aio.homes import home
from tests.aio.parties import AsyncRuntime, Stage, asked, reply

BOTH = ("trio", "asyncio")


def told(awaited: list[str]) -> Border:
    """A border whose crossings are only noted."""

    async def on_trio(awaitable: Awaitable[object]) -> object:
        awaited.append("trio")
        return await awaitable

    async def on_asyncio(awaitable: Awaitable[object], function: object) -> object:
        awaited.append("asyncio")
        return await awaitable

    return Border(on_trio, on_asyncio)


class Noted(LocalRuntime):
    """On trio but for reading; nothing of it waits for anything."""

    host = "here"

    async def read(self, path: str) -> bytes:
        return path.encode()


class TrioBox(AsyncRuntime):
    """The same class, said to live on trio."""

    runs_on = "trio"

    async def start(self) -> None:
        """Nothing."""

    async def kill(self) -> bool:
        return True

    async def clone(self) -> "TrioBox":
        return self

    def later(self) -> Awaitable[str]:
        async def value() -> str:
            return "later"

        return value()


def driven(awaitable: object) -> object:
    """Run a coroutine that waits for nothing."""
    coroutine = cast("Awaitable[object]", awaitable).__await__()
    try:
        next(coroutine)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waited")


def test_a_runtime_on_trio_is_called_there_from_asyncio() -> None:
    awaited: list[str] = []
    border, box = told(awaited), TrioBox(Stage(), "seven")
    seen = border.to("asyncio", box)
    assert isinstance(seen, Runtime)
    assert isinstance(seen, TrioBox)
    assert (seen.name, seen.stopped, seen.host_url("u")) == ("seven", False, "u")
    assert seen == box
    assert hash(seen) == hash(box)
    assert repr(seen) == repr(box)
    assert driven(seen.kill()) is True
    assert driven(seen.later()) == "later"
    assert awaited == ["trio", "trio"]
    assert unwrapped(driven(seen.clone())) is box
    seen.name = "eight"
    assert box.name == "eight"
    assert border.to("trio", seen) is box
    assert border.to("asyncio", box) is seen
    assert border.to("asyncio", seen) is seen


def test_a_runtime_with_methods_on_both_sides_goes_method_by_method() -> None:
    awaited: list[str] = []
    border, box = told(awaited), Noted("x")
    from_asyncio, from_trio = border.to("asyncio", box), border.to("trio", box)
    assert driven(from_asyncio.read("a")) == b"a"
    assert awaited == []
    assert driven(from_trio.read("a")) == b"a"
    assert awaited == ["asyncio"]
    assert driven(from_asyncio.prepare_setup()) is None
    assert awaited == ["asyncio", "trio"]
    assert driven(from_trio.prepare_setup()) is None
    assert awaited == ["asyncio", "trio"]


def test_what_is_all_of_one_side_crosses_as_it_is() -> None:
    border = told([])
    local = LocalRuntime("x")
    assert border.to("trio", local) is local
    assert border.to("trio", "text") == "text"
    task = Task(prompt="x")
    assert border.to("asyncio", task) is task


def test_what_a_session_and_a_tool_server_are_given_is_made_callable_too() -> None:
    awaited: list[str] = []
    border, box = told(awaited), TrioBox(Stage())

    async def respond(request: Request, *, deliver: object) -> Response:
        return reply("said")

    trace = Trace.__new__(Trace)
    exchange = Exchange(
        prompt=(),
        system_prompt=None,
        runtime=box,
        endpoint="",
        secret="",
        tool_urls={},
        trace=trace,
        respond=respond,
        remaining=lambda: 1.5,
    )
    assert driven(border.to("asyncio", exchange).respond(asked("x"))) == reply("said")
    assert awaited == []  # the function is the embedder's
    assert driven(border.to("trio", exchange).respond(asked("x"))) == reply("said")
    assert awaited == ["asyncio"]
    seen = border.to("asyncio", exchange)
    assert seen.time_remaining == 1.5
    assert driven(seen.runtime.kill()) is True
    assert awaited == ["asyncio", "trio"]
    back = border.to("trio", seen)
    assert back.runtime is box
    assert home(seen._hold) == "asyncio"
    assert back._hold is exchange._hold
    context = RolloutContext(task=Task(prompt="x"), trace=trace, runtime=box)
    assert driven(border.to("asyncio", context).runtime.kill()) is True
    assert awaited == ["asyncio", "trio", "trio"]


def test_a_function_that_was_made_callable_goes_back_as_itself() -> None:
    border = told([])
    crossing = border.callable_on("asyncio", LocalRuntime("x").run)
    assert home(crossing) == "asyncio"
    assert crossing.__name__ == "run"
    assert border.callable_on("trio", crossing) == crossing._rollout_fsm_carries  # type: ignore[attr-defined]


def test_on_trio_is_refused_where_no_engine_calls() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="nothing of that kind calls here"):
            await call_on_trio(trio.sleep, 0)

    asyncio.run(main())
