"""What a run that is gone on with has done before, and what it owes: read off its folder, nothing is changed.

What is owed is decided by `resuming`, as the engine decides it; here it is counted and explained.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from rollout_fsm.batch import jobs
from rollout_fsm.identity import Identity
from rollout_fsm.journal.records import JournalContent, Lease
from rollout_fsm.output import TRACES, Written, outdated, read_written
from rollout_fsm.past import Past
from rollout_fsm.resuming import resumption
from rollout_fsm.task import Task

__all__ = ["NOTHING", "Before", "asked_for", "counted", "owed", "rollouts", "written_in"]

NOTHING = JournalContent(processes=(), attempts=())
"""What a journal says that is not there."""


@frozen(kw_only=True, eq=False)
class Before:
    """What was done before."""

    done: frozenset[str]
    """The ids of the traces that stay, and count."""
    changed: int
    """Traces whose task has another content now, so that they count no more."""
    strangers: int
    """Traces of rollouts that are not asked for any more: they stay, and do not count."""

    def lines(self, total: int) -> Iterator[str]:
        """What there is to say of it, when so many rollouts are asked for."""
        done = len(self.done)
        if done == total:
            yield f"nothing is owed: all {rollouts(total)} are done"
        else:
            yield f"{done} of {rollouts(total)} done before, {total - done} owed"
        yield from self.what_changed()

    def what_changed(self) -> Iterator[str]:
        """What is not any more as it was when the run was begun."""
        if self.changed:
            yield f"{_traces_are(self.changed)} of tasks whose content has changed since: owed again"
        if self.strangers:
            yield (
                f"{_traces_are(self.strangers)} of rollouts that the run does not ask for (any more): kept in "
                f"{TRACES}, and not counted"
            )


def asked_for(tasks: Iterable[Task], rollouts_per_task: int) -> dict[Identity, str]:
    """Every rollout that a run is to do, with the content hash of its task."""
    return {job.identity: job.task.hash for job in jobs(tasks, rollouts_per_task)}


def written_in(folder: Path, on_fault: Callable[[int, str], None]) -> list[Written]:
    """The traces of a folder. `on_fault` is told of each line that is none. Raises `OSError`."""
    return list(read_written(folder / TRACES, on_fault))


def counted(written: Sequence[Written], hashes: Mapping[Identity, str]) -> Before:
    """What these traces say."""
    found = resumption(hashes, written, NOTHING)
    done: dict[Identity, str] = {}
    strangers = 0
    for trace in written:
        if trace in found.superseded:
            continue
        if trace.identity is not None and trace.identity in hashes:
            done.setdefault(trace.identity, trace.id)
        else:
            strangers += 1
    return Before(
        done=frozenset(done.values()),
        changed=len(set(outdated(written, hashes)) & set(found.superseded)),
        strangers=strangers,
    )


def owed(
    hashes: Mapping[Identity, str], written: Sequence[Written], content: JournalContent
) -> tuple[dict[Identity, str], Sequence[Lease]]:
    """Each rollout that is owed, with the reason; and the boxes that are to be removed."""
    found = resumption(hashes, written, content)
    taken_back = {trace.identity: why.partition(":")[0] for trace, why in found.superseded.items()}
    reasons = {
        identity: taken_back.get(identity) or _why(found.past.get(identity))
        for identity in hashes
        if identity not in found.done
    }
    return reasons, found.leases


def rollouts(count: int) -> str:
    """So many of them, in words."""
    return f"{count} rollout{'' if count == 1 else 's'}"


def _traces_are(count: int) -> str:
    return f"{count} of the traces {'is' if count == 1 else 'are'}"


def _why(past: Past | None) -> str:
    if past is None:
        return "it was not begun"
    if past.left is not None:
        return f"its process died in {past.left.state}: it goes on from there if its box still stands"
    if not past.earlier:
        return f"its trace is not in {TRACES}"
    last = past.earlier[-1]
    state = last.get("cut_off") if isinstance(last, dict) else None
    return f"its process died in {state}" if state else "it was to be tried again"
