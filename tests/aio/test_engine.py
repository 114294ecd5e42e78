"""The engine inside asyncio: the verbs, what cancels them, and how the engine ends with everybody who waits."""

import asyncio
import inspect
import types
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from rollout_fsm import (
    Batch,
    ChatHarness,
    Engine,
    IllegalTransition,
    Interaction,
    LocalRuntime,
    Rollout,
    RolloutBusyError,
    ScriptedModel,
    Task,
    Trace,
    aio,
    check_trace,
)
from tests.aio.conftest import Host
from tests.aio.parties import AsyncHarness, AsyncModel, AsyncRuntime, AsyncTask, Observer, Stage, until


def opened(stage: Stage, **settings: Any) -> aio.Engine:
    """An engine whose traces know the stage."""
    return aio.open_engine(gateway=False, observers=[Observer(stage)], **settings)


def agent(stage: Stage) -> dict[str, Any]:
    """An agent of the embedder's, all of it on asyncio; its boxes are kept in `stage.boxes`."""

    def box(name: str) -> AsyncRuntime:
        made = AsyncRuntime(stage, name)
        stage.boxes.append(made)
        return made

    return {"harness": AsyncHarness(stage), "model": AsyncModel(stage), "runtime": box}


def released(stage: Stage) -> bool:
    """Whether every box that was started was stopped, once."""
    return all(box.stopped for box in stage.boxes) and stage.called.count("runtime.stop") == len(stage.boxes)


