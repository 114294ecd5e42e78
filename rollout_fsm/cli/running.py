"""A run as it happens: engine, progress and signals under one roof. What came of it is returned; the exit code is not
decided here.

Signals are received from before the engine opens until after it has closed, so that every release is seen through.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress

import trio
from attrs import define

from rollout_fsm.cli.config_file import settings_to_toml
from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.interruption import Interruption
from rollout_fsm.cli.logs import LogFile, logging_to_file
from rollout_fsm.cli.preparing import CONFIG, LOG, Prepared
from rollout_fsm.cli.progress import Board, Lines, keep_drawing, live_picture
from rollout_fsm.cli.screen import Screen
from rollout_fsm.engine import open_engine
from rollout_fsm.output import TRACES
from rollout_fsm.services import LostTrace

__all__ = ["Ran", "run_prepared"]


@define(kw_only=True, eq=False)
class Ran:
    """What came of a run."""

    board: Board
    interruption: Interruption
    seconds: float = 0.0
    lost: Sequence[LostTrace] = ()
    """Finished traces that could not be written."""
    log_failed: BaseException | None = None


async def run_prepared(prepared: Prepared, screen: Screen) -> Ran:
    """Run it. Raises `UsageError` where folder, port or hooks turn out not to do; nothing is left of the run then."""
    board = Board(prepared.total, most=min(prepared.total, prepared.settings.max_concurrent or prepared.total))
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
                    await _run(prepared, ran, [board] if live is not None else [board, Lines(board, screen)])
                except UsageError as error:
                    refused = error
            nursery.cancel_scope.cancel()
    ran.seconds = board.elapsed
    if refused is not None:
        raise refused
    return ran


async def _run(prepared: Prepared, ran: Ran, observers: Sequence[object]) -> None:
    engine = open_engine(
        output_dir=prepared.folder,
        run_name=prepared.name,
        run_id=prepared.run_id,
        host=prepared.settings.host or "",
        port=prepared.settings.port or 0,
        observers=observers,
    )
    fresh = not (prepared.folder / TRACES).exists()
    log_file: LogFile | None = None
    try:
        with ExitStack() as files:
            async with engine:
                log_file = files.enter_context(_files(prepared))
                batch = engine.run_all(
                    prepared.tasks,
                    rollouts_per_task=prepared.rollouts_per_task,
                    max_concurrent=prepared.settings.max_concurrent,
                    **prepared.agent,
                )
                async with batch as traces:
                    async for _ in traces:
                        pass
    except (OSError, TypeError, ValueError) as error:
        if ran.board.finished or ran.board.unfinished:
            raise  # not about what was asked for: a bug
        if fresh:
            _withdraw(prepared)
        text = error.strerror if isinstance(error, OSError) else None
        raise UsageError(text or str(error)) from error
    finally:
        ran.lost = engine.lost
        ran.log_failed = log_file.failed if log_file is not None else None


def _files(prepared: Prepared) -> AbstractContextManager[LogFile]:
    """The run's settings, written, and its log, to be opened."""
    try:
        with open(prepared.folder / CONFIG, "x", encoding="utf-8", newline="\n") as file:
            file.write(settings_to_toml(prepared.settings))
        return logging_to_file(prepared.folder / LOG)
    except OSError as error:
        raise OSError(error.errno, f"{error.filename}: cannot be written: {error.strerror}") from error


def _withdraw(prepared: Prepared) -> None:
    """Remove what a run that never began has made, so that the folder can be named again."""
    folder = prepared.folder
    with suppress(OSError):
        if not (folder / TRACES).stat().st_size:
            for made in (TRACES, CONFIG, LOG):
                (folder / made).unlink(missing_ok=True)
    with suppress(OSError):
        (folder / LOG).parent.rmdir()
    with suppress(OSError):
        folder.rmdir()
