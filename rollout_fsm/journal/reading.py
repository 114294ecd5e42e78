"""What a journal says, read whole. Blocking: an async caller does it in a thread, or before anything runs."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from rollout_fsm.identity import Identity
from rollout_fsm.journal.database import connect, failure, loaded, parsed
from rollout_fsm.journal.errors import JournalError
from rollout_fsm.journal.records import Attempt, End, JournalContent, Lease, Process, Snapshot
from rollout_fsm.messages import JSON


def read_journal(path: Path) -> JournalContent:
    """All that the journal of a run says, which no process may be running. Raises `JournalError`."""
    if not path.is_file():
        raise JournalError(f"there is no journal {path}; name the folder of a run")
    connection = connect(path)
    try:
        return content(connection, path)
    finally:
        connection.close()


def content(connection: sqlite3.Connection, path: Path) -> JournalContent:
    """All that an open journal says. Raises `JournalError`."""
    try:
        return JournalContent(processes=list(_processes(connection)), attempts=list(_attempts(connection)))
    except (sqlite3.Error, ValueError, TypeError) as error:  # what it says is not what was written
        raise failure("cannot be read", path, error) from error


def _processes(connection: sqlite3.Connection) -> Iterator[Process]:
    rows = connection.execute("SELECT run_id, name, pid, host, started, cwd FROM processes ORDER BY number").fetchall()
    for run_id, name, pid, host, started, cwd in rows:
        yield Process(
            run_id=_text(run_id),
            name=loaded(name),
            pid=pid,
            host=_text(host),
            started=started,
            cwd=_text(cwd),
        )


def _attempts(connection: sqlite3.Connection) -> Iterator[Attempt]:
    leases: defaultdict[int, list[Lease]] = defaultdict(list)
    for number, attempt, kind, name, owner, data in connection.execute(
        "SELECT number, attempt, kind, name, owner, data FROM leases WHERE NOT released ORDER BY number"
    ):
        lease = Lease(number=number, kind=kind, name=_text(name), owner=_text(owner), data=_object(data))
        leases[attempt].append(lease)
    snapshots = {
        attempt: Snapshot(state=state, trace=trace)
        for attempt, state, trace in connection.execute("SELECT attempt, state, trace FROM snapshots")
    }
    ends = {
        attempt: End(state=state, written=bool(written), retry=parsed(retry))
        for attempt, state, written, retry in connection.execute("SELECT attempt, state, written, retry FROM ends")
    }
    last = {
        attempt: state
        for attempt, state, _ in connection.execute(
            "SELECT t.attempt, m.target, max(t.number) FROM transitions t JOIN moves m ON m.number = t.move "
            "GROUP BY t.attempt"
        )
    }
    for number, trace, key, place, rollout, hash_, attempt, began in connection.execute(
        "SELECT number, trace, key, place, rollout, hash, attempt, began FROM attempts ORDER BY number"
    ):
        state = last.get(number, "created")
        yield Attempt(
            number=number,
            trace=_text(trace),
            identity=None if key is None else Identity(_text(key), place, rollout),
            hash=loaded(hash_),
            attempt=attempt,
            began=began,
            state=_text(state),
            leases=tuple(leases.get(number, ())),
            snapshot=snapshots.get(number),
            end=ends.get(number),
        )


def _text(value: str) -> str:
    text = loaded(value)
    if not isinstance(text, str):
        raise TypeError(f"a text is missing, there is {value!r}")
    return text


def _object(value: str) -> dict[str, JSON]:
    found = json.loads(value)
    if not isinstance(found, dict):
        raise TypeError(f"an object is missing, there is {value!r}")
    return found
