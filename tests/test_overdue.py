"""Code that ignores its bound is named in the log when that passes, once, and holds up nobody else (L74)."""

import logging
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from rollout_fsm import Rollout, RolloutTimeouts, TurnRefused, open_engine
from tests.world import Act, World, mint, whole


def selfish(seconds: float) -> Act:
    async def act() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)

    return act


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("runtime.start", "starting the runtime"),
        ("task.setup", "task setup"),
        ("segment", "segment"),
        ("finalize", "finalize"),
        ("harness.cleanup", "the release of the harness"),
        ("runtime.stop", "the release of the runtime"),
    ],
)
async def test_who_runs_past_a_bound_is_named_once(event: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    bounds = RolloutTimeouts(boot=5, setup=5, agent=5, finalize=5, scoring=5, close=5, release=5)
    async with open_engine(gateway=False) as engine:
        with caplog.at_level(logging.WARNING, "rollout_fsm"):
            await whole(mint(engine, World(script={event: selfish(500)}), timeouts=bounds))
    named = [record.message for record in caplog.records if "ignores that its bound passed" in record.message]
    assert len(named) == 1
    assert said in named[0]


async def test_a_model_call_that_outlives_its_segment_is_named(caplog: pytest.LogCaptureFixture) -> None:
    world = World(script={"model": selfish(500)})

    async def drive(rollout: Rollout) -> None:
        async with trio.open_nursery() as elsewhere:

            async def leaves_a_call_in_flight() -> None:
                session = world.session
                assert session is not None
                elsewhere.start_soon(refused, session.turn)
                await trio.sleep(1)

            world.script["segment"] = leaves_a_call_in_flight
            await whole(rollout)

    async with open_engine(gateway=False) as engine:
        with caplog.at_level(logging.WARNING, "rollout_fsm"):
            await drive(rollout := mint(engine, world))
    named = [record.message for record in caplog.records if "ignores that its bound passed" in record.message]
    assert [message.partition(": ")[2] for message in named] == [
        "a model call in flight when its segment ended ignores that its bound passed 1 s ago; "
        "it holds up its own rollout"
    ]
    assert rollout.trace.stop_condition == "no_progress"


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_model_call_that_ends_when_its_segment_is_over_is_not_named(
    cancelled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(script={"model": trio.sleep_forever})

    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        with caplog.at_level(logging.WARNING, "rollout_fsm"), trio.CancelScope() as scope:
            async with trio.open_nursery() as elsewhere:

                async def leaves_a_call_in_flight() -> None:
                    assert world.session is not None
                    elsewhere.start_soon(refused, world.session.turn)
                    await trio.testing.wait_all_tasks_blocked()
                    if cancelled:
                        scope.cancel()

                world.script["segment"] = leaves_a_call_in_flight
                await whole(rollout)
        await trio.sleep(3_000)
        assert scope.cancelled_caught == cancelled
        assert not rollout.plan.services.overdue.watched
    assert "ignores" not in caplog.text


async def refused(turn: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(TurnRefused):
        await turn()


async def test_who_ends_in_time_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    async def slow() -> None:
        await trio.sleep(4)

    bounds = RolloutTimeouts(boot=5, setup=5, agent=5, finalize=5, scoring=5, close=5, release=5)
    world = World(script=dict.fromkeys(("runtime.start", "task.setup", "finalize", "runtime.stop"), slow))
    async with open_engine(gateway=False) as engine:
        with caplog.at_level(logging.WARNING, "rollout_fsm"):
            await whole(mint(engine, world, timeouts=bounds))
        await trio.sleep(3_000)
    assert "ignores" not in caplog.text


async def test_a_selfish_rollout_holds_up_no_other() -> None:
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(whole, mint(engine, World(script={"finalize": selfish(1_000)})))
        await trio.sleep(1)
        other = mint(engine, World())
        await whole(other)
        assert other.ok
        assert trio.current_time() < 10
