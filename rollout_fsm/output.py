"""A run's folder: `traces.jsonl`, one finished trace on a line, and whatever the command line puts beside it."""

import errno
import logging
import os
from pathlib import Path

from attrs import define, field

from rollout_fsm.trace import Trace
from rollout_fsm.trace_json import FormatError, trace_to_json, trace_to_json_leaving_out
from rollout_fsm.traces_file import TracesFile

log = logging.getLogger("rollout_fsm")

TRACES = "traces.jsonl"


@define(eq=False)
class RunFolder:
    """The folder that one run writes to."""

    path: Path
    _file: TracesFile | None = field(init=False, default=None)

    @property
    def traces(self) -> Path:
        """The file of finished traces."""
        return self.path / TRACES

    def open(self) -> None:
        """Make the folder and its empty file of traces.

        Raises `FileExistsError` if it already holds a run, `OSError` if it cannot be written; the message names the
        folder and what to do.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.traces, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError as error:
            if self.path.is_dir():
                raise FileExistsError(
                    errno.EEXIST,
                    f"{self.path} already holds a run ({TRACES}); name another folder, or move that run away",
                ) from error
            raise FileExistsError(errno.EEXIST, f"{self.path} is a file; name a folder for the run") from error
        except OSError as error:
            raise OSError(
                error.errno, f"the folder {self.path} cannot be written: {error.strerror}; name another one"
            ) from error
        self._file = TracesFile(self.traces)

    def append(self, trace: Trace) -> None:
        """Write a finished trace, whole or not at all; it is on disk when this returns. Blocks.

        What JSON cannot carry (a NaN that a task put into `info`, say) is left out and logged, rather than losing it
        all. Raises `FormatError` if that does not help, `OSError` if the file cannot be written.
        """
        assert self._file is not None
        try:
            line = trace_to_json(trace)
        except FormatError:
            line, left_out = trace_to_json_leaving_out(trace)
            log.warning("the trace of rollout %s was written without what JSON cannot carry: %s", trace.id, left_out)
        self._file.append(line)

    def abandon(self) -> None:
        """Undo `open`: the run never began, so its file must not be taken for one."""
        self.close()
        if self.traces.stat().st_size == 0:
            self.traces.unlink()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