def test_one_rollout_whole(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            trace = await engine.run(AsyncTask(prompt="2 + 2?"), **agent(stage))
        assert trace.ok
        assert trace.reward == 1.0
        assert trace.stop_condition == "agent_completed"
        assert released(stage)
        assert check_trace(trace) == []

    host(main)


def test_the_verbs_by_hand(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            async with engine.rollout(AsyncTask(), has_user=True, **agent(stage)) as rollout:
                assert rollout.state == "created"
                assert await rollout.open()
                assert rollout.can_go_on
                assert rollout.time_remaining == float("inf")
                assert rollout.activity.waiting_on == "caller"
                assert await rollout.step("hello")
                with pytest.raises(TypeError, match="nothing to say"):
                    await rollout.step()
                rollout.stop("enough")
                assert rollout.state == "stopped"
                with pytest.raises(IllegalTransition):
                    await rollout.open()
            assert rollout.is_final
            assert rollout.ok
            assert rollout.failure is None
            assert rollout.trace.stop_condition == "enough"
            assert await rollout.close() is rollout.trace
            assert "completed" in repr(rollout)
        assert await rollout.close() is rollout.trace  # the engine has ended; it is idempotent all the same
        await rollout.cancel()
        with pytest.raises(aio.EngineClosed, match="the engine is not open"):
            await rollout.open()

    host(main)


def test_an_exception_in_the_block_is_the_owners_failure(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            rollout = engine.rollout(AsyncTask(prompt="x"), **agent(stage))
            with pytest.raises(LookupError):  # noqa: PT012
                async with rollout:
                    await rollout.open()
                    raise LookupError("mine")
            assert rollout.state == "failed"
            assert rollout.failure is not None
            assert rollout.failure.type == "LookupError"
            failed = engine.rollout(AsyncTask(prompt="x"), **agent(stage))
            async with failed:
                await failed.open()
                failed.fail(ValueError("seen elsewhere"))
            assert failed.state == "failed"
        assert released(stage)

    host(main)


def test_an_interaction_and_two_that_talk_to_each_other(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage, max_active_segments=1) as engine:
            async with (
                engine.interaction(AsyncTask(prompt="begin"), **agent(stage)) as one,
                engine.interaction(AsyncTask(), **agent(stage)) as other,
            ):
                said = await one.turn()
                for _ in range(3):
                    heard = await other.turn(said.last_reply)
                    said = await one.turn(heard.last_reply)
                assert not said.terminated
            assert one.trace.stop_condition == other.trace.stop_condition == "user_closed"
            assert one.rollout.ok
            assert one.trace.num_turns == 4
            with pytest.raises(LookupError):
                async with engine.interaction(AsyncTask(), **agent(stage)) as broken:
                    raise LookupError("mine")
            assert broken.rollout.state == "failed"

    host(main)


@pytest.mark.parametrize(
    "where",
    [
        "runtime.start",
        "task.setup",
        "harness.setup",
        "session.open",
        "session.run",
        "model",
        "stop",
        "session.ran",
        "task.finalize",
        "reward",
    ],
)
def test_a_cancel_reaches_whoever_is_running_on_asyncio(host: Host, where: str) -> None:
    async def main() -> None:
        stage = Stage(hang={where})
        async with opened(stage) as engine:
            task = asyncio.create_task(engine.run(AsyncTask(prompt="x"), **agent(stage)))
            await stage.reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert where in stage.cancelled
            assert released(stage)
            stage.hang.clear()
            assert (await engine.run(AsyncTask(prompt="x"), **agent(stage))).ok

    host(main)


@pytest.mark.parametrize("where", ["session.close", "harness.cleanup", "runtime.stop"])
def test_a_cancel_during_a_release_is_held_back_until_that_is_done(host: Host, where: str) -> None:
    async def main() -> None:
        stage = Stage(hang={where})
        async with opened(stage) as engine:
            rollout = engine.rollout(AsyncTask(prompt="x"), **agent(stage))

            async def drive() -> None:
                async with rollout:
                    await rollout.open()
                    await rollout.step()
                    await rollout.close()

            task = asyncio.create_task(drive())
            await stage.reached.wait()
            for _ in range(3):
                task.cancel()
                for _ in range(5):
                    await asyncio.sleep(0)
            assert not task.done()
            stage.go.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert stage.cancelled == []
            assert rollout.state == ("aborted" if where == "session.close" else "completed")
            assert released(stage)
            assert check_trace(rollout.trace) == []

    host(main)


def test_a_timeout_of_asyncio_aborts_the_rollout(host: Host) -> None:
    async def main() -> None:
        stage = Stage(hang={"model"})
        observer = Observer(stage)
        async with aio.open_engine(gateway=False, observers=[observer]) as engine:
            with pytest.raises(TimeoutError):  # noqa: PT012
                async with asyncio.timeout(None) as patience, asyncio.TaskGroup() as group:
                    group.create_task(_ends(patience, stage))
                    await engine.run(AsyncTask(prompt="x"), **agent(stage))
            assert [trace.stop_condition for trace in observer.finished] == ["cancelled"]
            assert stage.cancelled == ["session.run", "model"] or stage.cancelled == ["model"]
        assert released(stage)

    async def _ends(patience: asyncio.Timeout, stage: Stage) -> None:
        await stage.reached.wait()
        patience.reschedule(asyncio.get_running_loop().time())

    host(main)


def test_a_task_group_that_fails_aborts_its_rollouts(host: Host) -> None:
    async def main() -> None:
        stage = Stage(hang={"model"})
        observer = Observer(stage)
        async with aio.open_engine(gateway=False, observers=[observer]) as engine:
            with pytest.raises(ExceptionGroup):  # noqa: PT012
                async with asyncio.TaskGroup() as group:
                    for _ in range(3):
                        group.create_task(engine.run(AsyncTask(prompt="x"), **agent(stage)))
                    await stage.reached.wait()
                    raise ValueError("enough")
            assert [trace.stop_condition for trace in observer.finished] == ["cancelled"] * 3
        assert released(stage)

    host(main)


def test_another_task_may_cancel_a_rollout_whose_hook_hangs(host: Host) -> None:
    async def main() -> None:
        stage = Stage(hang={"reward"})
        async with opened(stage) as engine:
            rollout = engine.rollout(AsyncTask(prompt="x"), **agent(stage))

            async def drive() -> Trace:
                async with rollout:
                    await rollout.open()
                    await rollout.step()
                    return await rollout.close()

            task = asyncio.create_task(drive())
            await stage.reached.wait()
            with pytest.raises(RolloutBusyError):
                await rollout.step("x")
            await rollout.cancel()
            assert rollout.state == "aborted"
            assert await task is rollout.trace
            assert stage.cancelled == ["reward"]

    host(main)


def test_a_block_left_by_a_cancellation_between_calls_aborts(host: Host) -> None:
    async def main() -> None:
        stage, inside = Stage(), asyncio.Event()
        async with opened(stage) as engine:
            rollout = engine.rollout(AsyncTask(prompt="x"), **agent(stage))

            async def drive() -> None:
                async with rollout:
                    await rollout.open()
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(drive())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert rollout.state == "aborted"
            assert rollout.trace.stop_condition == "cancelled"
            assert released(stage)

    host(main)


def test_a_block_that_is_closed_from_outside_is_ended_behind_its_back(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            rollout = engine.rollout(AsyncTask(prompt="x"), **agent(stage))
            interaction = engine.interaction(AsyncTask(prompt="x"), **agent(stage))
            batch = engine.run_all([AsyncTask(prompt="x")], **agent(stage))

            async def drives() -> AsyncIterator[None]:
                async with rollout, interaction, batch:
                    await rollout.open()
                    yield

            driving = drives()
            await anext(driving)
            await driving.aclose()  # type: ignore[attr-defined]
            await until(lambda: rollout.is_final and interaction.rollout.is_final)
            assert rollout.state == interaction.rollout.state == "aborted"

            async def between() -> None:
                async with opened(Stage()):
                    await asyncio.Event().wait()

            coroutine = between()
            task = asyncio.ensure_future(_first_step_of(coroutine))
            await task
            coroutine.close()
        assert released(stage)

    async def _first_step_of(coroutine: Any) -> None:
        waiting = coroutine.send(None)  # it waits for its engine to open
        await until(waiting.done)
        coroutine.send(None)

    host(main)


def test_leaving_the_engine_ends_what_other_tasks_wait_for(host: Host) -> None:
    async def main() -> None:
        stage = Stage(hang={"model"})
        async with opened(stage) as engine:
            run = asyncio.create_task(engine.run(AsyncTask(prompt="x"), **agent(stage)))
            rollout = engine.rollout(AsyncTask(prompt="x"), **agent(stage))
            assert await rollout.open()
            step = asyncio.create_task(rollout.step())
            opening_stage = Stage(hang={"runtime.start"})
            opening = engine.rollout(AsyncTask(prompt="x"), **agent(opening_stage))
            open_ = asyncio.create_task(opening.open())
            await stage.reached.wait()
            await opening_stage.reached.wait()
        assert (await run).stop_condition == "cancelled"
        assert await step is False
        assert await open_ is False
        assert rollout.state == opening.state == "aborted"
        assert released(stage)
        assert released(opening_stage)
        with pytest.raises(RuntimeError, match="the engine is not open"):
            await engine.run(AsyncTask(prompt="x"), **agent(stage))
        with pytest.raises(RuntimeError, match="the engine is not open"):
            engine.rollout(AsyncTask(prompt="x"), **agent(stage))

    host(main)


def test_cancels_while_the_engine_ends_are_held_back_and_then_go_on(host: Host) -> None:
    async def main() -> None:
        stage = Stage(hang={"runtime.stop"})
        left: list[str] = []

        async def program() -> None:
            async with opened(stage) as engine:
                rollout = engine.rollout(AsyncTask(prompt="x"), **agent(stage))
                await rollout.open()
            left.append("not here")

        task = asyncio.create_task(program())
        await stage.reached.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert not task.done()
        stage.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert left == []
        assert released(stage)

    host(main)


class CrashingModel(AsyncModel):
    """Ends the engine when it is entered."""

    async def __aenter__(self) -> "AsyncModel":
        self.stage.called.append("crash")
        raise SystemExit(7)


@pytest.mark.parametrize("inside", ["waits", "calls"])
def test_a_crash_of_the_engine_reaches_every_waiter_and_the_block(host: Host, inside: str) -> None:
    async def main() -> None:
        stage = Stage(hang={"model"})
        waiting: list[asyncio.Task[Trace]] = []
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(SystemExit):  # noqa: PT012
            async with opened(stage) as engine:
                waiting += [asyncio.create_task(engine.run(AsyncTask(prompt="x"), **agent(stage))) for _ in range(20)]
                await until(lambda: stage.called.count("model") == 20)
                crashing = {**agent(stage), "model": CrashingModel(stage)}
                if inside == "waits":
                    waiting.append(asyncio.create_task(_told(engine.run(AsyncTask(prompt="x"), **crashing))))
                    await asyncio.Event().wait()
                await engine.run(AsyncTask(prompt="x"), **crashing)
        assert task.cancelling() == 0
        done, _ = await asyncio.wait(waiting)
        assert [one.result().stop_condition for one in waiting[:20]] == ["cancelled"] * 20
        assert len(done) == len(waiting)
        assert [one.result() for one in waiting[20:]] == [None] * (inside == "waits")
        assert released(stage)

    async def _told(running: Any) -> Any:
        """A SystemExit that left the task would end the loop."""
        with pytest.raises(SystemExit):
            await running

    host(main)


def test_a_crash_of_trio_itself_reaches_every_waiter_and_the_block(host: Host) -> None:
    async def bug() -> None:
        raise ValueError("the bug")

    async def main() -> None:
        stage = Stage(hang={"model"})
        with pytest.raises(aio.EngineCrashed):  # noqa: PT012
            async with opened(stage) as engine:
                waiting = [asyncio.create_task(engine.run(AsyncTask(prompt="x"), **agent(stage))) for _ in range(20)]
                await until(lambda: stage.called.count("model") == 20)
                trio.lowlevel.spawn_system_task(bug)
                await asyncio.Event().wait()
        done, _ = await asyncio.wait(waiting)
        assert {type(one.exception()) for one in done} == {aio.EngineCrashed}
        async with opened(Stage()):
            """The loop can have another one."""

    host(main)


def test_an_engine_that_cannot_be_opened_says_why(host: Host) -> None:
    async def main() -> None:
        async with aio.open_engine() as engine:
            port = int(engine.url.rpartition(":")[2].partition("/")[0])
            with pytest.raises(OSError, match="Address already in use"):
                async with aio.open_engine(port=port):
                    raise AssertionError
            assert engine.lost == ()
            with pytest.raises(RuntimeError, match="entered once"):
                await engine.__aenter__()

    host(main)


@pytest.mark.parametrize("after", range(8))
def test_opening_an_engine_can_be_cancelled_at_any_moment(host: Host, after: int) -> None:
    async def main() -> None:
        async def program() -> None:
            async with aio.open_engine():
                await asyncio.Event().wait()

        task = asyncio.create_task(program())
        for _ in range(after):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with aio.open_engine():
            """The loop can have another one."""

    host(main)


def test_two_engines_of_one_loop_work_side_by_side_and_one_after_the_other(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        for _ in range(2):
            async with opened(stage) as one, opened(stage) as other:
                traces = await asyncio.gather(
                    *(engine.run(AsyncTask(prompt="x"), **agent(stage)) for engine in (one, other, one))
                )
                assert all(trace.ok for trace in traces)
            async with opened(stage) as one:
                async with opened(stage) as other:
                    assert (await other.run(AsyncTask(prompt="x"), **agent(stage))).ok
                assert (await one.run(AsyncTask(prompt="x"), **agent(stage))).ok

    host(main)


def test_a_pause_a_resume_and_a_drain(host: Host) -> None:
    async def main() -> None:
        stage = Stage(hang={"model"})
        async with opened(stage) as engine:
            run = asyncio.create_task(engine.run(AsyncTask(prompt="x"), **agent(stage)))
            await stage.reached.wait()
            quiet = engine.pause()
            waiting = asyncio.create_task(_awaits(quiet))
            await asyncio.sleep(0)
            assert not waiting.done()
            stage.go.set()
            await waiting
            engine.resume()
            assert (await run).ok
            await engine.drain()
            with pytest.raises(RuntimeError, match="drains"):
                await engine.run(AsyncTask(prompt="x"), **agent(stage))

    async def _awaits(quiet: Any) -> None:
        await quiet

    host(main)


def test_a_borrowed_runtime_of_the_embedders_and_one_of_the_packages(host: Host) -> None:
    async def main() -> None:
        stage = Stage()
        async with opened(stage) as engine:
            box = AsyncRuntime(stage)
            trace = await engine.run(
                AsyncTask(prompt="x"), harness=AsyncHarness(stage), model=AsyncModel(stage), runtime=box
            )
            assert trace.ok
            assert "runtime.stop" not in stage.called
            trace = await engine.run(
                AsyncTask(prompt="x"), harness=AsyncHarness(stage), model=AsyncModel(stage), runtime=LocalRuntime
            )
            assert trace.ok

    host(main)


def test_a_finished_trace_is_on_disk_before_run_returns(host: Host, tmp_path: Any) -> None:
    async def main() -> None:
        async with aio.open_engine(gateway=False, output_dir=tmp_path / "run") as engine:
            trace = await engine.run(Task(prompt="x"), harness=ChatHarness(), model=ScriptedModel(["4"]))
            assert trace.id in (tmp_path / "run" / "traces.jsonl").read_text()

    host(main)


def test_on_trio_an_engine_of_asyncios_is_refused_by_name() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"on trio write: async with rollout_fsm\.open_engine"):
            async with aio.open_engine():
                raise AssertionError

    trio.run(main)


def test_an_engine_has_the_same_names_on_asyncio_as_on_trio() -> None:
    def public(kind: type) -> set[str]:
        """Methods and properties, without what rollouts tell the engine."""
        kinds = (types.FunctionType, property)
        return {
            name
            for name in dir(kind)
            if isinstance(inspect.getattr_static(kind, name), kinds) and not name.startswith(("_", "on_"))
        }

    pairs = ((Engine, aio.Engine), (Rollout, aio.Rollout), (Interaction, aio.Interaction), (Batch, aio.Batch))
    for on_trio, on_asyncio in pairs:
        of_the_engine = {"go_on"}  # what a resumed run does with a rollout of its own
        assert public(on_trio) - of_the_engine <= set(dir(on_asyncio))
