"""Killed at any moment and resumed, a run ends as if nothing had happened: nothing yielded is lost, nothing is done
twice, nothing is left standing (L73)."""

from collections import Counter
from pathlib import Path

import pytest
from attrs import evolve

from rollout_fsm import Judge, Runtime, Task, Trace, check_trace, read_traces
from rollout_fsm.identity import identity_of
from tests.crash.images import SITE, Camera, Image, Moody, Writer, happens, photographed, tasks
from tests.profiles import sample

COUNT = 3


def written(folder: Path) -> list[Trace]:
    return list(read_traces(folder / "traces.jsonl", on_fault=lambda line, fault: pytest.fail(f"line {line}: {fault}")))


def faults(camera: Camera, image: Image | None) -> list[str]:
    """What is wrong with a run that was resumed from an image and has ended."""
    found = written(camera.run)
    told = [f"{trace.id}: {fault}" for trace in found for fault in check_trace(trace)]
    times = Counter(identity_of(trace) for trace in found)
    told += [f"{identity} is there {count} times" for identity, count in times.items() if count != 1]
    if len(times) != len(tasks(COUNT)) * 2:
        told.append(f"{len(times)} rollouts are done")
    by_id = {trace.id: trace for trace in found}
    told += [f"{trace.id} is not there as it was yielded" for trace in camera.yielded if by_id.get(trace.id) != trace]
    told += [f"{trace.id} ended {trace!r}" for trace in found if not trace.ok or trace.reward != 1.0]
    told += [f"{name} still stands" for name in SITE.standing]
    if len(camera.yielded) != len({trace.id for trace in camera.yielded}):
        told.append("something was yielded twice")
    return told if image is None else [f"after {image.after}: {fault}" for fault in told]


@pytest.mark.real_time
@pytest.mark.parametrize("failures", [0, 1])
async def test_a_run_that_dies_at_any_moment_is_brought_to_its_end(tmp_path: Path, failures: int) -> None:
    whole = await photographed(tmp_path / "whole", count=COUNT, failures=failures)
    assert faults(whole, None) == []
    moments = {image.after for image in whole.taken}
    assert moments >= {
        "start",
        "setup",
        "model",
        "close",
        "finalizing",
        "finalize",
        "score",
        "releasing",
        "stop",
        "yielded",
    }
    found: list[str] = []
    for number, image in enumerate(sample(whole.taken, dev=6, ci=16)):
        again = await photographed(tmp_path / f"again {number}", count=COUNT, failures=failures, resume_from=image)
        found += faults(again, image)
    assert found == []


@pytest.mark.real_time
async def test_a_resumption_that_dies_is_resumed_like_any_other(tmp_path: Path) -> None:
    whole = await photographed(tmp_path / "whole", count=COUNT, failures=1)
    found: list[str] = []
    for number, image in enumerate(sample(whole.taken, dev=2, ci=3)):
        again = await photographed(tmp_path / f"again {number}", count=COUNT, failures=1, resume_from=image)
        for further, second in enumerate(sample(again.taken, dev=2, ci=3)):
            where = tmp_path / f"again {number} {further}"
            found += faults(await photographed(where, count=COUNT, failures=1, resume_from=second), second)
    assert found == []


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("moment", "left"),
    [
        ("finalize", ["finalized", "scored", "released"]),
        ("score", ["scored", "released"]),
        ("stop", ["released"]),
    ],
)
async def test_an_exchange_that_was_over_goes_on_in_its_own_box(tmp_path: Path, moment: str, left: list[str]) -> None:
    whole = await photographed(tmp_path / "whole", count=1, rollouts_per_task=1, failures=0)
    image = next(image for image in whole.taken if image.after == moment)
    again = await photographed(tmp_path / "again", count=1, rollouts_per_task=1, failures=0, resume_from=image)
    (trace,) = written(again.run)
    assert [trace.id] == list(image.standing)
    assert (trace.ok, trace.reward, trace.info) == (True, 1.0, {"collected": "answer to number 1"})
    assert [taken.target for taken in trace.transitions][-4:] == ["finalizing", "scoring", "releasing", "completed"]
    happened = {moment.after for moment in again.taken}
    assert not happened & {"start", "setup", "model"}
    assert {"finalized": "finalize", "scored": "score"}.get(left[0], "stop") in happened
    assert SITE.standing == {}


