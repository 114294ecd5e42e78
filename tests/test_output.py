"""A run's folder takes every finished trace, is used by one engine at a time, and is gone on with after a crash."""

import json
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout_fsm.folder_lock import LOCK, FolderInUseError, FolderLock
from rollout_fsm.identity import Identity
from rollout_fsm.output import SUPERSEDED, TORN, TRACES, RunFolder, Written, outdated
from rollout_fsm.trace import GroupInfo, TaskInfo, Trace, TransitionRecord
from rollout_fsm.trace_json import trace_from_json, trace_to_json
from rollout_fsm.traces_file import read_traces

ROOT = Path(__file__).resolve().parents[1]


def finished(name: str = "t1", *, key: str = "k", index: int = 0, hash: str = "h", **info: object) -> Trace:
    trace = Trace(
        id=name,
        task=TaskInfo(type="Sum", key=key, hash=hash),
        group=GroupInfo(id=key, index=index),
        is_completed=True,
        ok=True,
        stop_condition="agent_completed",
        transitions=[TransitionRecord(time=1, trigger="released", source="releasing", target="completed")],
    )
    trace.info.update(info)  # type: ignore[arg-type]
    return trace


def a_run(path: Path, *traces: Trace) -> Path:
    """The folder of a run that ended, with these traces; returns the file of them."""
    folder = RunFolder(path)
    folder.open()
    for trace in traces:
        folder.append(trace)
    folder.close()
    return path / TRACES


