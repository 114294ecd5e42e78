"""What must survive a crash of the process, beside the finished traces (L73).

The journal tells a process that comes after which attempts were begun, how far each came, what was acquired and not
released, and the records of those whose exchange was over. It is no log for people, and it holds nothing that
`traces.jsonl` holds as well. The invariant: what `durable` has returned for is on disk.
"""

from rollout_fsm.journal.database import JournalError
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
