"""What a run that was cut off still owes: decided on what it left on disk, before anything is started.

A rollout is done if its trace is in `traces.jsonl` and nobody cut it off. One whose exchange was over when the process
died is gone on with, if its box still stands; any other is owed anew. What is started twice, or lost, would be worse
than what is done again, so in doubt a rollout is owed.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import field, frozen

from rollout_fsm.flow import DRAINED
from rollout_fsm.identity import Identity
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.messages import JSON
from rollout_fsm.output import Written, outdated
from rollout_fsm.past import Past, told_of

if TYPE_CHECKING:
    from rollout_fsm.journal import Attempt, JournalContent, Lease, Snapshot


@frozen(kw_only=True)
class Resumption:
    """What is to be done with what a run left."""

    done: frozenset[Identity]
    """Rollouts whose traces stay."""
    superseded: Mapping[Written, str]
    """Traces that count no more, each with the reason."""
    past: Mapping[Identity, Past]
    leases: "Sequence[Lease]" = field(repr=False)
    """Boxes that a dead process left and nobody goes on with: they are to be removed."""


def resumption(
    hashes: Mapping[Identity, str], written: Iterable[Written], content: "JournalContent", *, live: Iterable[str] = ()
) -> Resumption:
    """What a run owes. `hashes`: the content of the tasks' rollouts that are asked for; `live`: the ids of traces whose
    rollouts are this process's own."""
    found, own = list(written), frozenset(live)
    asked = [trace for trace in found if trace.identity in hashes]
    superseded = {**{trace: why for trace in asked if (why := _cut_off(trace)) is not None}, **outdated(found, hashes)}
    done = frozenset(trace.identity for trace in found if trace.identity is not None and trace not in superseded)
    kept = {trace.id for trace in found if not trace.to_be_retried}
    attempts: defaultdict[Identity, list[Attempt]] = defaultdict(list)
    for attempt in content.attempts:
        asked_for = attempt.identity in hashes and attempt.identity not in done and attempt.trace not in own
        if attempt.identity is not None and asked_for and attempt.hash == hashes[attempt.identity]:
            attempts[attempt.identity].append(attempt)
    past = {identity: _past(before, kept) for identity, before in attempts.items()}
    gone_on_with = {before.left.number for before in past.values() if before.left is not None}
    leases = [
        lease
        for attempt in content.attempts
        if attempt.number not in gone_on_with and attempt.trace not in own
        for lease in attempt.leases
    ]
    return Resumption(done=done, superseded=superseded, past=past, leases=leases)


def _cut_off(trace: Written) -> str | None:
    """Why the rollout of a written trace is owed all the same; None if it is not."""
    if _has_been_aborted(trace.state or ""):
        return "the rollout was aborted"
    if trace.to_be_retried:
        return "another attempt was to follow"
    return "the rollout was drained" if trace.stop_condition == DRAINED else None


def _past(attempts: "Sequence[Attempt]", kept: Iterable[str]) -> Past:
    """Of one rollout's attempts, oldest first, what a further one has to know."""
    written, earlier, cut_off = frozenset(kept), list[JSON](), 0
    last = attempts[-1]
    left = last if last.trace not in written and _can_go_on(last) else None
    for attempt in attempts:
        if attempt is left or attempt.trace in written:
            continue
        if attempt.end is not None and attempt.end.retry is not None:
            earlier.append(attempt.end.retry)
        elif attempt.end is None and not _has_been_aborted(attempt.state):
            cut_off += 1
            earlier.append(told_of(attempt))
    return Past(earlier=earlier, cut_off=cut_off, left=left)


def _can_go_on(attempt: "Attempt") -> bool:
    """Whether its exchange was over, nobody cut that off, and its trace was kept as it stood then."""
    state = lifecycle().declaration.states.get(attempt.state)
    if attempt.snapshot is None or attempt.end is not None or state is None or state.group != "closing":
        return False
    return (state.kind == "final" or attempt.snapshot.state == attempt.state) and not _was_drained(attempt.snapshot)


def _was_drained(snapshot: "Snapshot") -> bool:
    """Whether what it would come to would be owed all the same."""
    try:
        trace = json.loads(snapshot.trace)
    except (ValueError, RecursionError):  # said where it is read
        return False
    return isinstance(trace, dict) and trace.get("stop_condition") == DRAINED


def _has_been_aborted(state: str) -> bool:
    """Whether that is how it ended: its trace was written, and is kept beside."""
    declared = lifecycle().declaration.states.get(state)
    return declared is not None and declared.group == "cancellation" and declared.kind == "final"
