"""The engine's own life: what it holds, enters, refuses, tells and ends (L42, L75), and one rollout, whole."""

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rollout_fsm import (
    GroupInfo,
    Judge,
    Rollout,
    RolloutLimits,
    RolloutPolicy,
    RolloutTimeouts,
    Sampling,
    Task,
    Trace,
    check_trace,
    open_engine,
    read_traces,
)
from rollout_fsm.engine import Engine
from rollout_fsm.keeping import Keeper
from tests.world import (
    EchoModel,
    ScriptedHarness,
    ScriptedRuntime,
    World,
    error_types,
    mint,
    raises,
    sleeps,
    whole,
    world_task,
)


class MineError(Exception):
    """The body's own."""


def traces_in(folder: Path) -> list[Trace]:
    """The traces of a run's folder, every one of which can be read."""

    def unreadable(number: int, fault: Exception) -> None:
        raise AssertionError(f"line {number}: {fault}")

    return list(read_traces(folder / "traces.jsonl", on_fault=unreadable))


def agent(world: World, **given: Any) -> dict[str, Any]:
    """The settings of a rollout in this world."""
    defaults: dict[str, Any] = {
        "harness": ScriptedHarness(world),
        "model": EchoModel(world),
        "runtime": lambda name: ScriptedRuntime(world, name),
    }
    return {**defaults, **given}


# ---- one rollout, whole


async def test_run_returns_the_finished_trace() -> None:
    world = World()
    async with open_engine(gateway=False, run_name="tonight") as engine:
        trace = await engine.run(world_task(world), **agent(world, id="abc", group=GroupInfo(id="g", index=3)))
    assert (trace.id, trace.ok, trace.reward, trace.num_turns) == ("abc", True, 1.0, 1)
    assert trace.group == GroupInfo(id="g", index=3)
    assert trace.run is not None
    assert trace.run.name == "tonight"
    assert check_trace(trace) == []


@pytest.mark.parametrize("event", ["runtime.start", "model", "score.good"])
async def test_run_returns_a_failed_trace_too(event: str) -> None:
    world = World(script={event: raises(ValueError)})
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(world_task(world), **agent(world))
    assert (trace.ok, trace.is_completed, len(trace.errors)) == (False, True, 1)


async def test_run_raises_a_cancellation_after_the_release() -> None:
    world = World(script={"model": trio.sleep_forever})
    async with open_engine(gateway=False) as engine:
        with trio.move_on_after(1) as scope:
            await engine.run(world_task(world), **agent(world))
        assert scope.cancelled_caught
        assert world.unreleased() == []


async def test_ids_are_distinct_and_uuid4_unless_given() -> None:
    async with open_engine(gateway=False) as engine:
        made = {mint(engine, World()).trace.id for _ in range(3)}
    assert len(made) == 3
    assert all(len(each) == 32 and each[12] == "4" for each in made)


# ---- leaving it