def resumed(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.open(resume=True, run_id="r2")
    return folder


def ids(path: Path) -> list[str]:
    def fail(number: int, fault: Exception) -> None:
        raise AssertionError(f"line {number}: {fault}")

    return [trace.id for trace in read_traces(path, on_fault=fail)]


# --- traces


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


# --- whose folder it is


def test_a_folder_that_holds_a_run_is_refused_and_one_whose_run_never_began_is_free_again(tmp_path: Path) -> None:
    a_run(tmp_path / "run")
    with pytest.raises(FileExistsError, match="already holds a run"):
        RunFolder(tmp_path / "run").open()
    assert sorted(os.listdir(tmp_path / "run")) == [TRACES]
    first = RunFolder(tmp_path / "other")
    first.open()
    first.journal.touch()
    first.abandon()
    assert os.listdir(tmp_path / "other") == []
    RunFolder(tmp_path / "other").open()


def test_a_resumed_run_that_never_began_is_left_as_it_was(tmp_path: Path) -> None:
    file = a_run(tmp_path / "run")
    resumed(tmp_path / "run").abandon()
    assert file.exists()


@pytest.mark.parametrize("made", [False, True])
def test_a_folder_without_a_run_cannot_be_resumed_and_nothing_is_made(tmp_path: Path, made: bool) -> None:
    if made:
        (tmp_path / "run").mkdir()
    with pytest.raises(FileNotFoundError) as raised:
        resumed(tmp_path / "run")
    assert raised.value.strerror == (
        f"{tmp_path / 'run'} holds no run (traces.jsonl is missing), so there is nothing to resume"
    )
    assert (tmp_path / "run").exists() is made
    assert not made or os.listdir(tmp_path / "run") == []


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_engine_in_the_same_process_is_refused_by_name(tmp_path: Path, resume: bool) -> None:
    first = RunFolder(tmp_path / "run")
    first.open(run_id="run-1")
    try:
        with pytest.raises(FolderInUseError, match=rf"in use by process {os.getpid()} on .*, run run-1, since 20\d\d-"):
            RunFolder(tmp_path / "run").open(resume=resume)
        assert (tmp_path / "run" / LOCK).exists()
    finally:
        first.close()
    first.close()
    assert not (tmp_path / "run" / LOCK).exists()
    resumed(tmp_path / "run").close()


def test_another_process_is_refused_by_name_until_the_first_is_dead(tmp_path: Path) -> None:
    code = "import sys, signal; from pathlib import Path; from rollout_fsm.output import RunFolder\n"
    code += "folder = RunFolder(Path(sys.argv[1])); folder.open(run_id='theirs')\n"
    code += "print('open', flush=True); signal.pause()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        for resume in (False, True):
            with pytest.raises(FolderInUseError, match=f"in use by process {other.pid} on .*, run theirs, since"):
                RunFolder(tmp_path / "run").open(resume=resume)
        other.send_signal(signal.SIGKILL)
    assert (tmp_path / "run" / LOCK).exists()
    with pytest.raises(FileExistsError, match="already holds a run"):
        RunFolder(tmp_path / "run").open()
    resumed(tmp_path / "run").close()


def test_a_process_that_was_forked_off_does_not_hold_the_folder(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    lock.acquire("r1")
    go_on, stay = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(stay)
        os.read(go_on, 1)
        os._exit(0)
    os.close(go_on)
    try:
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        os.kill(child, signal.SIGCONT)
        with pytest.raises(FolderInUseError):
            FolderLock(tmp_path).acquire("r2")
        lock.release()
        second = FolderLock(tmp_path)
        second.acquire("r2")
        second.release()
    finally:
        os.close(stay)
        assert os.waitpid(child, 0)[1] == 0


def test_a_lock_file_that_says_nothing_still_refuses(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    lock.acquire("r1")
    os.truncate(lock.path, 0)
    with pytest.raises(FolderInUseError, match="in use by another process, which has only just begun"):
        FolderLock(tmp_path).acquire("r2")
    lock.release()


def test_a_lock_whose_file_was_taken_away_is_not_the_lock_of_the_next(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path), FolderLock(tmp_path)
    first.acquire("r1")
    first.path.unlink()
    second.acquire("r2")
    first.release()
    with pytest.raises(FolderInUseError, match="run r2"):
        FolderLock(tmp_path).acquire("r3")
    second.release()


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OSError, match=re.escape(str(path))):
            RunFolder(path).open(resume=resume)


# --- a torn end


def test_a_torn_end_is_told_and_moved_once_however_often_the_moving_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_run(tmp_path, finished())
    with file.open("ab") as torn:
        torn.write(b'{"id": "half')

    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("os.ftruncate", killed)
        for _ in range(3):
            folder = RunFolder(tmp_path)
            with pytest.raises(SystemExit):
                folder.open(resume=True)
            folder.close()
    resumed(tmp_path).close()
    assert (tmp_path / TORN).read_bytes() == b'{"id": "half\n'
    assert ids(file) == ["t1"]
    assert f"the last line of {file} was torn off, by a crash it seems; its 12 bytes are in traces.torn" in caplog.text


def test_damage_elsewhere_costs_its_own_line_and_is_told_with_its_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = a_run(tmp_path, finished("t1"))
    with file.open("ab") as more:
        more.write(b"\x00\x00\n\n[1]\n" + b"[" * 100_000 + b'\n{"id": 3, "task": {}}\n')
        more.write(trace_to_json(finished("t2", index=1)).encode() + b"\n")
    folder = resumed(tmp_path)
    assert [trace.id for trace in folder.written()] == ["t1", "t2"]
    folder.close()
    told = re.findall(r"line (\d+) of \S+ is no trace: (.*); it is passed over", caplog.text)
    assert [number for number, _ in told] == ["2", "4", "5", "6"]
    assert told[1][1] == told[3][1] == "it is JSON without a trace's id and task"


# --- what is done


def test_what_is_written_says_whose_rollout_it_is(tmp_path: Path) -> None:
    loner = Trace(id="loner", task=TaskInfo(type="Sum"))
    a_run(tmp_path, finished("t1", key="a", index=2, hash="x"), loner)
    folder = resumed(tmp_path)
    first, second = folder.written()
    folder.close()
    assert (first.id, first.identity, first.hash, first.ok) == ("t1", Identity("a", 1, 2), "x", True)
    assert (first.state, first.stop_condition) == ("completed", "agent_completed")
    assert (second.id, second.identity, second.hash, second.state) == ("loner", None, None, None)


def test_a_trace_is_outdated_if_its_task_is_owed_with_another_content() -> None:
    def written(name: str, key: str | None, hash: str | None) -> Written:
        of = None if key is None else Identity(key, 1, 0)
        return Written(id=name, identity=of, hash=hash, state=None, stop_condition=None, ok=True, digest=name)

    old, same, gone, unknown, loner = (
        written("old", "a", "1"),
        written("same", "b", "1"),
        written("gone", "c", "1"),
        written("unknown", "a", None),
        written("loner", None, "1"),
    )
    hashes = {Identity("a", 1, 0): "2", Identity("b", 1, 0): "1", Identity("d", 1, 0): "9"}
    assert outdated([old, same, gone, unknown, loner], hashes) == {
        old: "the content of the task changed: its hash was 1 and is 2"
    }


# --- superseding


def test_superseded_traces_are_moved_and_marked_and_the_others_stay_as_they_are(tmp_path: Path) -> None:
    file = a_run(tmp_path, *(finished(f"t{index}", index=index, note=index) for index in range(4)))
    with file.open("ab") as more:
        more.write(b"damage\n")
    os.chmod(file, 0o640)
    lines = file.read_bytes().splitlines(keepends=True)
    folder = resumed(tmp_path)
    written = folder.written()
    folder.supersede({written[1]: "first reason", written[3]: "second reason"})
    folder.append(finished("t5"))
    folder.close()
    assert file.read_bytes().splitlines(keepends=True)[:-1] == [lines[0], lines[2], lines[4]]
    assert file.stat().st_mode & 0o777 == 0o640
    moved = [trace_from_json(line) for line in (tmp_path / SUPERSEDED).read_bytes().splitlines()]
    assert [(trace.id, trace.info["note"]) for trace in moved] == [("t1", 1), ("t3", 3)]
    assert [trace.info["superseded"]["reason"] for trace in moved] == [  # type: ignore[index, call-overload]
        "first reason",
        "second reason",
    ]
    assert sorted(os.listdir(tmp_path)) == sorted([TRACES, SUPERSEDED])


def test_nothing_to_supersede_makes_nothing(tmp_path: Path) -> None:
    a_run(tmp_path, finished())
    folder = resumed(tmp_path)
    folder.supersede({})
    folder.close()
    assert os.listdir(tmp_path) == [TRACES]


@pytest.mark.parametrize("function", ["fsync", "replace", "ftruncate", "fchmod", "write", "pwrite"])
@pytest.mark.parametrize("call", range(4))
def test_superseding_that_is_cut_off_and_done_again_ends_as_if_it_had_been_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, call: int
) -> None:
    file = a_run(tmp_path, *(finished(f"t{index}", index=index) for index in range(3)))
    calls = iter(range(100))
    real: Callable[..., object] = getattr(os, function)

    def killed(*arguments: object) -> object:
        if next(calls) == call:
            raise SystemExit
        return real(*arguments)

    folder = resumed(tmp_path)
    which = dict.fromkeys(folder.written()[:2], "why")
    with monkeypatch.context() as patch:
        patch.setattr(os, function, killed)
        try:
            folder.supersede(which)
        except SystemExit:
            cut_off = True
        else:
            cut_off = False
    folder.close()
    assert cut_off is (next(calls) > call)
    known = {trace.id for trace in folder.written()}
    beside = tmp_path / SUPERSEDED
    assert known | set(ids(beside) if beside.exists() else ()) == {"t0", "t1", "t2"}
    again = resumed(tmp_path)
    again.supersede({trace: "why" for trace in again.written() if trace in which})
    again.close()
    assert ids(file) == ["t2"]
    assert ids(beside) == ["t0", "t1"]
    assert sorted(os.listdir(tmp_path)) == sorted([TRACES, SUPERSEDED])


def test_a_torn_line_of_what_was_superseded_is_written_anew(tmp_path: Path) -> None:
    file = a_run(tmp_path, finished("t1"), finished("t2", index=1))
    (tmp_path / SUPERSEDED).write_bytes(b'garbage\n{"id": "t1", "ta')
    folder = resumed(tmp_path)
    folder.supersede({folder.written()[0]: "why"})
    folder.close()
    assert ids(file) == ["t2"]
    garbage, moved = (tmp_path / SUPERSEDED).read_bytes().splitlines()
    assert garbage == b"garbage"
    assert trace_from_json(moved).id == "t1"
    assert (tmp_path / TORN).read_bytes() == b'{"id": "t1", "ta\n'


def test_a_full_disk_while_superseding_loses_nothing(tmp_path: Path) -> None:
    from tests.journal.journals import small_disk

    with small_disk(tmp_path / "disk", 256) as disk:
        file = a_run(disk, *(finished(f"t{index}", index=index, text="x" * 60_000) for index in range(3)))
        before = file.read_bytes()
        folder = resumed(disk)
        with pytest.raises(OSError, match="No space left"):
            folder.supersede(dict.fromkeys(folder.written()[:2], "why"))
        folder.close()
        assert file.read_bytes() == before
        assert not (disk / f"{TRACES}.new").exists()


def test_nothing_is_lost_that_is_appended_while_others_are_superseded(tmp_path: Path) -> None:
    a_run(tmp_path, *(finished(f"old{index}", index=index) for index in range(20)))
    folder = resumed(tmp_path)
    begun = threading.Event()

    def append() -> None:
        for index in range(60):
            folder.append(finished(f"new{index}", key="new", index=index))
            begun.set()

    thread = threading.Thread(target=append)
    thread.start()
    begun.wait()
    for trace in [trace for trace in folder.written() if trace.id.startswith("old")]:
        folder.supersede({trace: "why"})
    thread.join()
    folder.close()
    assert ids(tmp_path / TRACES) == [f"new{index}" for index in range(60)]
    assert ids(tmp_path / SUPERSEDED) == [f"old{index}" for index in range(20)]


# --- hostile folders


@pytest.mark.parametrize("gone", ["file", "folder", "replaced"])
def test_a_trace_that_would_be_written_to_a_file_that_is_not_there_any_more_is_no_written_trace(
    tmp_path: Path, gone: str
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.open()
    folder.append(finished("a"))
    if gone == "folder":
        shutil.rmtree(folder.path)
    else:
        folder.traces.unlink()
    if gone == "replaced":
        folder.traces.write_text("")
    with pytest.raises(OSError, match="was removed, or replaced by another file, during the run"):
        folder.append(finished("b"))


def test_a_lock_that_is_a_link_leaves_what_it_leads_to_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(victim)
    with pytest.raises(OSError, match="cannot be written"):
        RunFolder(tmp_path / "run").open()
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("said", ["[" * 5_000, '{"pid": "\\u001b[31m", "host": "h", "run": "", "since": "s"}'])
def test_what_a_held_lock_says_can_do_no_harm(tmp_path: Path, said: str) -> None:
    first = RunFolder(tmp_path / "run")
    first.open()
    (tmp_path / "run" / LOCK).write_text(said)
    with pytest.raises(FolderInUseError) as refused:
        RunFolder(tmp_path / "run").open()
    assert str(refused.value).isprintable()
    first.close()
