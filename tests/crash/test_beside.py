"""A run is gone on with in an engine that does other things, too: what this process began, or has taken upon itself,
is its own, and no resumption touches it; what was given up is owed again (L73)."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from rollout_fsm import Judge, RetryPolicy, Task, Trace, check_trace, open_engine, read_traces
from rollout_fsm.engine import Engine
from rollout_fsm.identity import Identity, identity_of
from rollout_fsm.output import RunFolder
from tests.crash.images import SITE, Box, Moody, Writer, Writes, agent, photographed, tasks

pytestmark = pytest.mark.real_time


class Gated(Moody):
    """Answers once the gate is open."""

    def __init__(self, gate: trio.Event | None = None, failures: int = 0) -> None:
        super().__init__(failures)
        self.gate = gate or trio.Event()
        self.asked = trio.Event()

    async def respond(self, *request: Any) -> Any:
        self.asked.set()
        await self.gate.wait()
        return await super().respond(*request)


class GatedJudge(Judge):
    """Tells that it is asked, and answers once the gate is open."""

    name = "gated"
    weight = 0.0

    def __init__(self, gate: trio.Event, asked: trio.Event) -> None:
        self.gate = gate
        self.asked = asked

    async def score(self, task: Task, trace: Trace) -> float:
        self.asked.set()
        await self.gate.wait()
        return 1.0


@pytest.fixture
def happened() -> Any:
    """What happens at the site, in order."""
    SITE.standing, told = {}, list[str]()
    SITE.look = told.append
    yield told
    SITE.look = lambda what: None


def named(*prompts: str) -> list[Task]:
    return [Writes(prompt=prompt) for prompt in prompts]


def whole(folder: Path, file: str = "traces.jsonl") -> list[Trace]:
    if not (folder / file).exists():
        return []
    found = list(read_traces(folder / file, on_fault=lambda line, fault: pytest.fail(f"line {line}: {fault}")))
    assert [fault for trace in found for fault in check_trace(trace)] == []
    return found


def prompts(traces: list[Trace]) -> list[str]:
    return sorted(str(trace.task.data["prompt"]) for trace in traces)


async def an_empty_run(folder: Path) -> None:
    async with open_engine(output_dir=folder, gateway=False):
        pass


async def all_of(batch: Any, into: list[Trace]) -> None:
    async with batch as traces:
        into.extend([trace async for trace in traces])


async def test_a_resumption_touches_no_box_of_a_run_beside_it(tmp_path: Path, happened: list[str]) -> None:
    run, model, ran, resumed = tmp_path / "run", Gated(), list[Trace](), list[Trace]()
    await an_empty_run(run)
    async with open_engine(output_dir=run, resume=True, gateway=False) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(all_of, engine.run_all(named("a", "b", "c"), **agent(model=model)), ran)
        await model.asked.wait()
        await all_of(engine.resume(named("d", "e"), **agent()), resumed)
        assert (len(SITE.standing), ran) == (2, [])  # two of the three, and none of it in the way
        model.gate.set()
    assert (prompts(ran), prompts(resumed)) == (["a", "b", "c"], ["d", "e"])
    assert all(trace.ok and "attempts" not in trace.info for trace in ran + resumed)
    assert "reclaim" not in happened
    assert prompts(whole(run)) == ["a", "b", "c", "d", "e"]


async def test_a_rollout_that_begins_while_a_resumption_reads_what_was_left_keeps_its_box(
    tmp_path: Path, happened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, model, ran, resumed = tmp_path / "run", Gated(), list[Trace](), list[Trace]()
    await an_empty_run(run)
    reading, read, there = trio.Event(), trio.Event(), RunFolder.written

    async def long() -> None:
        reading.set()
        await read.wait()

    def takes_long(folder: RunFolder) -> Any:
        found = there(folder)
        trio.from_thread.run(long)
        return found

    monkeypatch.setattr(RunFolder, "written", takes_long)
    async with open_engine(output_dir=run, resume=True, gateway=False) as engine, trio.open_nursery() as nursery:
        async with trio.open_nursery() as resuming:
            resuming.start_soon(all_of, engine.resume(named("d"), **agent()), resumed)
            await reading.wait()
            nursery.start_soon(all_of, engine.run_all(named("a"), **agent(model=model)), ran)
            await model.asked.wait()
            read.set()
        model.gate.set()
    assert (prompts(ran), prompts(resumed)) == (["a"], ["d"])
    assert all(trace.ok for trace in ran + resumed)
    assert "reclaim" not in happened


async def test_two_resumptions_of_the_same_tasks_at_once_do_each_rollout_once(
    tmp_path: Path, happened: list[str]
) -> None:
    run, model, first, second, third = tmp_path / "run", Gated(), list[Trace](), list[Trace](), list[Trace]()
    await an_empty_run(run)
    asked = named("a", "b", "c")
    async with open_engine(output_dir=run, resume=True, gateway=False) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(all_of, engine.resume(asked, **agent(model=model)), first)
        nursery.start_soon(all_of, engine.resume(asked, **agent(model=model)), second)  # both are entered at once
        await model.asked.wait()
        await all_of(engine.resume([*asked, *named("d")], **agent()), third)  # long after
        model.gate.set()
    assert (prompts(first + second), prompts(third)) == (["a", "b", "c"], ["d"])
    assert not first or not second
    assert "reclaim" not in happened
    assert prompts(whole(run)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("leaves", ["by a break", "by an exception"])
async def test_what_a_resumption_did_not_come_to_is_owed_to_the_next_one(
    tmp_path: Path, happened: list[str], leaves: str
) -> None:
    run, seen, rest = tmp_path / "run", list[Trace](), list[Trace]()
    await an_empty_run(run)
    asked = named("a", "b", "c", "d")
    async with open_engine(output_dir=run, resume=True, gateway=False) as engine:
        try:
            async with engine.resume(asked, **agent(max_concurrent=1)) as traces:
                async for trace in traces:
                    seen.append(trace)
                    if leaves == "by an exception":
                        raise LookupError("mine")
                    break
        except LookupError:
            assert leaves == "by an exception"
        await all_of(engine.resume(asked, **agent()), rest)
    assert [trace.ok for trace in seen + rest] == [True] * len(seen + rest)
    assert len(seen) == 1
    found = whole(run)
    assert Counter(map(identity_of, found)) == {Identity(task.key, 1, 0): 1 for task in asked}
    assert {trace.id for trace in seen + rest} <= {trace.id for trace in found}
    assert SITE.standing == {}


async def test_a_rollout_that_one_resumption_goes_on_with_is_not_taken_by_another(
    tmp_path: Path, happened: list[str]
) -> None:
    before = await photographed(tmp_path / "before", count=1, rollouts_per_task=1, failures=0)
    image = next(image for image in before.taken if image.after == "score")
    shutil.copytree(image.folder, tmp_path / "run")
    SITE.standing = {name: dict(files) for name, files in image.standing.items()}
    SITE.look = happened.append
    gate, scoring, first, second = trio.Event(), trio.Event(), list[Trace](), list[Trace]()

    async def go_on(engine: Engine) -> None:
        await all_of(engine.resume(tasks(1), **agent(judges=[GatedJudge(gate, scoring)])), first)

    run = tmp_path / "run"
    async with open_engine(output_dir=run, resume=True, gateway=False) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(go_on, engine)
        await scoring.wait()
        await all_of(engine.resume([*tasks(1), *named("d")], **agent()), second)
        gate.set()
    assert [trace.id for trace in first] == list(image.standing)
    assert prompts(second) == ["d"]
    assert all(trace.ok for trace in first + second)
    assert "reclaim" not in happened
    assert prompts(whole(run)) == ["d", "number 1"]


async def test_only_traces_of_rollouts_that_are_asked_for_are_superseded(tmp_path: Path) -> None:
    """One that was driven by hand, and those of another set, stay where they are, whatever became of them."""
    run, resumed = tmp_path / "run", list[Trace]()
    async with open_engine(output_dir=run, gateway=False) as engine:
        by_hand = engine.rollout(*named("by hand"), harness=Writer(), model=Moody(), runtime=Box)
        await by_hand.open()
        other = Gated()
        async with engine.run_all(named("a", "other"), **agent(model=other)):
            await other.asked.wait()
        await by_hand.cancel()
    assert prompts([trace for trace in whole(run) if trace.stop_condition == "cancelled"]) == ["a", "by hand", "other"]
    async with open_engine(output_dir=run, resume=True, gateway=False) as engine:
        await all_of(engine.resume(named("a"), **agent()), resumed)
    assert [trace.ok for trace in resumed] == [True]
    assert prompts(whole(run)) == ["a", "by hand", "other"]
    assert prompts(whole(run, "superseded.jsonl")) == ["a"]


async def left_in_its_back_off(run: Path, ends: str) -> Trace:
    """The only trace of a run of "a" that ended while a second attempt was to follow."""
    rests, for_ever = trio.Event(), RetryPolicy(max_retries=9, backoff=lambda number: 10_000)

    class Watch:
        def on_retry(self, trace: Trace, seconds: float) -> None:
            rests.set()

    async with open_engine(output_dir=run, gateway=False, observers=[Watch()]) as engine:  # noqa: SIM117
        async with engine.run_all(named("a"), **agent(failures=1, retry=for_ever)) as traces:
            await rests.wait()
            if ends == "by a drain":
                engine.drain()
                assert [trace.ok async for trace in traces] == [False]
    (left,) = whole(run)
    assert left.info["to_be_retried"] is True
    return left


@pytest.mark.parametrize("ends", ["by leaving", "by a drain"])
async def test_a_rollout_that_ended_in_its_back_off_is_owed_again(tmp_path: Path, ends: str) -> None:
    run, resumed = tmp_path / "run", list[Trace]()
    left = await left_in_its_back_off(run, ends)
    async with open_engine(output_dir=run, resume=True, gateway=False) as engine:
        await all_of(engine.resume(named("a"), **agent()), resumed)
    assert [trace.ok for trace in resumed] == [True]
    assert whole(run) == resumed
    (superseded,) = whole(run, "superseded.jsonl")
    assert superseded.id == left.id
    assert superseded.info["superseded"]["reason"] == "another attempt was to follow"  # type: ignore[index, call-overload]


async def test_a_rollout_that_ended_in_its_back_off_tells_of_that_attempt_when_it_is_gone_on_with(
    tmp_path: Path,
) -> None:
    run, resumed = tmp_path / "run", list[Trace]()
    left = await left_in_its_back_off(run, "by leaving")
    async with open_engine(output_dir=run, resume=True, gateway=False) as engine:
        await all_of(engine.resume(named("a"), **agent()), resumed)
    assert [told["id"] for told in resumed[0].info.get("attempts", [])] == [left.id]  # type: ignore[union-attr, index, call-overload]
