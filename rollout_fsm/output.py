"""A run's folder: `traces.jsonl`, one finished trace on a line, the journal, and whatever the command line puts beside.

One engine uses a folder at a time. A run that is gone on with begins by mending what a crash tore, so that nothing is
ever appended to half a line. The invariant: no line that was on disk is lost, whenever the process is killed; what does
not belong into `traces.jsonl` is in a file beside it.
"""

import errno
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock

from attrs import define, field, frozen

from rollout_fsm.folder_lock import LOCK, FolderInUseError, FolderLock
from rollout_fsm.identity import Identity, identity
from rollout_fsm.messages import JSON
from rollout_fsm.past import TO_BE_RETRIED
from rollout_fsm.trace import Trace
from rollout_fsm.trace_json import trace_to_json_leaving_out
from rollout_fsm.traces_file import BESIDE, TracesFile, isolate_torn_end, take_out

__all__ = ["FILES", "FolderInUseError", "RunFolder", "Written", "line_of", "outdated", "read_written"]

log = logging.getLogger("rollout_fsm")

TRACES = "traces.jsonl"
JOURNAL = "journal.db"
SUPERSEDED = "superseded.jsonl"
"""Where traces are that count no more, each with the reason in `info["superseded"]`."""
TORN = "traces.torn"
"""Where the halves of lines are that a crash tore off."""
FILES = (TRACES, JOURNAL, f"{JOURNAL}-wal", SUPERSEDED, TORN, f"{TRACES}{BESIDE}", LOCK)
"""Every file that an engine may make in a run's folder."""


@frozen(kw_only=True)
class Written:
    """A trace in `traces.jsonl`, as far as it tells whether its rollout is done."""

    id: str
    identity: Identity | None
    """None for a rollout that came out of no set of tasks."""
    hash: str | None
    """The content hash of its task."""
    state: str | None
    """The state that its last transition led to."""
    stop_condition: str | None
    to_be_retried: bool = False
    """Whether another attempt was to follow, which the engine's end came before."""
    ok: bool
    digest: str
    """Of its line."""


