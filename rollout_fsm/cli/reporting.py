"""What came of a run, said: the summary of the whole run on standard output, every loss on standard error; and the exit
code that follows.

A run that was gone on with is summed up as if it had never been cut off: whoever resumes it wants the numbers of the
run, not of its last part.
"""

from rich.text import Text

from rollout_fsm.cli.faults import EXIT_FAULTS, EXIT_UNWRITTEN
from rollout_fsm.cli.harmless import harmless
from rollout_fsm.cli.numbers import seconds
from rollout_fsm.cli.preparing import CONFIG, LOG, Prepared, resume_line
from rollout_fsm.cli.running import Ran
from rollout_fsm.cli.screen import Screen
from rollout_fsm.cli.tables import summary_tables
from rollout_fsm.exact_json import FormatError
from rollout_fsm.output import TRACES
from rollout_fsm.traces_file import read_traces

__all__ = ["report"]


def report(prepared: Prepared, ran: Ran, screen: Screen) -> int:
    """Say what came of the run; returns the exit code."""
    summary, interrupted = ran.board.summary, ran.interruption.by is not None
    unread = _add_those_before(prepared, ran)
    before = ran.board.before
    head = Text.assemble(
        "\n ",
        (harmless(prepared.name), "bold"),
        f"   {summary.rollouts} of {prepared.total} rollouts, {summary.ok} ok, ",
        f"{summary.retried} tried again, " if summary.retried else "",
        f"{before} done before, " if before else "",
        f"in {seconds(ran.seconds)}",
        (", interrupted" if interrupted else "", "yellow"),
        "\n",
    )
    screen.say(head)
    if summary.rollouts:
        screen.show(summary_tables(summary))
    if prepared.folder.exists():
        for what, name in (("traces", TRACES), ("settings", CONFIG), ("log", LOG)):
            screen.say(Text.assemble(" ", (f"{what:<10}", "dim"), harmless(str(prepared.shown / name))))
        if interrupted or ran.lost:
            screen.say(Text.assemble(" ", (f"{'go on by':<10}", "dim"), harmless(resume_line(prepared.shown))))
    screen.flush()
    if unread:
        screen.complain(
            f"rollout-fsm: {unread} of the traces that were there before cannot be read whole, so the summary is "
            f"without them; `rollout-fsm check` says why"
        )
    unwritten = _complain_of_losses(ran, screen)
    if interrupted:
        return ran.interruption.exit_code
    if unwritten:
        return EXIT_UNWRITTEN
    return EXIT_FAULTS if prepared.settings.fail_on_error and summary.not_ok else 0


def _add_those_before(prepared: Prepared, ran: Ran) -> int:
    """Add the traces of earlier processes to the summary; returns how many of them cannot be read."""
    if prepared.before is None or not prepared.before.done:
        return 0

    def passed_over(number: int, error: FormatError) -> None:
        """The engine has said it, or `check` will."""

    left = set(prepared.before.done)
    for trace in read_traces(prepared.folder / TRACES, on_fault=passed_over):
        if trace.id in left:
            left.discard(trace.id)
            ran.board.summary.add(trace)
    return len(left)


def _complain_of_losses(ran: Ran, screen: Screen) -> bool:
    """A line for each thing that could not be written; returns whether there was any."""
    for lost in ran.lost:
        screen.complain(f"rollout-fsm: the trace of rollout {lost.id} is lost: {lost.error}")
    if ran.journal_failed is not None:
        screen.complain(
            f"rollout-fsm: not all was kept for a crash: {ran.journal_failed} (what has finished is in {TRACES})"
        )
    if ran.log_failed is not None:
        screen.complain(f"rollout-fsm: the log could not be written: {ran.log_failed}")
    return bool(ran.lost) or ran.journal_failed is not None or ran.log_failed is not None