@pytest.mark.real_time
async def test_a_box_that_stands_no_more_makes_its_rollout_owed_again(tmp_path: Path) -> None:
    whole = await photographed(tmp_path / "whole", count=1, rollouts_per_task=1, failures=0)
    image = evolve(next(image for image in whole.taken if image.after == "score"), standing={})
    again = await photographed(tmp_path / "again", count=1, rollouts_per_task=1, failures=0, resume_from=image)
    (trace,) = written(again.run)
    (attempt,) = trace.info["attempts"]  # type: ignore[misc]
    assert (attempt["cut_off"], attempt["errors"]) == ("scoring", [])  # type: ignore[index, call-overload]
    assert (trace.ok, trace.id != attempt["id"]) == (True, True)  # type: ignore[index, call-overload]


@pytest.mark.real_time
async def test_a_rollout_that_was_scored_is_not_lost_with_its_box(tmp_path: Path) -> None:
    whole = await photographed(tmp_path / "whole", count=1, rollouts_per_task=1, failures=0)
    image = evolve(next(image for image in whole.taken if image.after == "stop"), standing={})
    again = await photographed(tmp_path / "again", count=1, rollouts_per_task=1, failures=0, resume_from=image)
    (trace,) = written(again.run)
    assert (trace.ok, trace.reward, "attempts" in trace.info) == (True, 1.0, False)
    assert not {moment.after for moment in again.taken} & {"start", "model", "score"}


@pytest.mark.real_time
async def test_a_trace_tells_of_an_attempt_that_died_with_its_process(tmp_path: Path) -> None:
    whole = await photographed(tmp_path / "whole", count=1, rollouts_per_task=1, failures=0)
    image = next(image for image in whole.taken if image.after == "model")
    again = await photographed(tmp_path / "again", count=1, rollouts_per_task=1, failures=0, resume_from=image)
    (trace,) = written(again.run)
    (attempt,) = trace.info["attempts"]  # type: ignore[misc]
    assert [attempt["id"]] == list(image.standing)  # type: ignore[index, call-overload]
    assert attempt["cut_off"] in ("booting", "setup", "stepping")  # type: ignore[index, call-overload]
    assert trace.ok


class Holds:
    """Holds something open while it is entered."""

    entered = 0

    async def __aenter__(self) -> "Holds":
        self.entered += 1
        await happens(f"{type(self).__name__} entered")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.entered = 0


class HoldingWriter(Holds, Writer):
    async def cleanup(self, trace: Trace, runtime: Runtime) -> None:
        trace.info["harness in cleanup"] = self.entered


class HoldingModel(Holds, Moody):
    """One that a judge may ask, too."""


class HoldingJudge(Holds, Judge):
    name = "entered"
    weight = 1.0

    def __init__(self, harness: HoldingWriter, model: HoldingModel) -> None:
        self.needs: list[Holds] = [self, harness, model]

    async def score(self, task: Task, trace: Trace) -> float:
        await happens("judge")
        return float([each.entered for each in self.needs] == [1, 1, 1])


@pytest.mark.real_time
@pytest.mark.parametrize("moment", ["finalize", "score", "judge"])
async def test_a_rollout_that_goes_on_where_it_was_finds_harness_model_and_judges_entered(
    tmp_path: Path, moment: str
) -> None:
    def holding() -> dict[str, object]:
        harness, model = HoldingWriter(), HoldingModel()
        return {"harness": harness, "model": model, "judges": [HoldingJudge(harness, model)]}

    one = {"count": 1, "rollouts_per_task": 1, "failures": 0}
    whole = await photographed(tmp_path / "whole", **one, **holding())
    image = next(image for image in whole.taken if image.after == moment)
    again = await photographed(tmp_path / "again", **one, resume_from=image, **holding())
    (trace,) = written(again.run)
    happened = [looked.after for looked in again.taken]
    assert not {*happened} & {"start", "setup", "model"}, "it did not go on where it was"
    assert (trace.ok, {name: judged.value for name, judged in trace.rewards.items()}) == (
        True,
        {"left_behind": 1.0, "entered": 1.0},
    )
    assert trace.info["harness in cleanup"] == 1
    for holds in (HoldingWriter, HoldingModel, HoldingJudge):
        assert happened.count(f"{holds.__name__} entered") == 1
