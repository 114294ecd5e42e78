"""Leaving the engine ends everything, whatever a party of somebody else's does at that moment (L70, L75, L76)."""

from pathlib import Path
from types import TracebackType

import pytest
import trio

from rollout_fsm import RolloutTimeouts, open_engine
from rollout_fsm.trace import Timing
from tests.world import EchoModel, World, mint, raises, whole


class NeverEntered(EchoModel):
    """A model whose server never answers."""

    async def __aenter__(self) -> "NeverEntered":
        await trio.sleep_forever()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        return None


async def test_a_model_that_is_never_entered_fails_its_rollout_and_holds_up_nobody() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world, model=NeverEntered(world), timeouts=RolloutTimeouts(boot=3))
        assert await rollout.open() is False
        assert "timeouts.boot = 3 s" in rollout.trace.errors[0].message
    assert rollout.state == "aborted"
    assert trio.current_time() == 3


async def test_what_goes_wrong_after_the_first_move_of_a_verb_leaves_no_state_without_its_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        await rollout.open()
        await rollout.step()

        def broken(timing: Timing, name: str, now: float, model_time: float) -> None:
            monkeypatch.undo()
            raise RuntimeError("of the engine")

        monkeypatch.setattr(Timing, "close", broken)
        with pytest.raises(RuntimeError, match="of the engine"):
            await rollout.close()
        assert rollout.state == "completed"
        assert world.unreleased() == []


async def test_an_interrupt_out_of_one_release_cuts_no_other_short() -> None:
    one, other = World(script={"harness.cleanup": raises(KeyboardInterrupt)}), World()

    async def slow() -> None:
        await trio.sleep(5)

    other.script["harness.cleanup"] = slow
    rollouts = []

    async def leave_both_open() -> None:
        async with open_engine(gateway=False) as engine:
            rollouts.extend([mint(engine, one), mint(engine, other)])
            for rollout in rollouts:
                await rollout.open()

    with pytest.raises(KeyboardInterrupt):
        await leave_both_open()
    assert [rollout.state for rollout in rollouts] == ["aborted", "aborted"]
    assert "runtime.stop" in other.ended


async def test_a_crash_of_a_service_comes_out_of_the_block_as_what_it_was() -> None:
    async def crash() -> None:
        raise OSError("the listener broke")

    async def work() -> None:
        async with open_engine(gateway=False) as engine:
            await whole(mint(engine, World()))
            assert engine._nursery is not None
            engine._nursery.start_soon(crash)
            await trio.sleep_forever()

    with pytest.raises(OSError, match="the listener broke"):
        await work()


@pytest.mark.real_time
async def test_an_opening_that_is_cancelled_ends_and_leaves_nothing(tmp_path: Path) -> None:
    with trio.move_on_after(0) as scope:
        async with open_engine(output_dir=tmp_path / "run"):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not (tmp_path / "run" / "traces.jsonl").exists()
    async with open_engine(output_dir=tmp_path / "run"):
        """The folder is free."""