@define(eq=False)
class RunFolder:
    """The folder that one run writes to. Everything in it blocks, and may be called from any thread."""

    path: Path
    _file: TracesFile | None = field(init=False, default=None)
    _lock: FolderLock = field(init=False)
    _using: Lock = field(init=False, factory=Lock)
    """Nothing is appended to a file of traces that is being read or replaced."""
    _made: bool = field(init=False, default=False)
    """Whether `open` made the run, rather than finding one."""

    def __attrs_post_init__(self) -> None:
        self._lock = FolderLock(self.path)

    @property
    def traces(self) -> Path:
        """The file of finished traces."""
        return self.path / TRACES

    @property
    def journal(self) -> Path:
        """The file of the journal."""
        return self.path / JOURNAL

    @property
    def superseded(self) -> Path:
        """The file of traces that count no more."""
        return self.path / SUPERSEDED

    def open(self, *, resume: bool = False, run_id: str = "") -> None:
        """Make the folder and its empty file of traces; or, to resume, take over a run that it holds and mend the end
        of that file.

        Raises `FolderInUseError` naming the process that uses the folder, `FileExistsError` if it already holds a run,
        `FileNotFoundError` if there is none to resume, `OSError` if it cannot be written; the message names the folder
        and what to do.
        """
        try:
            self._check(resume)
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(run_id)
            if resume:
                self._mend()
            else:
                self._check(resume)
                os.close(os.open(self.traces, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                self._made = True
        except OSError as error:
            self._unlock()
            raise self._explained(error) from error
        self._file = TracesFile(self.traces)

    def append(self, trace: Trace) -> None:
        """Write a finished trace, whole or not at all; it is on disk when this returns.

        What JSON cannot carry (a NaN that a task put into `info`, say) is left out and logged, rather than losing it
        all. Raises `FormatError` if that does not help, `OSError` if the file cannot be written.
        """
        assert self._file is not None
        line = line_of(trace)
        with self._using:
            self._file.append(line)

    def written(self) -> list[Written]:
        """The traces in `traces.jsonl`, in order. A line that is no trace is logged with its number, and passed over.

        They are not read whole, so a trace that is damaged in its depth is still counted. Raises `OSError`.
        """

        def tell(number: int, why: str) -> None:
            log.error(
                "line %d of %s is no trace: %s; it is passed over, and its rollout is owed again",
                number,
                self.traces,
                why,
            )

        with self._using:
            return list(read_written(self.traces, tell))

    def supersede(self, which: Mapping[Written, str]) -> None:
        """Move traces out of `traces.jsonl` into `superseded.jsonl`, each marked in its `info` with the reason given.

        Cut off at any moment and done again, it ends as if it had been done once. Raises `OSError`; no trace is lost
        then.
        """
        if which:
            with self._using:
                self._move(which)

    def _move(self, which: Mapping[Written, str]) -> None:
        assert self._file is not None
        self._file.close()  # the file that it has open will be another one
        reasons = {trace.digest: reason for trace, reason in which.items()}
        if self.superseded.exists():
            self._isolate(self.superseded)
            for moved in _marks(self.superseded):
                reasons.pop(moved, None)
        with TracesFile(self.superseded) as beside, open(self.traces, "rb") as file:
            for line in file:
                reason = reasons.pop(_digest(line), None)
                if reason is not None:
                    beside.append(_marked(line, reason))
        moving = {trace.digest for trace in which}
        take_out(self.traces, lambda line: _digest(line) in moving)
        log.info("%d traces were moved from %s to %s", len(moving), TRACES, self.superseded)

    def abandon(self) -> None:
        """Undo `open`: the run never began, so its files must not be taken for one. One that was resumed stays."""
        try:
            if self._made and self.traces.stat().st_size == 0:
                for name in FILES:
                    if name != LOCK:
                        (self.path / name).unlink(missing_ok=True)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the folder. Any number of times."""
        if self._file is not None:
            self._file.close()
        self._unlock()

    def _check(self, resume: bool) -> None:
        """Refuse what is no folder for this, before anything is made in it."""
        holds = self.traces.exists()
        if resume and not holds:
            raise FileNotFoundError(
                errno.ENOENT, f"{self.path} holds no run ({TRACES} is missing), so there is nothing to resume"
            )
        if not resume and holds:
            if self._lock.path.exists():
                self._lock.acquire("")  # says who is at it, if somebody is
            raise FileExistsError(
                errno.EEXIST,
                f"{self.path} already holds a run ({TRACES}); resume it, name another folder, or move that run away",
            )

    def _mend(self) -> None:
        self.traces.resolve().with_name(TRACES + BESIDE).unlink(missing_ok=True)
        self._isolate(self.traces)

    def _isolate(self, path: Path) -> None:
        torn = isolate_torn_end(path, self.path / TORN)
        if torn:
            log.warning(
                "the last line of %s was torn off, by a crash it seems; its %d bytes are in %s now, and its rollout "
                "counts as not done",
                path,
                torn,
                TORN,
            )

    def _explained(self, error: OSError) -> OSError:
        if isinstance(error, FolderInUseError) or (error.filename is None and error.errno is not None):
            return error
        if isinstance(error, FileExistsError) and not self.path.is_dir():
            return FileExistsError(errno.EEXIST, f"{self.path} is a file; name a folder for the run")
        return OSError(
            error.errno, f"the folder {self.path} cannot be written: {error.strerror or error}; name another one"
        )

    def _unlock(self) -> None:
        with suppress(OSError):  # a lock file that cannot be removed is no lock
            self._lock.release()


def line_of(trace: Trace) -> str:
    """The trace as a line of a file; what JSON cannot carry is left out of it, and logged. Raises `FormatError` if that
    does not help."""
    line, left_out = trace_to_json_leaving_out(trace)
    if left_out:
        log.warning("the trace of rollout %s was written without what JSON cannot carry: %s", trace.id, left_out)
    return line


def outdated(written: Iterable[Written], hashes: Mapping[Identity, str]) -> dict[Written, str]:
    """Of the traces that were written, those whose task has another content now, each with the reason that says so.

    `hashes` are those of the tasks that are to be done.
    """
    found: dict[Written, str] = {}
    for trace in written:
        now = None if trace.identity is None else hashes.get(trace.identity)
        if now is not None and trace.hash is not None and now != trace.hash:
            found[trace] = f"the content of the task changed: its hash was {trace.hash} and is {now}"
    return found


def read_written(path: Path, on_fault: Callable[[int, str], None]) -> Iterator[Written]:
    """What the lines of a file of traces tell. `on_fault` is told the number, from 1, of each that is none, and why."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                found = _written(line)
            except (ValueError, RecursionError) as error:
                on_fault(number, str(error))
            else:
                yield found


def _written(line: bytes) -> Written:
    """What a line says. Raises `ValueError` where it is no trace."""
    try:
        data = json.loads(line)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("id"), str) or not isinstance(data.get("task"), dict):
        raise ValueError("it is JSON without a trace's id and task")
    task, group = data["task"], _record(data.get("group"))
    transitions = data.get("transitions")
    last = _record(transitions[-1]) if isinstance(transitions, list) and transitions else {}
    return Written(
        id=data["id"],
        identity=identity(task.get("key"), group.get("id"), group.get("index")),
        hash=_text(task.get("hash")),
        state=_text(last.get("target")),
        stop_condition=_text(data.get("stop_condition")),
        to_be_retried=TO_BE_RETRIED in _record(data.get("info")),
        ok=data.get("ok") is True,
        digest=_digest(line),
    )


def _marked(line: bytes, reason: str) -> str:
    data = json.loads(line)
    info = _record(data.get("info"))
    info["superseded"] = {"reason": reason, "line": _digest(line)}
    data["info"] = info
    return json.dumps(data, separators=(",", ":"))


def _marks(path: Path) -> Iterator[str]:
    """The lines that were moved to the file before, by their digests."""
    with open(path, "rb") as file:
        for line in file:
            with suppress(ValueError, RecursionError):  # somebody else's damage: that line is moved once more
                mark = _record(_record(_record(json.loads(line)).get("info")).get("superseded"))
                if (digest := _text(mark.get("line"))) is not None:
                    yield digest


def _digest(line: bytes) -> str:
    return blake2b(line.rstrip(b"\r\n"), digest_size=16).hexdigest()


def _record(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) else None
