"""Where a function lives: the package's on trio, the embedder's on asyncio, unless it says otherwise."""

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any

import pytest

from rollout_fsm import ChatHarness, LocalRuntime, OpenAIModel, ScriptedModel
from rollout_fsm.aio.homes import home
from tests.aio.parties import AsyncRuntime, Stage


class Mixed(LocalRuntime):
    """Half the embedder's."""

    async def write(self, path: str, data: bytes | str) -> None:
        """Its own."""

    @classmethod
    async def make(cls) -> None:
        """Its own."""

    @staticmethod
    async def help() -> None:
        """Its own."""


class OnTrio(Mixed):
    """Says where it runs."""

    runs_on = "trio"


class Tool:
    """Is called."""

    async def __call__(self) -> None:
        """Does nothing."""


class TrioTool(Tool):
    """Is called on trio."""

    runs_on = "trio"


async def function() -> None:
    """The embedder's."""


async def marked() -> None:
    """The embedder's, for trio."""


marked.runs_on = "trio"  # type: ignore[attr-defined]


def timed(inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(inner)
    async def wrapper(*args: object) -> object:
        return await inner(*args)

    return wrapper


class Decorated(LocalRuntime):
    """Its decorator is the embedder's, what that awaits is the package's."""

    run = timed(LocalRuntime.run)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (function, "asyncio"),
        (marked, "trio"),
        (lambda: None, "asyncio"),
        (partial(partial(function)), "asyncio"),
        (partial(marked), "trio"),
        (timed(marked), "trio"),
        (LocalRuntime("x").run, "trio"),
        (Mixed("x").run, "trio"),
        (Mixed("x").write, "asyncio"),
        (Mixed.make, "asyncio"),
        (Mixed("x").help, "asyncio"),
        (Decorated("x").run, "trio"),
        (OnTrio("x").write, "trio"),
        (OnTrio.make, "trio"),
        (partial(OnTrio("x").write, "path"), "trio"),
        (AsyncRuntime(Stage()).start, "asyncio"),
        (AsyncRuntime(Stage()).alive, "trio"),
        (ChatHarness().open_session, "trio"),
        (ScriptedModel(["4"]).respond, "trio"),
        (OpenAIModel("m").__aenter__, "trio"),
        (Tool(), "asyncio"),
        (TrioTool(), "trio"),
        (len, "asyncio"),
        (dict, "asyncio"),
    ],
)
def test_each_function_is_asked(thing: object, expected: str) -> None:
    assert home(thing) == expected


def test_a_home_that_is_none_is_refused() -> None:
    class Lost:
        runs_on = "curio"

        async def go(self) -> None:
            """Nowhere."""

    with pytest.raises(TypeError, match=r"runs_on of .*Lost is 'curio'"):
        home(Lost().go)


def test_a_field_of_an_object_that_is_called_alike_is_none_of_it() -> None:
    class Box(AsyncRuntime):
        def __init__(self) -> None:
            super().__init__(Stage())
            self.runs_on = "gpu-7"

    assert home(Box().start) == "asyncio"
