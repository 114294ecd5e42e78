"""What waits to be committed, and the one transaction that commits it.

Made for many small records: each is an item in a list until the transaction, and a transition is four numbers in the
file. Of an attempt's snapshots the latest is written, and none once its trace is in `traces.jsonl`. The invariants: no
record of one rollout can keep those of another from being committed, and a snapshot is of the state that it names,
however late it is committed.
"""

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from attrs import define, field

from rollout_fsm.errors import text
from rollout_fsm.exact_json import plain_with_faults
from rollout_fsm.journal.database import stored
from rollout_fsm.journal.records import End, Process
from rollout_fsm.trace import Trace, TransitionRecord
from rollout_fsm.trace_json import trace_to_json_leaving_out

log = logging.getLogger("rollout_fsm")

LOOKS = 3
"""How often a trace is read that changes meanwhile, until it is given up."""

AttemptRow: TypeAlias = tuple[int, str | None, str | None, int | None, int | None, str | None, int, float]
LeaseRow: TypeAlias = tuple[int, int, str | None, str | None, str | None, str]
Move: TypeAlias = tuple[str, str, str, str | None]
"""Trigger, source, target and reason of a transition."""


@define(eq=False)
class Batch:
    """Records that are committed together or not at all."""

    processes: list[Process] = field(factory=list)
    attempts: list[AttemptRow] = field(factory=list)
    leases: list[LeaseRow] = field(factory=list)
    released: list[int] = field(factory=list)
    transitions: list[tuple[int, TransitionRecord]] = field(factory=list)
    snapshots: dict[int, tuple[str, Trace | str]] = field(factory=dict)
    """The trace, or its JSON once that was made: a commit that fails is tried again when the trace has moved on."""
    ends: dict[int, End] = field(factory=dict)

    def __bool__(self) -> bool:
        return any(
            (
                self.transitions,
                self.attempts,
                self.leases,
                self.released,
                self.snapshots,
                self.ends,
                self.processes,
            )
        )

    def end(self, attempt: int, end: End) -> None:
        """An attempt has ended; what is written elsewhere is not kept for it."""
        self.ends[attempt] = end
        if end.written:
            self.snapshots.pop(attempt, None)

    def go_before(self, later: "Batch") -> "Batch":
        """This batch, which was not committed, and a later one."""
        done = {attempt for attempt, end in later.ends.items() if end.written}
        snapshots = {attempt: snapshot for attempt, snapshot in self.snapshots.items() if attempt not in done}
        return Batch(
            processes=self.processes + later.processes,
            attempts=self.attempts + later.attempts,
            leases=self.leases + later.leases,
            released=self.released + later.released,
            transitions=self.transitions + later.transitions,
            snapshots=snapshots | later.snapshots,
            ends=self.ends | later.ends,
        )


@define(eq=False)
class Writer:
    """Commits batches over a connection. Blocks."""

    connection: sqlite3.Connection
    _moves: dict[Move, int] = field(init=False)
    """The numbers of the moves that the file knows."""

    def __attrs_post_init__(self) -> None:
        rows = self.connection.execute('SELECT number, "trigger", source, target, reason FROM moves')
        self._moves = {(trigger, source, target, reason): number for number, trigger, source, target, reason in rows}

    def commit(self, batch: Batch) -> None:
        """Write the batch, whole and on disk, or nothing of it. Raises what SQLite raises."""
        batch.snapshots = dict(_snapshots(batch.snapshots))  # before the transaction, which is to be short
        snapshots = [(attempt, state, line) for attempt, (state, line) in batch.snapshots.items()]
        moves = dict(self._moves)
        transitions = list(_transitions(batch.transitions, moves))
        fresh = list(moves.items())[len(self._moves) :]
        execute, many = self.connection.execute, self.connection.executemany
        execute("BEGIN IMMEDIATE")
        try:
            many(
                "INSERT INTO processes (run_id, name, pid, host, started, cwd) VALUES (?, ?, ?, ?, ?, ?)",
                map(_process, batch.processes),
            )
            many("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", batch.attempts)
            many("INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, 0)", batch.leases)
            many("UPDATE leases SET released = 1 WHERE number = ?", [(number,) for number in batch.released])
            many("INSERT INTO moves VALUES (?, ?, ?, ?, ?)", [(number, *move) for move, number in fresh])
            many("INSERT INTO transitions (attempt, time, move) VALUES (?, ?, ?)", transitions)
            many("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", snapshots)
            many("INSERT OR REPLACE INTO ends VALUES (?, ?, ?, ?)", map(_end, batch.ends, batch.ends.values()))
            done = [(attempt,) for attempt, end in batch.ends.items() if end.written]
            many("DELETE FROM snapshots WHERE attempt = ?", done)
            execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.rollback()
            raise
        self._moves = moves


def as_json(value: object) -> str:
    """The value on one line of JSON, with null for what JSON cannot carry."""
    return json.dumps(plain_with_faults(value)[0], separators=(",", ":"))


def _process(process: Process) -> tuple[object, ...]:
    return (
        stored(process.run_id),
        stored(process.name),
        process.pid,
        stored(process.host),
        process.started,
        stored(process.cwd),
    )


def _transitions(
    records: Iterable[tuple[int, TransitionRecord]], moves: dict[Move, int]
) -> Iterator[tuple[int, float, int]]:
    """Rows of transitions; moves that are new are numbered and added."""
    for attempt, taken in records:
        move = (taken.trigger, taken.source, taken.target, stored(taken.reason))
        number = moves.get(move)
        if number is None:
            number = moves[move] = len(moves) + 1
        yield attempt, taken.time, number


def _snapshots(snapshots: Mapping[int, tuple[str, Trace | str]]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Each trace as JSON, but for those that are in another state by now: what they are is recorded elsewhere."""
    for attempt, (state, trace) in snapshots.items():
        line = trace if isinstance(trace, str) else _line_in(state, trace)
        if line is not None:
            yield attempt, (state, line)


def _line_in(state: str, trace: Trace) -> str | None:
    """The trace's JSON; None, too, if it left that state meanwhile."""
    line = _line(trace) if _is_in(state, trace) else None
    return line if _is_in(state, trace) else None


def _is_in(state: str, trace: Trace) -> bool:
    return not trace.transitions or trace.transitions[-1].target == state


def _line(trace: Trace) -> str | None:
    """The trace's JSON, if need be without what JSON cannot carry; None, and said in the log, where there is none."""
    why: Exception = RuntimeError()
    for _ in range(LOOKS):
        try:
            return trace_to_json_leaving_out(trace)[0]
        except RuntimeError as error:  # the task's own code changed something in it meanwhile
            why = error
        except Exception as error:  # noqa: BLE001  (its own objects are in it; the others' records are to go on)
            why = error
            break
    log.error("the trace of rollout %s could not be kept in the journal: %s", trace.id, text(why))
    return None


def _end(attempt: int, end: End) -> tuple[int, str, int, str | None]:
    return attempt, end.state, int(end.written), None if end.retry is None else as_json(end.retry)
