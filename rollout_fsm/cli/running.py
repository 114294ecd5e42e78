"""A run as it happens: engine, progress and signals under one roof. What comes of it is returned; nothing is decided here.

Signals are received from before the engine starts until after it has ended, so no release is ever left to the interpreter's mercy.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext
from pathlib import Path

import trio
from attrs import define, field

from rollout_fsm.cli.config_file import settings_to_toml
from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.interruption import Interruption
from rollout_fsm.cli.logs import LogFile, logging_to_file
from rollout_fsm.cli.preparing import CONFIG, LOG, Prepared
from rollout_fsm.cli.progress import Board, Lines, keep_drawing, live_picture
from rollout_fsm.cli.screen import Screen
from rollout_fsm.engine import Engine, open_engine
from rollout_fsm.services import LostTrace

__all__ = ["Ran", "run_prepared"]


@define(kw_only=True, eq=False)
class Ran:
    """What came of a run."""

    board: Board
    seconds: float = 0.0
    lost: Sequence[LostTrace] = ()
    log_failed: BaseException | None = None
    interruption: Interruption
    began: bool = False
    """Whether the engine was opened, so that there is a folder."""
    refused: UsageError | None = field(default=None)


async def run_prepared(prepared: Prepared, screen: Screen) -> Ran:
    """Run it. Raises `UsageError` where the folder, the port or the tasks turn out not to do."""
    board = Board(prepared.total)
    live = screen.live
    say: Callable[[str], None] = screen.say if live and screen.err_outlet.isatty() else screen.complain
    interruption = Interruption(say, lambda: board.unfinished)
    ran = Ran(board=board, interruption=interruption)
    observers: list[object] = [board] if live else [board, Lines(board, screen)]
    async with trio.open_nursery() as nursery:
        with interruption.receiving() as watch:
            nursery.start_soon(watch)
            with interruption.scope:
                async with _drawn(board, screen, prepared.name) if live else nullcontext():
                    await _run(prepared, ran, observers)
            nursery.cancel_scope.cancel()
    ran.seconds = board.elapsed
    if ran.refused is not None:
        raise ran.refused
    return ran


async def _run(prepared: Prepared, ran: Ran, observers: Sequence[object]) -> None:
    engine = open_engine(
        output_dir=prepared.folder,
        run_name=prepared.name,
        host=prepared.settings.host or "",
        port=prepared.settings.port or 0,
        observers=observers,
    )
    with ExitStack() as held:
        try:
            async with _entered(engine, prepared, held) as log_file:
                ran.began = True
                try:
                    batch = engine.run_all(
                        prepared.tasks,
                        rollouts_per_task=prepared.rollouts_per_task,
                        max_concurrent=prepared.settings.max_concurrent,
                        **prepared.agent,
                    )
                except (TypeError, ValueError) as error:
                    raise UsageError(str(error)) from error
                async with batch as traces:
                    async for _ in traces:
                        pass
        except UsageError as refused:
            ran.refused = refused
        finally:
            ran.lost = engine.lost
    if ran.began:
        ran.log_failed = log_file.failed


@asynccontextmanager
async def _entered(engine: Engine, prepared: Prepared, held: ExitStack) -> AsyncIterator[LogFile]:
    """The engine, open, with the run's other files in its folder."""
    try:
        await engine.__aenter__()
    except OSError as error:
        raise UsageError(error.strerror or str(error)) from error
    try:
        yield held.enter_context(_files(prepared))
    except BaseException as error:
        if not await engine.__aexit__(type(error), error, error.__traceback__):
            raise
    else:
        await engine.__aexit__(None, None, None)


def _files(prepared: Prepared) -> AbstractContextManager[LogFile]:
    folder: Path = prepared.folder
    try:
        with open(folder / CONFIG, "x", encoding="utf-8", newline="\n") as file:
            file.write(settings_to_toml(prepared.settings))
        return logging_to_file(folder / LOG)
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be written: {error.strerror}") from error


@asynccontextmanager
async def _drawn(board: Board, screen: Screen, name: str) -> AsyncIterator[None]:
    """Within the block the board is on the terminal, and moves."""
    with live_picture(board, screen, name) as live:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_drawing, live, board, name)
            yield
            nursery.cancel_scope.cancel()
