"""A journal that cannot be written or read says so in a line, fails whoever relied on it, and goes on when it can."""

import sqlite3
from pathlib import Path

import pytest
import trio

from rollout_fsm.journal import Journal, JournalError, read_journal
from tests.journal.journals import begin, largest_file, make_read_only, running, small_disk, trace

pytestmark = pytest.mark.real_time

LONG = "x" * 300_000


async def test_a_full_disk_fails_who_waits_names_the_file_and_is_over_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", 512) as disk:
        path = disk / "journal.db"
        async with running(path) as journal:
            begin(journal, "t1")
            await journal.durable()
            filler = disk / "filler"
            filler.write_bytes(b"x" * 400_000)
            entry = begin(journal, "t2")
            entry.snapshot(trace("t2", text=LONG))
            with pytest.raises(JournalError) as raised:
                await journal.durable()
            assert str(path) in str(raised.value)
            assert "make room on the disk" in str(raised.value)
            assert "\n" not in str(raised.value)
            assert str(raised.value) in caplog.text
            filler.unlink()
            begin(journal, "t3")
            await journal.durable()
        attempts = read_journal(path).attempts
        assert [attempt.trace for attempt in attempts] == ["t1", "t2", "t3"]
        assert attempts[1].snapshot is not None


async def test_a_write_that_is_cut_short_is_tried_again_with_all_that_was_in_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with running(path) as journal:
        begin(journal, "t1").snapshot(trace("t1", text="short"))
        await journal.durable()
        with largest_file(50_000):
            for name in ("t2", "t3"):
                begin(journal, name).snapshot(trace(name, text=LONG))
                with pytest.raises(JournalError, match="cannot be written"):
                    await journal.durable()
            assert [attempt.trace for attempt in journal.read().attempts] == ["t1"]
        await journal.durable()
        assert [attempt.trace for attempt in journal.read().attempts] == ["t1", "t2", "t3"]


async def test_what_comes_while_a_commit_fails_is_in_the_next_one_and_its_waiter_is_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rollout_fsm.journal.writing import Batch, Writer

    commit, going_on, go_on = Writer.commit, trio.Event(), trio.Event()
    token, failures = trio.lowlevel.current_trio_token(), [sqlite3.OperationalError("disk I/O error")]

    def fails_once(self: Writer, batch: Batch) -> None:
        trio.from_thread.run_sync(going_on.set, trio_token=token)
        trio.from_thread.run(go_on.wait, trio_token=token)
        if failures:
            raise failures.pop()
        commit(self, batch)

    monkeypatch.setattr(Writer, "commit", fails_once)
    told: dict[str, str] = {}

    async def waits(name: str) -> None:
        begin(journal, name)
        try:
            await journal.durable()
        except JournalError as error:
            told[name] = str(error)
        else:
            told[name] = "durable"

    async with running(tmp_path / "journal.db") as journal, trio.open_nursery() as nursery:
        nursery.start_soon(waits, "first")
        await going_on.wait()
        nursery.start_soon(waits, "second")
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()
    assert "disk I/O error" in told["first"]
    assert told["second"] == "durable"
    assert [attempt.trace for attempt in read_journal(tmp_path / "journal.db").attempts] == ["first", "second"]


async def test_closing_says_what_could_not_be_written(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        with largest_file(10_000):
            begin(journal).snapshot(trace(text=LONG))
            with pytest.raises(JournalError, match="cannot be written"):
                await journal.aclose()
    with pytest.raises(JournalError, match="cannot be written"):
        await journal.durable()
    assert read_journal(tmp_path / "journal.db").attempts == []


async def test_a_snapshot_that_waits_is_dropped_once_its_trace_is_in_the_other_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with running(path) as journal:
        entry = begin(journal)
        with largest_file(200_000):
            entry.snapshot(trace(text=LONG))
            with pytest.raises(JournalError):
                await journal.durable()
            entry.ended("completed", written=True)
            await journal.durable()  # without the snapshot there is room
    (attempt,) = read_journal(path).attempts
    assert attempt.snapshot is None
    assert attempt.end is not None


async def test_a_disk_that_becomes_read_only_is_named(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 512) as disk:
        path = disk / "journal.db"
        Journal.open(path).close()
        make_read_only(disk)
        with pytest.raises(
            JournalError, match=f"the journal {path} cannot be opened: .*; the folder {disk} is read-only"
        ):
            Journal.open(path)
        make_read_only(disk, read_only=False)


def test_a_journal_in_a_place_where_none_can_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"file/journal\.db cannot be opened: .*; there is no folder .*/file$"):
        Journal.open(tmp_path / "file" / "journal.db")
    with pytest.raises(JournalError, match="there is no journal"):
        read_journal(tmp_path / "journal.db")
    assert not (tmp_path / "journal.db").exists()


def test_a_journal_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    before = path.read_bytes()
    for read in (Journal.open, read_journal):
        with pytest.raises(JournalError, match=r"has schema 7, and this version of rollout-fsm reads schema 1; go on"):
            read(path)
    assert path.read_bytes() == before


def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE precious (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match="is no journal but another program's database"):
        Journal.open(path)
    assert path.read_bytes() == before


def test_what_is_no_database_is_called_damaged_and_what_to_do_is_said(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"garbage " * 1000)
    with pytest.raises(JournalError, match=r"cannot be opened: file is not a database; it is damaged: move it and"):
        Journal.open(path)


async def test_pages_that_were_overwritten_are_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with running(path) as journal:
        for index in range(500):
            begin(journal, f"t{index}", index=index)
    content = bytearray(path.read_bytes())
    content[4096 * 4 :] = b"\xaa" * (len(content) - 4096 * 4)
    path.write_bytes(content)
    with pytest.raises(JournalError, match="it is damaged: move it and its -wal file away") as raised:
        read_journal(path)
    assert "\n" not in str(raised.value)


def test_two_that_open_one_journal_do_not_share_it(tmp_path: Path) -> None:
    first = Journal.open(tmp_path / "journal.db")
    try:
        with pytest.raises(JournalError, match="another process has it open"):
            Journal.open(tmp_path / "journal.db")
    finally:
        first.close()
