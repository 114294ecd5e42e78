"""What was recorded is read back; what `durable` returned for is committed."""

import math
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.exact_json import FormatError
from rollout_fsm.identity import Identity
from rollout_fsm.journal import End, Journal, JournalError, Lease, read_journal
from rollout_fsm.journal.database import loaded, stored
from rollout_fsm.trace import Trace, TransitionRecord
from rollout_fsm.trace_json import trace_from_json, trace_to_json_leaving_out
from tests.journal.journals import begin, moved, running, trace

pytestmark = pytest.mark.real_time


async def test_an_attempt_is_read_back_as_it_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with running(path) as journal:
        journal.process(run_id="r1", name="nightly")
        entry = begin(journal)
        entry.transition(moved("booting", time=101))
        box = entry.acquiring("runtime", "t1", "mine:Box", {"folder": "/x", "deep": [1, None]})
        lost = entry.acquiring("runtime", "t1b", "mine:Box", {"folder": "/y"})
        entry.transition(moved("finalizing", time=102))
        box.released()
        entry.snapshot(trace(state="finalizing", note="é"))
        await entry.durable()
        assert journal.read().attempts[0].end is None
    content = read_journal(path)
    (process,) = content.processes
    assert (process.run_id, process.name) == ("r1", "nightly")
    (attempt,) = content.attempts
    assert (attempt.trace, attempt.identity, attempt.hash, attempt.attempt) == ("t1", Identity("sum", 1, 0), "h1", 1)
    assert (attempt.began, attempt.state) == (100.0, "finalizing")
    assert attempt.leases == (
        Lease(number=lost.number, kind="runtime", name="t1b", owner="mine:Box", data={"folder": "/y"}),
    )
    assert attempt.snapshot is not None
    assert attempt.snapshot.state == "finalizing"
    assert trace_from_json(attempt.snapshot.trace).info == {"note": "é"}
    assert attempt.end is None


async def test_an_attempt_that_only_began_is_in_its_first_state(tmp_path: Path) -> None:
    async with running(tmp_path / "journal.db") as journal:
        journal.attempt("t1", identity=None, hash=None, attempt=3, began=7.0)
    (attempt,) = read_journal(tmp_path / "journal.db").attempts
    assert (attempt.identity, attempt.hash, attempt.attempt) == (None, None, 3)
    assert (attempt.state, attempt.began) == ("created", 7.0)


async def test_the_latest_snapshot_counts_and_none_is_kept_of_a_trace_that_is_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with running(path) as journal:
        first, second, third = (begin(journal, name) for name in ("t1", "t2", "t3"))
        for entry in (first, second):
            entry.snapshot(trace(state="finalizing"))
        await journal.durable()
        for entry in (first, second, third):
            entry.snapshot(trace(state="releasing"))
        second.ended("completed", written=True)
        third.ended("failed", written=False, retry={"errors": ["E"], "usage": None})
    attempts = read_journal(path).attempts
    assert [attempt.snapshot and attempt.snapshot.state for attempt in attempts] == ["releasing", None, "releasing"]
    assert [attempt.end for attempt in attempts] == [
        None,
        End(state="completed", written=True),
        End(state="failed", written=False, retry={"errors": ["E"], "usage": None}),
    ]


async def test_an_end_may_be_told_again(tmp_path: Path) -> None:
    async with running(tmp_path / "journal.db") as journal:
        entry = begin(journal)
        entry.ended("completed", written=False)
        await journal.durable()
        entry.ended("completed", written=True)
    (attempt,) = read_journal(tmp_path / "journal.db").attempts
    assert attempt.end == End(state="completed", written=True)


async def test_a_later_process_goes_on_with_the_same_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with running(path) as journal:
        journal.process(run_id="r1")
        entry = begin(journal, "t1")
        entry.acquiring("runtime", "t1", "mine:Box", {})
        entry.transition(moved("booting"))
    async with running(path) as journal:
        journal.process(run_id="r1")
        (attempt,) = journal.read().attempts
        journal.released(attempt.leases[0].number)
        journal.entry(attempt.number).transition(moved("aborting", source="booting"))
        again = begin(journal, "t2")
        again.acquiring("runtime", "t2", "mine:Box", {})
        again.transition(moved("booting"))
    content = read_journal(path)
    assert len(content.processes) == 2
    assert [(each.trace, each.state, len(each.leases)) for each in content.attempts] == [
        ("t1", "aborting", 0),
        ("t2", "booting", 1),
    ]


async def test_what_is_recorded_is_committed_without_anybody_waiting_for_it(tmp_path: Path) -> None:
    async with running(tmp_path / "journal.db") as journal:
        begin(journal)
        while not journal.read().attempts:
            await trio.lowlevel.checkpoint()


async def test_those_who_wait_together_share_few_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rollout_fsm.journal.writing import Batch, Writer

    commits: list[int] = []
    commit = Writer.commit

    def counted(self: Writer, batch: Batch) -> None:
        commits.append(len(batch.attempts))
        commit(self, batch)

    monkeypatch.setattr(Writer, "commit", counted)
    async with running(tmp_path / "journal.db") as journal, trio.open_nursery() as nursery:

        async def one(index: int) -> None:
            begin(journal, index=index)
            await journal.durable()
            assert index in {each.identity.index for each in journal.read().attempts if each.identity}

        for index in range(100):
            nursery.start_soon(one, index)
    assert sum(commits) == 100
    assert len(commits) <= 3


