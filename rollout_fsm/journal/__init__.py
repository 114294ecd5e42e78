"""What must survive a crash of the process, beside the finished traces (L73).

The journal tells a process that comes after which attempts were begun, how far each came, what was acquired and not
released, and the records of those whose exchange was over. It is no log for people, and it holds nothing that
`traces.jsonl` holds as well. The invariant: what `durable` has returned for is on disk.

It is imported by who has a folder: without one nothing is written, and no database is needed.
"""

from typing import TYPE_CHECKING

from rollout_fsm.journal.errors import JournalError
from rollout_fsm.lazy_names import lazy_names

if TYPE_CHECKING:
    from rollout_fsm.journal.journal import Acquisition, Journal, JournalEntry
    from rollout_fsm.journal.reading import read_journal
    from rollout_fsm.journal.records import Attempt, End, JournalContent, Lease, Process, Snapshot

__all__ = [
    "Acquisition",
    "Attempt",
    "End",
    "Journal",
    "JournalContent",
    "JournalEntry",
    "JournalError",
    "Lease",
    "Process",
    "Snapshot",
    "read_journal",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Acquisition": "rollout_fsm.journal.journal",
            "Attempt": "rollout_fsm.journal.records",
            "End": "rollout_fsm.journal.records",
            "Journal": "rollout_fsm.journal.journal",
            "JournalContent": "rollout_fsm.journal.records",
            "JournalEntry": "rollout_fsm.journal.journal",
            "Lease": "rollout_fsm.journal.records",
            "Process": "rollout_fsm.journal.records",
            "Snapshot": "rollout_fsm.journal.records",
            "read_journal": "rollout_fsm.journal.reading",
        },
    )
