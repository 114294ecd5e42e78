"""Foreign code is called, and what it raises is a value: everything but the closing of the very task."""

import asyncio

import pytest
import trio

from rollout_fsm.attempt import attempt


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit(), asyncio.CancelledError()]
)
async def test_whatever_is_raised_is_returned(error: BaseException) -> None:
    async def foreign() -> None:
        raise error

    assert (await attempt(foreign)).error is error


async def test_a_value_is_returned() -> None:
    async def foreign(one: int, *, two: int) -> int:
        return one + two

    assert (await attempt(foreign, 1, two=2)).value == 3


async def test_a_cancellation_is_returned_and_comes_again() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        assert isinstance((await attempt(trio.sleep, 1)).error, trio.Cancelled)
        with pytest.raises(trio.Cancelled):
            await trio.lowlevel.checkpoint()


def test_a_task_that_is_closed_is_closed() -> None:
    calls = []

    async def foreign() -> None:
        try:
            await trio.sleep_forever()
        finally:
            calls.append("left")

    async def body() -> None:
        await attempt(foreign)
        calls.append("went on")

    async def main() -> None:
        coroutine = body()
        coroutine.send(None)
        box.append(coroutine)

    box: list[object] = []
    trio.run(main)
    box[0].close()  # type: ignore[attr-defined]
    assert calls == ["left"]
