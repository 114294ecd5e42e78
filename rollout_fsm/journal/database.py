"""The journal's file: its schema, how it is opened, what is said when that cannot be.

SQLite with a write-ahead log and `synchronous=FULL`: a commit that returned survives a power failure. The connection
has the file for itself, so that no shared memory is needed, which network file systems do not have. Texts are stored so
that each one comes back as it was, whatever is in it.
"""

import json
import os
import sqlite3
from pathlib import Path

from rollout_fsm.disk import sync_folder
from rollout_fsm.journal.errors import JournalError
from rollout_fsm.messages import JSON

APPLICATION = 0x524F4C4C
"""What tells a journal from the databases of other programs."""
VERSION = 1
"""Of the schema."""

SCHEMA = (
    """CREATE TABLE processes (
        number INTEGER PRIMARY KEY, run_id TEXT NOT NULL, name TEXT, pid INTEGER NOT NULL, host TEXT NOT NULL,
        started REAL NOT NULL, cwd TEXT NOT NULL)""",
    """CREATE TABLE attempts (
        number INTEGER PRIMARY KEY, trace TEXT NOT NULL, key TEXT, place INTEGER, rollout INTEGER, hash TEXT,
        attempt INTEGER NOT NULL, began REAL NOT NULL)""",
    """CREATE TABLE leases (
        number INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
        owner TEXT NOT NULL, data TEXT NOT NULL, released INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE moves (
        number INTEGER PRIMARY KEY, "trigger" TEXT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL,
        reason TEXT)""",
    """CREATE TABLE transitions (
        number INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, time REAL NOT NULL, move INTEGER NOT NULL)""",
    """CREATE TABLE snapshots (attempt INTEGER PRIMARY KEY, state TEXT NOT NULL, trace TEXT NOT NULL)""",
    """CREATE TABLE ends (
        attempt INTEGER PRIMARY KEY, state TEXT NOT NULL, written INTEGER NOT NULL, retry TEXT)""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)


def connect(path: Path) -> sqlite3.Connection:
    """Open a journal, and make it if it is not there. Blocks. Raises `JournalError`."""
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        _check(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if not _tables(connection):
            _make(connection)
            sync_folder(path.parent)
    except (sqlite3.Error, OSError) as error:
        if connection is not None:
            connection.close()
        raise failure("cannot be opened", path, error) from error
    return connection


def failure(what: str, path: Path, error: BaseException) -> JournalError:
    """What went wrong with a journal, in a line; `what` is what could not be done with it."""
    if isinstance(error, JournalError):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    reason = " ".join(str(error).split()) or type(error).__name__
    return JournalError(f"the journal {path} {what}: {reason}; {_remedy(code, path)}")


def stored(text: str | None) -> str | None:
    """A text as it is stored: itself, or its JSON where SQLite could not hold it or it would be taken for JSON."""
    if text is None or (not text.startswith('"') and _encodable(text)):
        return text
    return json.dumps(text)


def loaded(text: str | None) -> str | None:
    """The text that was stored."""
    if text is None or not text.startswith('"'):
        return text
    found: str = json.loads(text)
    return found


def parsed(text: str | None) -> JSON:
    """The value that was stored as JSON."""
    value: JSON = None if text is None else json.loads(text)
    return value


_DAMAGED = (
    "it is damaged: move it and its -wal file away to go on without it; what is in traces.jsonl still counts, but "
    "processes and folders that a dead process left have to be removed by hand"
)
_REMEDIES = {
    sqlite3.SQLITE_FULL: "make room on the disk",
    sqlite3.SQLITE_BUSY: "another process has it open; wait until that ends",
    sqlite3.SQLITE_LOCKED: "another process has it open; wait until that ends",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}


def _remedy(code: int, path: Path) -> str:
    """What to do. SQLite calls most of what the system says a disk I/O error, so the system is asked once more; without
    opening the file, since closing it would let go of SQLite's locks.
    """
    if code in _REMEDIES:
        return _REMEDIES[code]
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        return f"the folder {path.parent} is read-only; make it writable, or name another one"
    return "see that the disk works and has room"


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,), (version,) = (
        connection.execute(f"PRAGMA {pragma}").fetchone() for pragma in ("application_id", "user_version")
    )
    if not _tables(connection):
        return
    if application != APPLICATION:
        raise JournalError(f"{path} is no journal but another program's database; name another folder for the run")
    if version != VERSION:
        raise JournalError(
            f"the journal {path} has schema {version}, and this version of rollout-fsm reads schema {VERSION}; "
            f"go on with the version that wrote it"
        )


def _tables(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(count)


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in SCHEMA:
        connection.execute(statement)
    connection.execute("COMMIT")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON from elsewhere may hold
        return False
    return True