@pytest.mark.parametrize("error", [MineError("oops"), KeyboardInterrupt(), SystemExit(3)])
async def test_an_exception_of_the_body_comes_out_bare(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        async with open_engine(gateway=False):
            raise error
    assert raised.value is error


async def test_an_exception_of_the_body_comes_out_bare_with_rollouts_open_and_batches_running() -> None:
    world = World(script={"model": trio.sleep_forever})
    with pytest.raises(MineError):  # noqa: PT012
        async with open_engine(gateway=False) as engine:
            rollout = mint(engine, world)
            await rollout.open()
            async with engine.run_all([world_task(world)] * 3, **agent(world)):
                await trio.testing.wait_all_tasks_blocked()
                raise MineError
    assert rollout.state == "aborted"
    assert world.began.count("runtime.start") == world.began.count("runtime.stop") == 4


async def test_a_group_of_the_bodys_own_comes_out_as_it_is() -> None:
    group = ExceptionGroup("two", [MineError(), ValueError()])
    with pytest.raises(ExceptionGroup) as raised:
        async with open_engine(gateway=False):
            raise group
    assert raised.value is group


async def test_a_cancelled_engine_is_left_with_everything_released() -> None:
    world = World(script={"harness.cleanup": sleeps(2)})
    with trio.move_on_after(5) as scope:
        async with open_engine(gateway=False) as engine:
            rollout = mint(engine, world)
            await rollout.open()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert rollout.state == "aborted"
    assert world.unreleased() == []


@pytest.mark.parametrize("drive", ["minted", "open", "step", "stop", "fail", "close"])
async def test_rollouts_left_open_are_aborted_and_released(drive: str) -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        if drive != "minted":
            await rollout.open()
        if drive in ("step", "close"):
            await rollout.step()
        if drive == "stop":
            rollout.stop("enough")
        if drive == "fail":
            rollout.fail(MineError())
        if drive == "close":
            await rollout.close()
    assert rollout.state == ("completed" if drive == "close" else "aborted")
    assert rollout.trace.sealed
    assert world.unreleased() == []
    assert check_trace(rollout.trace) == []


async def test_a_verb_that_is_pending_when_the_engine_is_left_returns() -> None:
    world, results = World(script={"model": trio.sleep_forever}), []

    async def step(rollout: Rollout) -> None:
        results.append(await rollout.step())

    async with trio.open_nursery() as nursery:
        async with open_engine(gateway=False) as engine:
            rollout = mint(engine, world)
            await rollout.open()
            nursery.start_soon(step, rollout)
            await trio.testing.wait_all_tasks_blocked()
        assert (rollout.state, rollout.is_final) == ("aborted", True)
    assert results == [False]


async def test_an_engine_that_is_closed_mints_nothing() -> None:
    world = World()
    engine = open_engine(gateway=False)
    for when in ("before", "after"):
        with pytest.raises(RuntimeError, match="not open"):
            engine.rollout(world_task(world), **agent(world))
        with pytest.raises(RuntimeError, match="not open"):
            engine.run_all([world_task(world)], **agent(world))
        if when == "before":
            async with engine:
                mint(engine, world)
    with pytest.raises(RuntimeError, match="entered once"):
        async with engine:
            pass


async def test_nothing_can_be_minted_while_the_engine_is_being_left() -> None:
    world = World()
    refused: list[object] = []

    async def late() -> None:
        with pytest.raises(RuntimeError, match="not open") as error:
            mint(engine, world)
        refused.append(error)

    world.script["harness.cleanup"] = late
    async with open_engine(gateway=False) as engine:
        await mint(engine, world).open()
    assert len(refused) == 1


# ---- what it enters


class Entered(ScriptedHarness):
    """A harness that holds something open."""

    async def __aenter__(self) -> "Entered":
        await self.world.act("harness.enter")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.world.act("harness.leave")


class EnteredModel(EchoModel):
    """A model that holds something open."""

    async def __aenter__(self) -> "EnteredModel":
        await self.world.act("model.enter")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.world.act("model.leave")


async def test_a_harness_and_a_model_are_entered_once_and_left_after_the_rollouts() -> None:
    world = World(script={"harness.enter": sleeps(2)})
    harness, model = Entered(world), EnteredModel(world)
    async with open_engine(gateway=False) as engine:
        async with engine.run_all([world_task(world)] * 4, **agent(world, harness=harness, model=model)) as traces:
            assert [trace.ok async for trace in traces] == [True] * 4
        last = mint(engine, world, harness=harness, model=model)
        await last.open()
        assert "harness.leave" not in world.began
    assert last.state == "aborted"
    for event in ("harness.enter", "harness.leave", "model.enter", "model.leave"):
        assert world.began.count(event) == 1
    assert {*world.began[-2:]} == {"harness.leave", "model.leave"}


async def test_a_judge_of_the_run_is_entered_once_before_it_scores_and_left_with_the_engine() -> None:
    class Open(Judge):
        name = "open"
        weight = 1.0

        async def __aenter__(self) -> "Open":
            await world.act("judge.enter")
            return self

        async def __aexit__(self, *_: object) -> None:
            await world.act("judge.leave")

        async def score(self, task: Task, trace: Trace) -> float:
            return float(world.ended.count("judge.enter") - world.began.count("judge.leave"))

    world = World(script={"judge.enter": sleeps(2)})
    judges = [Open()]
    async with open_engine(gateway=False) as engine:
        traces = [await engine.run(world_task(world), **agent(world), judges=judges)]
        async with engine.run_all([world_task(world)] * 3, **agent(world), judges=judges) as more:
            traces += [trace async for trace in more]
        await engine.rescore(await engine.run(world_task(world), **agent(world)), world_task(world), judges=judges)
        assert "judge.leave" not in world.began
    assert [(trace.ok, trace.rewards["open"].value) for trace in traces] == [(True, 1.0)] * 4
    assert (world.began.count("judge.enter"), world.began.count("judge.leave")) == (1, 1)


async def test_a_judge_that_cannot_be_entered_fails_the_scoring_of_who_asks_it() -> None:
    class Shut(Judge):
        name = "shut"
        weight = 1.0

        async def __aenter__(self) -> None:
            raise OSError("no weights")

        async def __aexit__(self, *_: object) -> None:
            pytest.fail("it was never entered")

        async def score(self, task: Task, trace: Trace) -> float:
            pytest.fail("it was never entered")

    world = World()
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(world_task(world), **agent(world), judges=[Shut()])
    assert (trace.ok, world.unreleased()) == (False, [])
    assert "no weights" in trace.errors[0].message
    assert trace.rewards["good"].value == 1.0


async def test_one_that_is_slow_to_enter_is_bounded_by_boot_for_who_waits_and_serves_the_others() -> None:
    world = World(script={"harness.enter": sleeps(10)})
    harness = Entered(world)
    async with open_engine(gateway=False) as engine:
        first = mint(engine, world, harness=harness, timeouts=RolloutTimeouts(boot=3))
        assert await first.open() is False
        assert error_types(first.trace) == ["HarnessError"]
        assert "timeouts.boot = 3 s" in first.trace.errors[0].message
        second = mint(engine, world, harness=harness)
        assert await second.open() is True
    assert world.began.count("harness.leave") == 1
    assert "runtime.kill" not in world.began


# ---- observers: L42


class Watching:
    """An observer that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_trace(self, trace: Trace) -> None:
        self.told.append("minted")

    def on_transition(self, trace: Trace, transition: Any) -> None:
        assert trace.transitions[-1] is transition
        self.told.append(transition.target)

    def on_finished(self, trace: Trace) -> None:
        assert trace.sealed
        self.told.append("finished")


class Raising(Watching):
    """An observer that raises whatever it is told."""

    def __init__(self, kind: type[BaseException]) -> None:
        super().__init__()
        self.kind = kind

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("on_"):
            return found

        def tell(*about: Any) -> None:
            found(*about)
            raise object.__getattribute__(self, "kind")("from an observer")

        return tell


PATH = [
    "minted", "booting", "setup", "waiting", "stepping", "waiting", "closing", "finalizing", "scoring", "releasing",
    "completed", "finished",
]  # fmt: skip


async def test_observers_are_told_everything_in_order() -> None:
    of_engine, of_rollout = Watching(), Watching()
    world = World()
    async with open_engine(gateway=False, observers=[of_engine]) as engine:
        await whole(mint(engine, world, observers=[of_rollout]))
        await whole(mint(engine, world))
    assert of_rollout.told == PATH
    assert of_engine.told == PATH * 2


async def test_what_an_observer_raises_is_logged_and_disturbs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Raising(ValueError), Watching()
    world = World()
    async with open_engine(gateway=False, observers=[first, second]) as engine:
        rollout = mint(engine, world)
        await whole(rollout)
        assert rollout.ok
    assert first.told == second.told == PATH
    assert caplog.text.count("observer Raising raised in") == len(PATH)
    assert rollout.trace.warnings == []


async def test_an_observer_may_have_a_part_of_the_events() -> None:
    class Last:
        def __init__(self) -> None:
            self.traces: list[Trace] = []

        def on_finished(self, trace: Trace) -> None:
            self.traces.append(trace)

    last = Last()
    async with open_engine(gateway=False, observers=[last]) as engine:
        rollout = mint(engine, World())
        await whole(rollout)
    assert last.traces == [rollout.trace]


@pytest.mark.parametrize("where", ["engine", "rollout"])
async def test_an_observer_that_has_no_event_is_a_type_error(where: str) -> None:
    if where == "engine":
        with pytest.raises(TypeError, match="on_trace"):
            open_engine(observers=[object()])
        return
    async with open_engine(gateway=False) as engine:
        with pytest.raises(TypeError, match="on_trace"):
            mint(engine, World(), observers=[object()])


# ---- wrong settings


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "harness": ({"harness": object()}, "harness must be a Harness"),
    "a harness class": ({"harness": ScriptedHarness}, "harness must be a Harness"),
    "model": ({"model": "gpt"}, "model must be a Model"),
    "limits": ({"limits": {"max_turns": 3}}, "limits must be a RolloutLimits"),
    "timeouts": ({"timeouts": 3}, "timeouts must be a RolloutTimeouts"),
    "policy": ({"policy": "fail"}, "policy must be a RolloutPolicy"),
    "sampling": ({"sampling": {"temperature": 1}}, "sampling must be a Sampling"),
    "runtime": ({"runtime": "docker"}, "runtime must be a Runtime"),
    "observers": ({"observers": [object()]}, "on_trace"),
    "unknown": ({"max_turns": 3}, "no setting 'max_turns'"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("way", ["rollout", "run_all", "interaction"])
async def test_a_wrong_setting_is_a_type_error_before_anything_starts(wrong: str, way: str) -> None:
    world, (given, says) = World(), WRONG[wrong]
    observed = Watching()
    async with open_engine(gateway=False, observers=[observed]) as engine:
        task = world_task(world)
        with pytest.raises(TypeError, match=says):
            getattr(engine, way)([task] if way == "run_all" else task, **agent(world, **given))
    assert (world.began, observed.told) == ([], [])


@pytest.mark.parametrize("missing", ["harness", "model"])
async def test_a_missing_setting_is_a_type_error(missing: str) -> None:
    world = World()
    settings = agent(world)
    del settings[missing]
    async with open_engine(gateway=False) as engine:
        with pytest.raises(TypeError, match=f"needs a {missing}"):
            engine.rollout(world_task(world), **settings)


@pytest.mark.parametrize("task", ["2 + 2?", None, World])
async def test_what_is_no_task_is_a_type_error(task: Any) -> None:
    async with open_engine(gateway=False) as engine:
        with pytest.raises(TypeError, match="needs a Task"):
            engine.rollout(task, **agent(World()))


async def test_the_settings_stand_on_the_trace() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(
            engine,
            world,
            limits=RolloutLimits(max_turns=8),
            timeouts=RolloutTimeouts(agent=30),
            policy=RolloutPolicy(no_progress="fail"),
            sampling=Sampling(temperature=0.5),
        )
        config = rollout.trace.agent.config
    assert (config["model"], config["max_turns"], config["sampling"]) == ("echo", 8, {"temperature": 0.5})
    assert config["timeout"]["rollout"] == 30  # type: ignore[index,call-overload]
    assert config["harness"]["policy"]["no_progress"] == "fail"  # type: ignore[index,call-overload]


# ---- the gateway and the folder


@pytest.mark.real_time
async def test_a_port_in_use_is_an_os_error_and_leaves_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        before = trio.lowlevel.current_statistics().tasks_living
        with pytest.raises(OSError):  # noqa: PT011
            async with open_engine(port=taken.getsockname()[1]):
                raise AssertionError("it cannot listen there")
        assert trio.lowlevel.current_statistics().tasks_living == before


@pytest.mark.real_time
async def test_the_engine_has_a_gateway_unless_it_is_told_not_to() -> None:
    async with open_engine() as engine:
        assert engine.url.startswith("http://127.0.0.1:")
    async with open_engine(gateway=False) as engine:
        assert engine.url == ""


@pytest.mark.real_time
async def test_finished_traces_go_to_the_folder(tmp_path: Path) -> None:
    world = World()
    async with open_engine(gateway=False, output_dir=tmp_path / "a" / "run") as engine:
        trace = await engine.run(world_task(world), **agent(world))
        assert [read.id for read in traces_in(tmp_path / "a" / "run")] == [trace.id]
        await mint(engine, world).open()  # aborted by leaving, and written all the same
    written = traces_in(tmp_path / "a" / "run")
    assert [read.ok for read in written] == [True, False]
    assert written[0] == trace
    assert engine.lost == ()


@pytest.mark.real_time
async def test_a_folder_that_holds_a_run_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text("precious\n")
    with pytest.raises(FileExistsError, match="already holds a run"):
        async with open_engine(gateway=False, output_dir=tmp_path):
            raise AssertionError("it cannot be entered")
    assert (tmp_path / "traces.jsonl").read_text() == "precious\n"


@pytest.mark.real_time
async def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        async with open_engine(gateway=False, output_dir=tmp_path / "file"):
            raise AssertionError("it cannot be entered")


@pytest.mark.real_time
async def test_a_trace_that_cannot_be_written_is_lost_by_name_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rollout_fsm.output import RunFolder

    append: Callable[[RunFolder, Trace], None] = RunFolder.append

    def full(self: RunFolder, trace: Trace) -> None:
        if trace.id == "lost":
            raise OSError(28, "No space left on device")
        append(self, trace)

    monkeypatch.setattr(RunFolder, "append", full)
    world = World()
    async with open_engine(gateway=False, output_dir=tmp_path) as engine:
        for name in ("lost", "kept"):
            assert (await engine.run(world_task(world), **agent(world, id=name))).ok
    assert [(lost.id, "No space left" in lost.error) for lost in engine.lost] == [("lost", True)]
    assert [trace.id for trace in traces_in(tmp_path)] == ["kept"]


@pytest.fixture
def no_hang() -> Iterator[None]:
    """What hangs under a shield is ended all the same: by an alarm, since no cancellation would reach it."""

    def rings(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, rings)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.real_time
@pytest.mark.parametrize("moment", ["before the trace is noted", "after it is noted"])
async def test_ctrl_c_that_strikes_the_writer_of_traces_comes_out_and_every_finished_trace_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_hang: None, moment: str
) -> None:
    note, struck, finished = Keeper.written, list[str](), list[str]()

    def noted(keeper: Keeper) -> None:
        strikes = not struck
        struck.append(keeper.trace.id)
        if strikes and moment == "before the trace is noted":
            signal.raise_signal(signal.SIGINT)
        note(keeper)
        if strikes and moment == "after it is noted":
            signal.raise_signal(signal.SIGINT)

    class Ends:
        def on_finished(self, trace: Trace) -> None:
            finished.append(trace.id)

    monkeypatch.setattr(Keeper, "written", noted)
    world = World()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        async with open_engine(gateway=False, output_dir=tmp_path / "run", observers=[Ends()]) as engine:
            other = mint(engine, World())
            await other.open()
            await engine.run(world_task(world), **agent(world))
            pytest.fail("it was not interrupted")
    assert other.state == "aborted"
    assert struck == finished == [trace.id for trace in traces_in(tmp_path / "run")]
    assert (len(finished), engine.lost) == (2, ())


async def test_an_engine_says_in_one_line_what_it_is() -> None:
    async with open_engine(gateway=False) as engine:
        mint(engine, World())
        assert isinstance(engine, Engine)
        assert "open live=1" in repr(engine)
    assert "closed live=0" in repr(engine)
