"""The table of LIFECYCLE.md, section 1, written out a second time: what the shipped states are compared with.

It is parsed by hand and knows nothing of the package, so that an error in the declaration or its loader cannot hide
in it.
"""

from collections.abc import Iterator
from itertools import product

from attrs import define

GUARDS = (
    "opens_conversation",
    "has_user",
    "runtime_lost",
    "stop_requested",
    "model_failed",
    "agent_survives",
    "advanced",
    "expiry_stops",
    "no_progress_fails",
)

STATES = """
created      | resting  |          |          |          | opening
booting      | active   | boot     | boot     | boot     | opening
setup        | active   | setup    | setup    | setup    | opening
waiting      | resting  | agent    |          |          | exchange
stepping     | active   | agent    | segment  | agent    | exchange
stopping     | active   | agent    | segment  | agent    | exchange
stopped      | resting  |          |          |          | closing
closing      | shielded |          | close    |          | closing
finalizing   | active   | finalize | finalize | finalize | closing
scoring      | active   | scoring  | score    | scoring  | closing
releasing    | shielded |          | release  |          | closing
completed    | final    |          |          |          | closing
failing      | resting  |          |          |          | failure
discarding   | shielded |          | release  |          | failure
failed       | final    |          |          |          | failure
aborting     | shielded |          | release  |          | cancellation
aborted      | final    |          |          |          | cancellation
"""

TABLE = """
created | open | runtime_lost | aborted |
created | open | opens_conversation | booting |
created | open | | failing | error
created | close | | aborted |
created | cancel | | aborted | cancelled
booting | booted | | setup |
setup | ready | stop_requested | stopped |
setup | ready | | waiting |
waiting | step | | stepping |
waiting | stop | | stopped |
waiting | close | has_user | closing | user_closed
waiting | close | | closing | agent_completed
stopped | close | | closing |
booting, setup, stepping, stopping, finalizing, scoring | timed_out, errored | runtime_lost | aborting |
stepping, stopping | segment_ended, timed_out, errored | agent_survives | failing | error
stepping | refused | | stopping | (given)
stepping | segment_ended | model_failed | failing | error
stepping | segment_ended | stop_requested | stopped |
stepping | segment_ended | advanced | waiting |
stepping | segment_ended | no_progress_fails | failing | error
stepping | segment_ended | | stopped | no_progress
stepping | timed_out | expiry_stops | stopped | agent_timeout
stopping | segment_ended, timed_out, errored | | stopped |
closing | closed | | finalizing |
finalizing | finalized | | scoring |
scoring | scored | | releasing |
booting, setup, stepping | timed_out, errored | | failing | error
finalizing, scoring | timed_out, errored | | discarding | error
created, waiting, stopped | errored | | failing | error
failing | close | | discarding |
releasing | released | | completed |
discarding | released | | failed |
aborting | released | | aborted |
booting, setup, waiting, stepping, stopping, stopped, finalizing, scoring, failing | cancel | | aborting | cancelled
stopping | refused | | (same) |
stopped, failing | step, stop | | (same) |
failing | errored | | (same) |
completed, failed | close, cancel | | (same) |
aborted | open, step, stop, errored, close, cancel | | (same) |
"""

OracleRow = tuple[str | None, str, str | None]
"""Guard, target, stop condition set."""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def table() -> dict[tuple[str, str], list[OracleRow]]:
    """The rows of every (state, trigger), in the order in which they are asked."""
    rows: dict[tuple[str, str], list[OracleRow]] = {}
    for line in TABLE.strip().splitlines():
        sources, triggers, guard, to, sets = cells(line)
        for source, trigger in product(sources.split(", "), triggers.split(", ")):
            rows.setdefault((source, trigger), []).append((guard or None, to, sets or None))
    return rows


@define(kw_only=True, eq=False)
class Facts:
    """Settable facts; all false."""

    opens_conversation: bool = False
    has_user: bool = False
    runtime_lost: bool = False
    stop_requested: bool = False
    model_failed: bool = False
    agent_survives: bool = False
    advanced: bool = False
    expiry_stops: bool = False
    no_progress_fails: bool = False


@define(eq=False)
class Subject:
    """What is fired: a state and nothing else."""

    state: str


def valuations() -> Iterator[tuple[frozenset[str], Facts]]:
    """Every valuation of the nine guards: what holds, and facts that say so."""
    for bits in product((False, True), repeat=len(GUARDS)):
        values = dict(zip(GUARDS, bits, strict=True))
        yield frozenset(name for name, bit in values.items() if bit), Facts(**values)
