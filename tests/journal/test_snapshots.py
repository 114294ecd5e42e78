"""A trace is kept as it was in the state of which it is kept, however long that takes."""

import json
from pathlib import Path

import pytest

from rollout_fsm.journal import JournalError, Snapshot
from tests.journal.journals import begin, largest_file, moved, running, trace

pytestmark = pytest.mark.real_time

LONG = "x" * 300_000


def states(snapshot: Snapshot) -> list[str]:
    return [taken["target"] for taken in json.loads(snapshot.trace)["transitions"]]


async def test_a_trace_that_could_not_be_kept_at_once_is_kept_as_it_was_then(tmp_path: Path) -> None:
    async with running(tmp_path / "journal.db") as journal:
        scored = trace("t1", state="releasing", text=LONG)
        entry = begin(journal, "t1")
        entry.snapshot(scored)
        with largest_file(50_000), pytest.raises(JournalError):
            await journal.durable()
        scored.transitions.append(moved("completed"))
        entry.transition(scored.transitions[-1])
        await journal.durable()
        (found,) = journal.read().attempts
        assert found.state == "completed"
        assert found.snapshot is not None
        assert (found.snapshot.state, states(found.snapshot)) == ("releasing", ["releasing"])


async def test_a_trace_that_has_moved_on_before_it_was_kept_is_not_kept_as_what_it_was(tmp_path: Path) -> None:
    async with running(tmp_path / "journal.db") as journal:
        cancelled = trace("t1", state="scoring")
        entry = begin(journal, "t1")
        entry.snapshot(cancelled)
        cancelled.transitions.append(moved("aborting"))
        await journal.durable()
        assert [found.snapshot for found in journal.read().attempts] == [None]


async def test_of_a_trace_that_has_moved_on_the_newer_snapshot_is_kept(tmp_path: Path) -> None:
    async with running(tmp_path / "journal.db") as journal:
        closed = trace("t1", state="closing")
        entry = begin(journal, "t1")
        entry.snapshot(closed)
        closed.transitions.append(moved("finalizing"))
        entry.snapshot(closed)
        await journal.durable()
        (found,) = journal.read().attempts
        assert found.snapshot is not None
        assert (found.snapshot.state, states(found.snapshot)) == ("finalizing", ["closing", "finalizing"])
