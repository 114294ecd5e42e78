"""`traces.jsonl`: whole lines or nothing, and a reader that loses only what is damaged."""

import json
import multiprocessing
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.trace import TaskInfo, Trace
from rollout_fsm.trace_json import FormatError, trace_to_json
from rollout_fsm.traces_file import TracesFile, read_traces
from tests.trace_strategies import HOSTILE


def trace(name: str, **info: str) -> Trace:
    return Trace(id=name, task=TaskInfo(type="Sum"), info=dict(info))


def read(path: Path) -> tuple[list[Trace], list[tuple[int, str]]]:
    faults: list[tuple[int, str]] = []
    found = list(read_traces(path, on_fault=lambda number, fault: faults.append((number, str(fault)))))
    return found, faults


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes: a write that would is cut short, the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_traces_and_lines_are_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    one, two, three = trace("1"), trace("2", note="\n\u2028"), trace("3")
    with TracesFile(path) as file:
        file.append(one)
        file.append(trace_to_json(two))
    with TracesFile(path) as file:
        file.append(three)
    assert read(path) == ([one, two, three], [])
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_does_not_break_a_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "traces.jsonl"
    with TracesFile(path) as file:
        file.append(trace("1", text=text))
        file.append(trace("2"))
    assert read(path) == ([trace("1", text=text), trace("2")], [])


def test_nothing_is_made_before_the_first_trace(tmp_path: Path) -> None:
    with TracesFile(tmp_path / "traces.jsonl"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_text_with_a_line_feed_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    with TracesFile(path) as file:
        file.append(trace("1"))
        with pytest.raises(ValueError, match="line feed"):
            file.append('{\n"id": "2"}')
    assert read(path) == ([trace("1")], [])


def test_a_trace_that_is_no_json_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    bad = trace("2")
    bad.metrics["m"] = float("nan")
    with TracesFile(path) as file:
        file.append(trace("1"))
        with pytest.raises(FormatError, match=r"metrics\.m: nan"):
            file.append(bad)
        file.append(trace("3"))
    assert read(path) == ([trace("1"), trace("3")], [])


@pytest.mark.parametrize("room", [0, 1, 50, 5_000, 20_000])
def test_a_line_that_the_disk_has_no_room_for_leaves_the_file_as_it_was(tmp_path: Path, room: int) -> None:
    path = tmp_path / "traces.jsonl"
    long = trace("2", text="x" * 50_000)
    with TracesFile(path) as file:
        file.append(trace("1"))
        before = path.read_bytes()
        with largest_file(len(before) + room), pytest.raises(OSError, match="too large"):
            file.append(long)
        assert path.read_bytes() == before
        file.append(long)
    assert read(path) == ([trace("1"), long], [])


def test_a_folder_that_is_not_there_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "traces.jsonl"
    with pytest.raises(FileNotFoundError, match="gone"):
        TracesFile(path).append(trace("1"))


def test_a_torn_last_line_is_passed_over_wherever_it_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    with TracesFile(path) as file:
        file.append(trace("1"))
        size = path.stat().st_size
        file.append(trace("2", text="é"))
    whole = path.read_bytes()
    for end in range(size, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert read(path) == ([trace("1")], [])
    path.write_bytes(whole[:size] + b"\x00" * 512)
    assert read(path) == ([trace("1")], [])


def test_a_last_line_that_lacks_only_its_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_text(trace_to_json(trace("1")) + "\n" + trace_to_json(trace("2")))
    assert read(path) == ([trace("1"), trace("2")], [])


def test_what_is_appended_after_a_torn_line_is_not_lost_with_it(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_text(trace_to_json(trace("1")) + '\n{"id": "2", "ta')
    with TracesFile(path) as file:
        file.append(trace("3"))
        file.append(trace("4"))
    found, faults = read(path)
    assert found == [trace("1"), trace("3"), trace("4")]
    assert [number for number, _ in faults] == [2]


def test_damage_costs_its_own_line_and_is_told_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    good = trace_to_json(trace("1")).encode()
    lines = [
        good,
        b"\xff\xfe",
        b"",
        good[:-5],
        b"[1]",
        json.dumps({"id": 3}).encode(),
        b"\x00\x00",
        good,
        b"  \r",
        b"{",
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    found, faults = read(path)
    assert found == [trace("1"), trace("1")]
    assert [number for number, _ in faults] == [2, 4, 5, 6, 7, 10]
    assert dict(faults)[6] == "the trace cannot be read: id: expected a string, not 3 (a whole number); task: missing"


def test_line_separators_other_than_lf_end_no_line(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    line = json.dumps(json.loads(trace_to_json(trace("1", text="\u2028\u2029\x85\x0b\x0c"))), ensure_ascii=False)
    path.write_bytes(line.encode() + b"\r\n" + line.encode() + b"\n")
    assert read(path) == ([trace("1", text="\u2028\u2029\x85\x0b\x0c")] * 2, [])


def test_an_empty_file_has_no_traces_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    with pytest.raises(FileNotFoundError):
        read(path)
    path.touch()
    assert read(path) == ([], [])


def test_a_closed_file_is_opened_anew_and_closing_twice_does_no_harm(tmp_path: Path) -> None:
    file = TracesFile(tmp_path / "traces.jsonl")
    file.append(trace("1"))
    before = len(os.listdir("/proc/self/fd"))
    file.close()
    file.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1
    file.append(trace("2"))
    file.close()
    assert read(file.path) == ([trace("1"), trace("2")], [])


def _append_many(file: TracesFile, writer: str) -> None:
    for number in range(20):
        file.append(trace(f"{writer}-{number}", text="x" * 20_000))


def _append_elsewhere(path: Path, writer: str) -> None:
    with TracesFile(path) as file:
        _append_many(file, writer)


def test_threads_and_processes_that_share_a_path_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    shared = TracesFile(path)
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_append_elsewhere, args=(path, f"p{number}")) for number in range(2)]
    threads = [threading.Thread(target=_append_many, args=(shared, f"t{number}")) for number in range(3)]
    for process in processes:
        process.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        process.join()
    shared.close()
    assert [process.exitcode for process in processes] == [0, 0]
    found, faults = read(path)
    assert faults == []
    assert len({one.id for one in found}) == len(found) == 100


@given(st.lists(st.sampled_from([b"\n", b"\x00", b"{", b'"', b"}", b"\xff", b"[1]", b"null", b"\xe2\x80\xa8"])))
def test_no_garbage_stops_the_reader(tmp_path_factory: pytest.TempPathFactory, garbage: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("garbage") / "traces.jsonl"
    good = trace_to_json(trace("1")).encode() + b"\n"
    damage = b"".join(garbage)
    path.write_bytes(good + damage + b"\n" + good)
    found, faults = read(path)
    assert found == [trace("1"), trace("1")]
    assert len(faults) == sum(bool(line.strip()) for line in damage.split(b"\n"))


def test_a_line_that_is_no_trace_is_logged_where_nobody_asks_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t.jsonl").write_text("{}\n")
    assert list(read_traces(tmp_path / "t.jsonl")) == []
    assert "line 1 is no trace" in caplog.text
