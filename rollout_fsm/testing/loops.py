"""Running a check where the implementation lives: on trio, or with trio as the guest of an asyncio loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from rollout_fsm.aio.guest import Guest
from rollout_fsm.aio.host import AsyncioHost

__all__ = ["Main", "run_on_asyncio", "run_on_trio"]

Main: TypeAlias = Callable[[], Awaitable[None]]


def run_on_trio(main: Main) -> None:
    """Everything is trio's."""
    trio.run(main)


def run_on_asyncio(main: Main, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
    """The implementation's coroutines run on asyncio, as under `rollout_fsm.aio`, and the check itself on trio."""

    async def host() -> None:
        guest = await Guest.join(AsyncioHost)
        try:
            await guest.call(main)
        finally:
            guest.leave()
            await guest.ended.wait()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(host())
