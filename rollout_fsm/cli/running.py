"""A run as it happens: engine, progress and signals under one roof. What came of it is returned; the exit code is not
decided here.

Signals are received from before the engine opens until after it has closed, so that every release is seen through.
"""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

import trio
from attrs import define

from rollout_fsm.batch import Batch
from rollout_fsm.cli.config_file import settings_to_toml
from rollout_fsm.cli.faults import UnwrittenError, UsageError, is_of_the_disk
from rollout_fsm.cli.interruption import Interruption
from rollout_fsm.cli.logs import LogFile, logging_to_file
from rollout_fsm.cli.preparing import CONFIG, LOG, Prepared, recorded
from rollout_fsm.cli.progress import Board, Lines, keep_drawing, live_picture
from rollout_fsm.cli.screen import Screen
from rollout_fsm.disk import sync_folder
from rollout_fsm.engine import Engine, open_engine
from rollout_fsm.output import FILES, TRACES
from rollout_fsm.services import LostTrace
from rollout_fsm.trace import Trace

__all__ = ["Ran", "run_prepared"]

BESIDE = ".new"
"""What the name of a file ends with until it is whole."""


@define(kw_only=True, eq=False)
class Ran:
    """What came of a run."""

    board: Board
    interruption: Interruption
    seconds: float = 0.0
    lost: Sequence[LostTrace] = ()
    """Finished traces that could not be written."""
    journal_failed: str | None = None
    """Why something could not be kept for a crash."""
    log_failed: BaseException | None = None


async def run_prepared(prepared: Prepared, screen: Screen) -> Ran:
    """Run it. Raises `UsageError` where folder, port or hooks turn out not to do; nothing is left of the run then."""
    before = 0 if prepared.before is None else len(prepared.before.done)
    most = min(prepared.total, prepared.settings.max_concurrent or prepared.total)
    board = Board(prepared.total, most=most, before=before)
    say: Callable[[str], None] = screen.say if screen.live and screen.err_outlet.isatty() else screen.complain
    ran = Ran(board=board, interruption=Interruption(say, lambda: board.unfinished))
    refused: UsageError | None = None
    with ExitStack() as shown:
        live = shown.enter_context(live_picture(board, screen, prepared.name)) if screen.live else None
        watch = shown.enter_context(ran.interruption.receiving())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            if live is not None:
                nursery.start_soon(keep_drawing, live, board, prepared.name)
            with ran.interruption.scope:
                try:
                    await _run(prepared, ran, [board] if live is not None else [board, Lines(board, screen)], screen)
                except UsageError as error:
                    refused = error
            nursery.cancel_scope.cancel()
    ran.seconds = board.elapsed
    if refused is not None:
        raise refused
    return ran


async def _run(prepared: Prepared, ran: Ran, observers: Sequence[object], screen: Screen) -> None:
    goes_on = prepared.before is not None
    engine = open_engine(
        output_dir=prepared.folder,
        run_name=prepared.name,
        run_id=prepared.run_id,
        host=prepared.settings.host or "",
        port=prepared.settings.port or 0,
        resume=goes_on,
        max_active_segments=prepared.settings.max_active_segments,
        observers=observers,
    )
    fresh = not goes_on and not (prepared.folder / TRACES).exists()
    log_file: LogFile | None = None
    try:
        with ExitStack() as files:
            async with engine:
                log_file = files.enter_context(_files(prepared))
                for line in prepared.before.lines(prepared.total) if prepared.before is not None else ():
                    screen.say(line)
                async with _owed(engine, prepared) as traces:
                    async for _ in traces:
                        pass
    except (OSError, TypeError, ValueError) as error:
        if ran.board.summary.rollouts or ran.board.unfinished:
            raise  # not about what was asked for: a bug
        if fresh:
            _withdraw(prepared)
        text = error.strerror if isinstance(error, OSError) else None
        refused = UnwrittenError if is_of_the_disk(error) else UsageError
        raise refused(text or str(error)) from error
    finally:
        ran.lost, ran.journal_failed = engine.lost, engine.journal_failed
        ran.log_failed = log_file.failed if log_file is not None else None


def _owed(engine: Engine, prepared: Prepared) -> Batch[Trace]:
    """What is to be run: all of it, or what an earlier process of the run did not do."""
    start = engine.run_all if prepared.before is None else engine.resume
    return start(
        prepared.tasks,
        rollouts_per_task=prepared.rollouts_per_task,
        max_concurrent=prepared.settings.max_concurrent,
        **prepared.agent,
    )


def _files(prepared: Prepared) -> AbstractContextManager[LogFile]:
    """The run's settings, written, and its log, to be opened; of a run that is gone on with, both are there."""
    goes_on = prepared.before is not None
    path = prepared.folder / CONFIG
    try:
        if not goes_on:
            _write_whole(path, settings_to_toml(recorded(prepared)))
        path = prepared.folder / LOG
        return logging_to_file(path, goes_on=goes_on)
    except OSError as error:
        raise OSError(error.errno, f"{error.filename or path}: cannot be written: {error.strerror}") from error


def _write_whole(path: Path, text: str) -> None:
    """Make a file that is there whole or not at all, and on disk when this returns: `resume` reads it after a crash."""
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    beside = path.with_name(path.name + BESIDE)
    try:
        with open(beside, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(path.parent)


def _withdraw(prepared: Prepared) -> None:
    """Remove what a run that never began has made, so that the folder can be named again."""
    folder = prepared.folder
    with suppress(OSError):
        if not (folder / TRACES).stat().st_size:
            for made in (*FILES, CONFIG, LOG):
                (folder / made).unlink(missing_ok=True)
    with suppress(OSError):
        (folder / LOG).parent.rmdir()
    with suppress(OSError):
        folder.rmdir()
