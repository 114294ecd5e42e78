"""The ways to drive a rollout: by its verbs, through the engine, with another task that waits in `close()`."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import trio

from rollout_fsm import Rollout
from rollout_fsm.engine import Engine
from rollout_fsm.errors import leaves
from tests.cancellation.stage import Stage

Way: TypeAlias = Callable[[Stage, Engine], Awaitable[None]]
Verb: TypeAlias = Callable[..., Awaitable[object]]

pause = trio.lowlevel.checkpoint
"""The caller's own business between two calls: a rollout that rests is interrupted as well."""


def verbs(stage: Stage, rollout: Rollout) -> Verb:
    """Calls of this rollout, each with a pause after it."""

    async def call(verb: str, *args: object) -> object:
        returned = await stage.call(rollout, verb, *args)
        await pause()
        return returned

    return call


async def _whole(call: Verb) -> None:
    await pause()
    if await call("open"):
        await call("step")
    await call("close")


async def _three(call: Verb) -> None:
    await pause()
    going = await call("open")
    for text in ("one", "two", "three"):
        if going:
            going = await call("step", text)
    await call("close")


async def whole(stage: Stage, engine: Engine) -> None:
    """`open`, `step`, `close`, in the rollout's own block."""
    rollout = stage.mint(engine)
    with stage.watched():
        async with rollout:
            await _whole(verbs(stage, rollout))


async def three_segments(stage: Stage, engine: Engine) -> None:
    """The same with three messages of a user."""
    rollout = stage.mint(engine)
    with stage.watched():
        async with rollout:
            await _three(verbs(stage, rollout))


async def unmanaged(stage: Stage, engine: Engine) -> None:
    """Without a block of its own: the engine ends what is left (L75), and is watched until it is left itself."""
    stage.schedule.armed = True
    await _whole(verbs(stage, stage.mint(engine)))


async def run(stage: Stage, engine: Engine) -> None:
    """`engine.run`."""
    (task,) = stage.tasks()
    with stage.watched():
        await pause()
        await engine.run(task, **stage.settings())
        await pause()


async def interaction(stage: Stage, engine: Engine) -> None:
    """`engine.interaction`, of three segments."""
    (task,) = stage.tasks()
    with stage.watched():
        async with engine.interaction(task, **stage.settings()) as talk:
            for text in ("one", "two", "three"):
                await pause()
                if (await talk.turn(text)).terminated:
                    break
        await pause()


async def pair(stage: Stage, engine: Engine) -> None:
    """Two of `engine.run` side by side in a nursery of the caller's, which wraps what is raised in it."""
    struck: set[type[BaseException]] = set()
    with stage.watched():
        try:
            async with trio.open_nursery() as nursery:
                for task in stage.tasks(2):
                    nursery.start_soon(partial(engine.run, task, **stage.settings()))
        except BaseExceptionGroup as group:
            struck.update(map(type, leaves(group)))
        if struck - {KeyboardInterrupt, trio.Cancelled}:
            raise AssertionError(f"{struck} came out of two rollouts")
        if KeyboardInterrupt in struck:
            raise KeyboardInterrupt
        await pause()


async def batch(stage: Stage, engine: Engine) -> None:
    """Two rollouts of `engine.run_all`, which end when their block is left."""
    stage.on_leaving = True
    with stage.watched():
        async with engine.run_all(stage.tasks(2), **stage.settings()) as traces:
            try:
                await pause()
                async for _ in traces:
                    await pause()
            finally:
                stage.leaving()
        await pause()


def waited_for(*, gap: bool) -> Way:
    """Another task waits in `close()` from the boot on. With a gap between `step` and `close` it is that task that
    closes, and this one waits for it (L23)."""

    async def way(stage: Stage, engine: Engine) -> None:
        rollout, booting = stage.mint(engine), trio.Event()

        async def boots() -> None:
            booting.set()
            await trio.lowlevel.checkpoint()

        stage.world(0).script["runtime.start"] = boots
        with stage.watched():
            stage.start(lambda: _wait(stage, rollout, booting), "waiter")
            async with rollout:
                try:
                    if await stage.call(rollout, "open"):
                        await stage.call(rollout, "step")
                    if gap:
                        await pause()
                    await stage.call(rollout, "close")
                    await pause()
                finally:
                    stage.leaving()

    return way


async def _wait(stage: Stage, rollout: Rollout, booting: trio.Event) -> None:
    with stage.waiter:
        await booting.wait()
        await stage.call(rollout, "close", by="waiter")
