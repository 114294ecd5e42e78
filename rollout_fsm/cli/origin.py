"""A run's folder, as what `resume` goes by: which run it holds, with which settings, and where it was begun.

Nothing is guessed: the settings are those that `run` wrote down, and relative names of files, programs and modules are
found in the folder in which they were found before, whatever the current one is.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path

from attrs import evolve, frozen

from rollout_fsm.cli.config_file import read_settings
from rollout_fsm.cli.faults import UnwrittenError, UsageError, is_of_the_disk
from rollout_fsm.cli.parts import endpoint_variable
from rollout_fsm.cli.preparing import CONFIG
from rollout_fsm.cli.settings import Settings
from rollout_fsm.folder_lock import LOCK, FolderLock
from rollout_fsm.models.faults import shown_url
from rollout_fsm.output import TRACES

__all__ = ["Begun", "begun_in"]


@frozen(kw_only=True)
class Begun:
    """A run that was begun."""

    settings: Settings
    folder: Path
    """The run's folder, whatever the current folder becomes."""
    shown: Path
    """The same, as the user calls it."""
    origin: Path
    """The folder in which it was begun."""
    run_id: str

    @contextmanager
    def where_it_was_begun(self) -> Iterator[None]:
        """Within the block, the current folder is the one in which the run was begun."""
        with ExitStack() as there:
            try:
                there.enter_context(chdir(self.origin))
            except OSError as error:
                raise UsageError(
                    f"the run was begun in {self.origin}, where its tasks and modules are found, and that cannot be "
                    f"entered: {error.strerror}; bring it back, or change origin.folder in {self.shown / CONFIG}"
                ) from error
            yield


def begun_in(folder: Path) -> Begun:
    """The run that a folder holds. Raises `UsageError` for a folder that holds none, or one in use, naming its
    process."""
    config = folder / CONFIG
    try:
        if not folder.is_dir():
            what = "is no folder" if folder.exists() else "is not there"
            raise UsageError(f"{folder} {what}; name the folder of a run")
        holds = (folder / TRACES).exists()
        described = config.exists()
    except OSError as error:  # a name that is too long, say
        raise UsageError(f"{folder}: cannot be read: {error.strerror}") from error
    if not holds:
        raise UsageError(f"the folder {folder} holds no run ({TRACES} is missing), so there is nothing to resume")
    _refuse_if_in_use(folder)
    if not described:
        raise UsageError(
            f"the folder {folder} holds a run that says nothing of its settings ({CONFIG} is missing): a program began "
            f"it, and resumes it by engine.resume(…), or it ended before it began, and is to be run anew"
        )
    settings = read_settings(config)
    origin = settings.origin
    if origin is None or origin.folder is None or origin.run is None:
        missing = "folder" if origin is None or origin.folder is None else "run"
        raise UsageError(
            f"{config}: origin.{missing} is missing, which says "
            + ("in which folder the run was begun" if missing == "folder" else "the run's id")
            + f"; put it back: [origin], {missing} = …"
        )
    _refuse_another_endpoint(settings, origin.endpoint, config)
    return Begun(
        settings=evolve(settings, origin=None),
        folder=Path(os.path.abspath(folder)),
        shown=folder,
        origin=Path(origin.folder),
        run_id=origin.run,
    )


def _refuse_if_in_use(folder: Path) -> None:
    """Said before anything is read or imported. The engine asks again, so nothing depends on it."""
    if not (folder / LOCK).exists():
        return
    lock = FolderLock(folder)
    try:
        lock.acquire("")
        lock.release()
    except OSError as error:
        kind = UnwrittenError if is_of_the_disk(error) else UsageError
        text = str(error) if error.filename is None else f"the folder {folder} cannot be written: {error.strerror}"
        raise kind(text) from error


def _refuse_another_endpoint(settings: Settings, endpoint: str | None, config: Path) -> None:
    variable = endpoint_variable(settings.model)
    now = os.environ.get(variable, "").strip()
    said = settings.model is not None and settings.model.base_url is not None
    if endpoint is not None and not said and shown_url(now) != endpoint:
        raise UsageError(
            f"the run asked its model at {endpoint}, as {variable} said, which is {shown_url(now) or 'not set'} "
            f"now; set it again, or say base_url under [model] in {config}"
        )
