"""What a journal says, as records."""

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from rollout_fsm.identity import Identity
from rollout_fsm.messages import JSON


@frozen(kw_only=True)
class Process:
    """A process that ran, or went on with, the run. Times are in epoch seconds."""

    run_id: str
    name: str | None = None
    pid: int
    host: str
    started: float
    cwd: str


@frozen(kw_only=True)
class Lease:
    """Something acquired, or about to be: what another process needs to find and remove it."""

    number: int
    """The journal's own, for `Journal.released`."""
    kind: str
    """What it is: "runtime"."""
    name: str
    owner: str
    """The class that made it, as `module:Qualname`."""
    data: Mapping[str, JSON]


@frozen(kw_only=True)
class Snapshot:
    """A trace as it was before its rollout ended."""

    state: str
    """The state that its last transition led to."""
    trace: str = field(repr=False)
    """Its JSON, on one line."""


@frozen(kw_only=True)
class End:
    """How an attempt ended."""

    state: str
    """The final state."""
    written: bool
    """Whether its trace is in `traces.jsonl`, which decides where the two disagree: it is written first."""
    retry: JSON = None
    """Of an attempt that another one follows: what that one's trace is to tell of it, errors and usage say."""


@frozen(kw_only=True)
class Attempt:
    """An attempt at a rollout, and how far it came."""

    number: int
    """The journal's own, for `Journal.entry`."""
    trace: str
    """The id of its trace."""
    identity: Identity | None
    """None for a rollout that came out of no set of tasks."""
    hash: str | None
    """The content hash of its task."""
    attempt: int
    """1 for the first attempt at a rollout, 2 for the first retry."""
    began: float
    state: str
    """The state that its last transition led to."""
    leases: Sequence[Lease] = ()
    """What it acquired and did not release."""
    snapshot: Snapshot | None = None
    end: End | None = None
    """None for one that had not ended."""


@frozen(kw_only=True)
class JournalContent:
    """All that a journal says, each kind in the order in which it was recorded."""

    processes: Sequence[Process]
    attempts: Sequence[Attempt]
