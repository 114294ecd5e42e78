"""`rollout-fsm resume`: a run that was interrupted or cut off is gone on with, as it was begun."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import trio
from attrs import evolve
from cyclopts import Parameter

from rollout_fsm.cli.before import NOTHING, asked_for, counted, owed, rollouts, written_in
from rollout_fsm.cli.command import Command
from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.harmless import harmless, one_line
from rollout_fsm.cli.loading import current_folder_importable
from rollout_fsm.cli.logs import logging_to_terminal
from rollout_fsm.cli.origin import Begun, begun_in
from rollout_fsm.cli.preparing import CONFIG, Prepared, prepared_from
from rollout_fsm.cli.reporting import report
from rollout_fsm.cli.running import run_prepared
from rollout_fsm.cli.screen import Screen
from rollout_fsm.cli.settings import Settings, faults, flag
from rollout_fsm.identity import Identity
from rollout_fsm.journal.reading import read_journal
from rollout_fsm.journal.records import JournalContent
from rollout_fsm.output import JOURNAL, TRACES

__all__ = ["resume"]

LONGEST = 60


def resume(
    output_dir: Annotated[Path, Parameter(metavar="OUTPUT_DIR")],
    /,
    *more: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    max_concurrent: Annotated[int | None, Parameter(name=("--max-concurrent", "-c"))] = None,
    fail_on_error: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    verbose: Annotated[int, Parameter(name=("--verbose", "-v"), count=True, show_default=False)] = 0,
) -> Command:
    """Go on with a run that was cut off or interrupted: what it still owes is run, with the settings it was begun with.

    A rollout is owed if its trace is not in traces.jsonl, if it was aborted, or if its task has another content now.
    What a dead process left (programs, workspaces) is removed first; where an agent had finished and its box still
    stands, the rollout goes on to scoring. Relative names are found in the folder in which the run was begun. The
    summary is of the whole run. Exit codes are those of `run`.

    Parameters
    ----------
    output_dir
        The folder of the run.
    max_concurrent
        Rollouts at once, at most; else as the run was begun.
    fail_on_error
        Exit with 1 if any rollout of the run was not ok.
    dry_run
        Print what is owed and why, and run nothing; with -v each rollout by name.
    verbose
        Log more on standard error; twice for everything.
    """
    changed = Settings(max_concurrent=max_concurrent, fail_on_error=fail_on_error or None)

    def command(screen: Screen) -> int:
        if more:
            raise UsageError(_refusal(more[0], output_dir))
        if wrong := [f"{flag(path)}: {what}" for path, what in faults(changed)]:
            raise UsageError(*wrong)
        begun = begun_in(output_dir)
        with begun.where_it_was_begun(), current_folder_importable(), logging_to_terminal(verbose):
            prepared = _prepared(begun, changed)
            hashes = asked_for(prepared.tasks, prepared.rollouts_per_task)
            if dry_run:
                return _say_what_is_owed(prepared, hashes, screen, each=verbose > 0)
            with _reading():
                before = counted(written_in(prepared.folder, lambda *_: None), hashes)  # faults are the engine's to say
            prepared = evolve(prepared, before=before)
            return report(prepared, trio.run(run_prepared, prepared, screen), screen)

    return command


def _refusal(word: str, folder: Path) -> str:
    if word.startswith("-"):
        return (
            f"{word}: a run is resumed as it was begun ({folder / CONFIG} says how); "
            f"resume takes -c, -v, --fail-on-error and --dry-run"
        )
    return f"too many arguments: {word!r}; resume takes one folder of a run"


def _prepared(begun: Begun, changed: Settings) -> Prepared:
    """The run, made again. What is wrong is wrong with its settings, or with what they name."""
    said = evolve(
        begun.settings,
        max_concurrent=changed.max_concurrent or begun.settings.max_concurrent,
        fail_on_error=changed.fail_on_error or begun.settings.fail_on_error,
    )
    return prepared_from(said, run_id=begun.run_id, folder=begun.folder, shown=begun.shown)


def _say_what_is_owed(prepared: Prepared, hashes: Mapping[Identity, str], screen: Screen, *, each: bool) -> int:
    def damaged(number: int, why: str) -> None:
        path = prepared.shown / TRACES
        screen.complain(f"rollout-fsm: {path}: line {number} is no trace: {why}; passed over", "yellow")

    with _reading():
        written, content = written_in(prepared.folder, damaged), _journal(prepared, screen)
    why, boxes = owed(hashes, written, content)
    screen.say(f"{harmless(prepared.name)}   {len(why)} of {rollouts(prepared.total)} owed")
    for reason, count in Counter(why.values()).most_common():
        screen.say(f"{count:>6}  {reason}")
    for line in counted(written, hashes).what_changed():
        screen.say(line)
    if boxes:
        screen.say(f"a dead process left {len(boxes)} box{'es'[: 2 * (len(boxes) > 1)]}, which would be removed first:")
        for box in boxes:
            screen.say(f"        {box.kind} {one_line(box.name, LONGEST)}")
    if each and why:
        screen.say()
        for identity, reason in why.items():
            screen.say(f"{one_line(str(identity), LONGEST)}  {reason}")
    return 0


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(str(error) if error.errno is None else f"{error.filename}: {error.strerror}") from error


def _journal(prepared: Prepared, screen: Screen) -> JournalContent:
    path = prepared.folder / JOURNAL
    if path.exists():
        return read_journal(path)
    screen.complain(
        f"rollout-fsm: {prepared.shown / JOURNAL} is missing, so how far the rollouts came is not known", "yellow"
    )
    return NOTHING
