"""A run's folder takes every finished trace, if need be without what JSON cannot carry."""

import json
import logging
import math
from pathlib import Path

import pytest

from rollout_fsm.output import TRACES, RunFolder
from rollout_fsm.trace import TaskInfo, Trace


def finished(**info: object) -> Trace:
    trace = Trace(id="t1", task=TaskInfo(type="Sum"), is_completed=True, ok=True)
    trace.info.update(info)  # type: ignore[arg-type]
    return trace


def test_what_json_cannot_carry_is_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.open()
    with caplog.at_level(logging.WARNING, "rollout_fsm"):
        folder.append(finished(loss=math.nan, kept=1))
    folder.append(finished(kept=2))
    folder.close()
    lines = [json.loads(line) for line in (tmp_path / "run" / TRACES).read_text().splitlines()]
    assert [line["info"].get("kept") for line in lines] == [1, 2]
    assert lines[0]["info"].get("loss") is None
    assert "info.loss: nan is not a number that JSON has" in caplog.text


def test_a_folder_that_holds_a_run_is_refused_and_one_whose_run_never_began_is_free_again(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "run")
    first.open()
    with pytest.raises(FileExistsError, match="already holds a run"):
        RunFolder(tmp_path / "run").open()
    first.abandon()
    RunFolder(tmp_path / "run").open()