async def test_nothing_to_wait_for_is_no_wait_and_wakes_nobody(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    await journal.durable()  # nobody commits
    await journal.aclose()
    await journal.aclose()
    await journal.durable()
    with pytest.raises(JournalError, match="is closed"):
        begin(journal)


async def test_what_was_recorded_before_the_committer_ran_is_committed_by_closing(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    begin(journal)
    await journal.aclose()
    assert len(read_journal(tmp_path / "journal.db").attempts) == 1


async def test_a_committer_that_is_cancelled_commits_what_is_left_and_nobody_hangs(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        await trio.testing.wait_all_tasks_blocked()
        begin(journal)
        nursery.cancel_scope.cancel()
    await journal.durable()
    await journal.aclose()
    assert len(read_journal(tmp_path / "journal.db").attempts) == 1


async def test_a_lease_that_is_no_json_is_refused_before_anything_is_acquired(tmp_path: Path) -> None:
    async with running(tmp_path / "journal.db") as journal:
        entry = begin(journal)
        with pytest.raises(FormatError, match=r"the lease of t1 cannot be recorded: folder: .*PosixPath"):
            entry.acquiring("runtime", "t1", "mine:Box", {"folder": tmp_path})  # type: ignore[dict-item]
    assert read_journal(tmp_path / "journal.db").attempts[0].leases == ()


async def test_a_snapshot_that_is_no_json_keeps_nobody_else_from_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal.db"
    impossible = trace("bad")
    impossible.task.data["x"] = impossible  # type: ignore[index, assignment]
    impossible.metrics[3] = 1.0  # type: ignore[index]
    impossible.transitions[0] = 7  # type: ignore[call-overload]
    impossible.transitions.append(moved("releasing"))
    async with running(path) as journal:
        first, second, third = (begin(journal, name) for name in ("t1", "t2", "t3"))
        first.snapshot(trace(loss=math.nan, kept=1))
        second.snapshot(impossible)
        third.snapshot(trace())
        await journal.durable()
    one, two, three = read_journal(path).attempts
    assert one.snapshot is not None
    assert trace_from_json(one.snapshot.trace).info["kept"] == 1
    assert two.snapshot is None
    assert three.snapshot is not None
    assert "the trace of rollout bad could not be kept in the journal" in caplog.text


async def test_a_snapshot_of_a_trace_that_changes_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = [2, 3]  # of the first and of the second trace

    def changing(trace: Trace) -> tuple[str, tuple[str, ...]]:
        if trace.info["left"]:
            trace.info["left"] -= 1  # type: ignore[operator]
            raise RuntimeError("dictionary changed size during iteration")
        return trace_to_json_leaving_out(trace)

    monkeypatch.setattr("rollout_fsm.journal.writing.trace_to_json_leaving_out", changing)
    async with running(tmp_path / "journal.db") as journal:
        for name, times in zip(("t1", "t2"), left, strict=True):
            begin(journal, name).snapshot(trace(name, left=times))
    first, second = read_journal(tmp_path / "journal.db").attempts
    assert first.snapshot is not None
    assert second.snapshot is None
    assert "the trace of rollout t2 could not be kept in the journal: RuntimeError: dictionary changed" in caplog.text


@pytest.mark.parametrize("hostile", ["\ud800", '"', '"\ud800', "\x00", "", "🂡", "a\nb", "'; DROP TABLE attempts; --"])
async def test_hostile_texts_come_back_as_they_were(tmp_path: Path, hostile: str) -> None:
    async with running(tmp_path / "journal.db") as journal:
        journal.process(run_id=hostile, name=hostile)
        entry = journal.attempt(hostile, identity=Identity(hostile, 1, 0), hash=hostile, began=1.0)
        entry.acquiring("runtime", hostile, hostile, {hostile: hostile})
        entry.transition(TransitionRecord(time=1, trigger="t", source="a", target="b", reason=hostile))
        entry.ended("failed", written=False, retry={hostile: hostile})
        await journal.durable()
    content = read_journal(tmp_path / "journal.db")
    (process,), (attempt,) = content.processes, content.attempts
    assert (process.run_id, process.name) == (hostile, hostile)
    assert (attempt.trace, attempt.identity, attempt.hash) == (hostile, Identity(hostile, 1, 0), hostile)
    assert [(lease.name, lease.owner, lease.data) for lease in attempt.leases] == [
        (hostile, hostile, {hostile: hostile})
    ]
    assert attempt.end is not None
    assert attempt.end.retry == {hostile: hostile}


@given(st.text(st.characters(exclude_categories=())))
def test_every_text_can_be_stored_and_loaded(text: str) -> None:
    kept = stored(text)
    assert kept is not None
    kept.encode()
    assert loaded(kept) == text


async def test_many_transitions_are_small_and_the_last_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with running(path) as journal:
        entries = [begin(journal, f"t{index}", index=index) for index in range(200)]
        await journal.durable()
        empty = path.stat().st_size
        for step in range(20):
            for entry in entries:
                entry.transition(moved(f"state-{step}", time=1.7e9 + step, source=f"state-{step - 1}"))
        await journal.durable()
    assert {attempt.state for attempt in read_journal(path).attempts} == {"state-19"}
    assert path.stat().st_size - empty < 200 * 20 * 30
