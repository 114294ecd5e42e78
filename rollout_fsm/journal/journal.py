"""The journal as the engine holds it: recording is a plain call that costs next to nothing, and one task commits what
was recorded, all that is waiting in one transaction, in a thread that is nobody else's.

The invariants: `durable` returns for what is on disk and for nothing else; a commit that failed fails those who waited
for it and nobody else, and what was in it is tried again with the next one.
"""

import logging
import os
import socket
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import trio
from attrs import Factory, define, field

from rollout_fsm.exact_json import plain
from rollout_fsm.identity import Identity
from rollout_fsm.journal.database import connect, failure, stored
from rollout_fsm.journal.errors import JournalError
from rollout_fsm.journal.reading import content
from rollout_fsm.journal.records import End, JournalContent, Process
from rollout_fsm.journal.writing import Batch, Writer, as_json
from rollout_fsm.messages import JSON
from rollout_fsm.trace import Trace, TransitionRecord

log = logging.getLogger("rollout_fsm")


@define(eq=False)
class _Commit:
    """One commit, for those who wait for it."""

    done: trio.Event = field(factory=trio.Event)
    error: str | None = None
    """Why it failed: text, since an exception that several raise would grow with each."""


@define(eq=False, repr=False)
class Journal:
    """The journal of a run's folder. Made by `Journal.open`; records are committed while `run` runs."""

    path: Path
    _connection: sqlite3.Connection
    _writer: Writer
    _attempts: int
    """How many attempts and leases there are: the next number is one more."""
    _leases: int
    inherited: int = field(init=False, default=Factory(lambda self: self._attempts, takes_self=True))
    """How many attempts earlier processes began: theirs have numbers up to this."""
    _filling: Batch = field(init=False, factory=Batch)
    """What was recorded and is in no commit."""
    _next: _Commit = field(init=False, factory=_Commit)
    """The commit that will take it."""
    _going_on: _Commit | None = field(init=False, default=None)
    _bell: trio.Event = field(init=False, factory=trio.Event)
    _thread: trio.CapacityLimiter = field(init=False, factory=lambda: trio.CapacityLimiter(1))
    _using: Lock = field(init=False, factory=Lock)
    """The connection is used by one thread at a time."""
    _running: bool = field(init=False, default=False)
    _closing: bool = field(init=False, default=False)
    _closed: bool = field(init=False, default=False)
    _ended: trio.Event = field(init=False, factory=trio.Event)

    @classmethod
    def open(cls, path: Path) -> "Journal":
        """Open the journal of a run, and make it if it is not there. Blocks.

        Raises `JournalError`, in one line, for a file that cannot be written, is damaged, belongs to another version,
        or is in use.
        """
        connection = connect(path)
        try:
            attempts, leases = (
                connection.execute(f"SELECT coalesce(max(number), 0) FROM {table}").fetchone()[0]
                for table in ("attempts", "leases")
            )
            return cls(path, connection, Writer(connection), attempts, leases)
        except sqlite3.Error as error:
            connection.close()
            raise failure("cannot be read", path, error) from error

    # ---- recording

    def process(self, *, run_id: str, name: str | None = None) -> None:
        """This process runs the run, or goes on with it."""
        record = Process(
            run_id=run_id,
            name=name,
            pid=os.getpid(),
            host=socket.gethostname(),
            started=time.time(),
            cwd=_folder(),
        )
        self._to_fill().processes.append(record)

    def attempt(
        self, trace: str, *, identity: Identity | None, hash: str | None, attempt: int = 1, began: float
    ) -> "JournalEntry":
        """An attempt at a rollout begins; `trace` is its trace's id, `began` is in epoch seconds. Its entry takes what
        is recorded of it.
        """
        batch = self._to_fill()
        self._attempts += 1
        key, place, rollout = (None, None, None) if identity is None else (identity.key, identity.place, identity.index)
        batch.attempts.append(
            (self._attempts, stored(trace), stored(key), place, rollout, stored(hash), attempt, began)
        )
        return JournalEntry(self, self._attempts)

    def entry(self, number: int) -> "JournalEntry":
        """The entry of an attempt that an earlier process began (`Attempt.number`)."""
        return JournalEntry(self, number)

    def acquisition(self, lease: int) -> "Acquisition":
        """What an earlier process acquired (`Lease.number`)."""
        return Acquisition(self, lease)

    def released(self, lease: int) -> None:
        """What was acquired is there no more (`Lease.number`)."""
        self._to_fill().released.append(lease)

    async def durable(self) -> None:
        """Return when everything that was recorded before is on disk.

        Raises `JournalError` where that failed. The records are kept and tried again with the next commit, so a later
        call may succeed.
        """
        await trio.lowlevel.checkpoint()
        if self._filling:
            self._bell.set()
            commit = self._next
        elif self._going_on is not None:
            commit = self._going_on
        else:
            return
        await commit.done.wait()
        if commit.error is not None:
            raise JournalError(commit.error)

    # ---- committing

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Commit what is recorded until `aclose`. For a task of its own that nobody cancels; raises nothing else."""
        self._running = True
        try:
            while not self._closing:
                await self._bell.wait()
                self._bell = trio.Event()
                await self._commit()
        finally:
            self._running = False
            with trio.CancelScope(shield=True):
                await self._end()

    async def aclose(self) -> None:
        """Commit what is left, end `run` and close the file. Any number of times.

        Raises `JournalError` if what was left could not be committed.
        """
        self._closing = True
        self._bell.set()
        if not self._running:
            with trio.CancelScope(shield=True):
                await self._end()
        await self._ended.wait()
        if self._next.error is not None:
            raise JournalError(self._next.error)

    def close(self) -> None:
        """Close the file of a journal whose `run` never began; nothing that was recorded is kept. Blocks."""
        self._closed = True
        self._ended.set()
        self._close()

    def read(self) -> JournalContent:
        """All that is committed. Blocks. Raises `JournalError`."""
        with self._using:
            return content(self._connection, self.path)

    def __repr__(self) -> str:
        return f"<Journal {self.path} {'closed' if self._closed else 'open'} attempts={self._attempts}>"

    def _to_fill(self) -> Batch:
        """What is recorded next, and will be committed soon."""
        if self._closed:
            raise JournalError(f"the journal {self.path} is closed: nothing can be recorded any more")
        self._bell.set()
        return self._filling

    async def _commit(self) -> None:
        """Commit what is waiting. A failure is told to those who wait for it; the records wait for the next one."""
        batch, commit = self._filling, self._next
        self._filling, self._next, self._going_on = Batch(), _Commit(), commit
        with trio.CancelScope(shield=True):
            commit.error = await trio.to_thread.run_sync(self._write, batch, limiter=self._thread)
        if commit.error is not None:
            log.error("%s", commit.error)
            self._filling = batch.go_before(self._filling)
        self._going_on = None
        commit.done.set()

    def _write(self, batch: Batch) -> str | None:
        """Write a batch; returns None, or why it was not written."""
        try:
            with self._using:
                if batch:
                    self._writer.commit(batch)
        except Exception as error:  # noqa: BLE001  (whatever it is, the loop goes on)
            return str(failure("cannot be written", self.path, error))
        return None

    async def _end(self) -> None:
        """The last commit, and the end of the connection; nobody waits in vain."""
        if self._closed:
            return
        why: str | None = None
        while self._filling and why is None:  # what is recorded while the last commit goes on is in another one
            commit = self._next
            await self._commit()
            why = commit.error
        self._closed, self._next.error = True, why
        self._next.done.set()
        try:
            await trio.to_thread.run_sync(self._close, limiter=self._thread)
        except sqlite3.Error as error:
            log.warning("%s", failure("was not closed well", self.path, error))
        self._ended.set()

    def _close(self) -> None:
        with self._using:
            self._connection.close()


def _folder() -> str:
    """The current folder; empty where it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


@define(eq=False)
class JournalEntry:
    """What is recorded of one attempt. Every method but `durable` is a plain call that only notes it down."""

    _journal: Journal = field(repr=False)
    number: int

    def acquiring(self, kind: str, name: str, owner: str, lease: Mapping[str, JSON]) -> "Acquisition":
        """Something is about to be acquired, and `durable` is to be awaited before it is. `owner` is the class that
        makes it, as `module:Qualname`. Raises `FormatError` for a lease that is no JSON.
        """
        data = plain(lease, f"the lease of {name} cannot be recorded")
        journal = self._journal
        batch = journal._to_fill()
        journal._leases += 1
        batch.leases.append((journal._leases, self.number, stored(kind), stored(name), stored(owner), as_json(data)))
        return Acquisition(journal, journal._leases)

    def transition(self, taken: TransitionRecord) -> None:
        """A transition was taken."""
        self._journal._to_fill().transitions.append((self.number, taken))

    def snapshot(self, trace: Trace) -> None:
        """Keep the trace as it is now; the latest one counts. Nobody may change it until `durable` has returned."""
        state = trace.transitions[-1].target if trace.transitions else "created"
        self._journal._to_fill().snapshots[self.number] = (state, trace)

    def ended(self, state: str, *, written: bool, retry: JSON = None) -> None:
        """The attempt is final. `written`: its trace is in `traces.jsonl`, on disk. `retry`: what the attempt that
        follows is to tell of this one; None where none follows. A later call replaces an earlier one.
        """
        self._journal._to_fill().end(self.number, End(state=state, written=written, retry=retry))

    async def durable(self) -> None:
        """As `Journal.durable`."""
        await self._journal.durable()


@define(eq=False)
class Acquisition:
    """Something that was, or was about to be, acquired."""

    _journal: Journal = field(repr=False)
    number: int

    def released(self) -> None:
        """It is there no more."""
        self._journal.released(self.number)
