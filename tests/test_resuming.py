"""What a run that was cut off owes: for everything that one attempt can have left on disk, and for two in a row."""

import json
from collections.abc import Iterator, Sequence
from itertools import count, product

import pytest
from attrs import evolve, frozen

from rollout_fsm.flow import DRAINED
from rollout_fsm.identity import Identity
from rollout_fsm.journal import Attempt, End, JournalContent, Lease, Snapshot
from rollout_fsm.machine.lifecycle import lifecycle
from rollout_fsm.messages import JSON
from rollout_fsm.output import Written
from rollout_fsm.past import Past
from rollout_fsm.resuming import Resumption, resumption

ROLLOUT = Identity("task", 1, 0)
NOW, BEFORE = "as it is", "as it was"
HASHES = {ROLLOUT: NOW}
STATES = lifecycle().declaration.states


@frozen(kw_only=True)
class Left:
    """What an attempt left on disk."""

    state: str = "stepping"
    """The last one that the journal knows."""
    snapshot: str | None = None
    """The state of which the trace was kept."""
    drained: bool = False
    end: str | None = None
    """None, "written", or "retry": what the journal says about it."""
    written: str | None = None
    """The last state of its trace in the file; None if it is not there."""
    hash: str = NOW
    retried: bool = False
    """Whether its trace says that another attempt was to follow."""

    @property
    def over(self) -> bool:
        """Whether its exchange was over, and is not to be had again."""
        return STATES[self.state].group == "closing" and not self.drained

    @property
    def stays(self) -> bool:
        """Whether its trace is there and counts."""
        counts = self.written in ("completed", "failed") and not self.drained and not self.retried
        return counts and self.hash == NOW


def each() -> Iterator[Left]:
    """Everything that an attempt can leave, and more: the two files are written one after the other."""
    for state, drained, hash in product(STATES, (False, True), (NOW, BEFORE)):
        snapshots = (
            [state, *(["releasing"] if state == "completed" else [])] if STATES[state].group == "closing" else []
        )
        for snapshot, end, written in product(
            [None, *snapshots], (None, "written", "retry"), (None, "completed", "failed", "aborted")
        ):
            yield Left(state=state, snapshot=snapshot, drained=drained, end=end, written=written, hash=hash)


def on_disk(*left: Left) -> tuple[list[Written], JournalContent]:
    """What is in the file of traces, and what in the journal."""
    numbered = [(number, f"t{number}", found) for number, found in zip(count(1), left, strict=False)]
    attempts = [attempt(number, name, found) for number, name, found in numbered]
    written = [of_trace(name, found) for _, name, found in numbered if found.written is not None]
    return written, JournalContent(processes=(), attempts=attempts)


def attempt(number: int, name: str, left: Left) -> Attempt:
    trace = json.dumps({"id": name, "stop_condition": DRAINED if left.drained else None})
    retry = told(name) if left.end == "retry" else None
    return Attempt(
        number=number,
        trace=name,
        identity=ROLLOUT,
        hash=left.hash,
        attempt=number,
        began=float(number),
        state=left.state,
        leases=[Lease(number=number, kind="runtime", name=name, owner="boxes:Box", data={})],
        snapshot=None if left.snapshot is None else Snapshot(state=left.snapshot, trace=trace),
        end=None if left.end is None else End(state=left.state, written=left.end == "written", retry=retry),
    )


def of_trace(name: str, left: Left) -> Written:
    return Written(
        id=name,
        identity=ROLLOUT,
        hash=left.hash,
        state=left.written,
        stop_condition=DRAINED if left.drained else None,
        to_be_retried=left.retried,
        ok=left.written == "completed",
        digest=name,
    )


def told(name: str) -> JSON:
    """What a journal says of an attempt that another one followed."""
    return {"id": name, "errors": [{"type": "ProviderError"}]}


def ids(past: Past) -> list[object]:
    return [said["id"] for said in past.earlier if isinstance(said, dict)]


def decided(*left: Left) -> Resumption:
    written, content = on_disk(*left)
    return resumption(HASHES, written, content)


def test_a_rollout_is_done_exactly_where_a_trace_of_it_counts() -> None:
    for left in each():
        found = decided(left)
        assert (found.done == {ROLLOUT}) == left.stays, left
        assert len(found.superseded) == (left.written is not None and not left.stays), left
        assert not found.done or not found.past, left


def test_a_trace_that_counts_no_more_says_why() -> None:
    reasons = {
        Left(written="aborted", state="aborted"): "the rollout was aborted",
        Left(written="completed", drained=True): "the rollout was drained",
        Left(written="failed", retried=True): "another attempt was to follow",
        Left(written="completed", hash=BEFORE): f"the content of the task changed: its hash was {BEFORE} and is {NOW}",
    }
    for left, why in reasons.items():
        assert list(decided(left).superseded.values()) == [why]


def test_what_is_gone_on_with_was_over_is_kept_and_is_neither_written_nor_ended() -> None:
    taken = set()
    for left in each():
        past = decided(left).past.get(ROLLOUT)
        goes_on = past is not None and past.left is not None
        may = left.over and left.hash == NOW and left.snapshot is not None and left.end is None
        assert goes_on == (may and left.written is None), left
        if goes_on:
            taken.add(left.state)
    assert taken == {name for name, state in STATES.items() if state.group == "closing"}


def test_a_trace_that_was_kept_in_an_earlier_state_is_gone_on_with_only_where_its_rollout_had_ended() -> None:
    for state, snapshot in product(STATES, STATES):
        past = decided(Left(state=state, snapshot=snapshot)).past[ROLLOUT]
        closing = STATES[state].group == "closing"
        assert (past.left is not None) == (closing and (state in (snapshot, "completed"))), (state, snapshot)


def test_every_box_is_removed_or_gone_on_in() -> None:
    for left in each():
        found = decided(left)
        removed = [lease.number for lease in found.leases]
        kept = [past.left.number for past in found.past.values() if past.left is not None]
        assert sorted(removed + kept) == [1], left


def test_a_box_of_this_process_is_neither_removed_nor_gone_on_in() -> None:
    for left in each():
        written, content = on_disk(left)
        found = resumption(HASHES, written, content, live=["t1"])
        assert (found.leases, found.past) == ([], {}), left


def test_an_attempt_is_told_of_unless_its_trace_is_kept_elsewhere_or_it_is_of_another_content() -> None:
    for left in each():
        past = decided(left).past.get(ROLLOUT)
        if past is None:
            assert left.stays or left.hash == BEFORE, left
            continue
        elsewhere = left.written is not None or left.end == "written" or (left.end is None and left.state == "aborted")
        assert ids(past) == ([] if past.left is not None or elsewhere else ["t1"]), left
        assert past.cut_off == (bool(ids(past)) and left.end is None), left


def test_an_attempt_that_died_with_its_process_is_told_of_in_the_state_in_which_it_died() -> None:
    (said,) = decided(Left(state="setup")).past[ROLLOUT].earlier
    assert said == {"id": "t1", "errors": [], "cut_off": "setup", "start": 1.0}


PAIRS = [
    Left(),
    Left(state="failed", end="retry"),
    Left(state="failed"),
    Left(state="scoring", snapshot="scoring"),
    Left(state="completed", snapshot="releasing", drained=True),
    Left(state="completed", snapshot="releasing", end="written", hash=BEFORE),
    Left(state="aborted", written="aborted"),
    Left(state="completed", snapshot="releasing", written="completed"),
]


@pytest.mark.parametrize("before", PAIRS)
@pytest.mark.parametrize("last", [left for left in PAIRS if left.hash == NOW])
def test_of_two_attempts_only_the_last_is_gone_on_with_and_the_first_is_judged_as_if_it_were_alone(
    before: Left, last: Left
) -> None:
    found, alone = decided(before, last), decided(before, Left())
    if before.stays or last.stays:
        assert (found.done, found.past) == ({ROLLOUT}, {})
        assert {lease.number for lease in found.leases} == {1, 2}
        return
    past = found.past.get(ROLLOUT, Past())
    assert past.left is None or past.left.number == 2
    assert [name for name in ids(past) if name == "t1"] == [name for name in ids(alone.past[ROLLOUT]) if name == "t1"]
    assert ids(past) == sorted(ids(past), key=str)
    assert len(found.leases) == 2 - (past.left is not None)


def test_a_resumption_that_is_cut_off_once_its_traces_are_moved_decides_the_same_the_next_time() -> None:
    for left in each():
        written, content = on_disk(left)
        first = resumption(HASHES, written, content)
        again = resumption(HASHES, [trace for trace in written if trace not in first.superseded], content)
        assert (again.done, again.superseded) == (first.done, {}), left
        noted = left.end == "written" or (left.end is None and left.state == "aborted")
        if first.superseded and noted:
            assert [(ids(past), past.left) for past in again.past.values()] == [([], None)] * len(first.past), left
        if left.drained:
            assert all(past.left is None for past in again.past.values()), left


@pytest.mark.parametrize("noted", [False, True])
def test_an_attempt_that_another_was_to_follow_is_told_of_though_its_trace_is_there(noted: bool) -> None:
    written, content = on_disk(Left(state="failed", end="retry", written="failed", retried=True))
    if noted:
        end = End(state="failed", written=True, retry=told("t1"))
        content = evolve(content, attempts=[evolve(found, end=end) for found in content.attempts])
    found = resumption(HASHES, written, content)
    assert (found.done, list(found.superseded)) == (frozenset(), written)
    past = found.past[ROLLOUT]
    assert (list(past.earlier), past.cut_off, past.left) == ([told("t1")], 0, None)
    assert resumption(HASHES, [], content).past[ROLLOUT].earlier == [told("t1")], "it was moved, and the process died"


OTHERS = [{}, {Identity("another", 1, 0): NOW}, {Identity("task", 1, 1): NOW}, {Identity("task", 2, 0): NOW}]
"""What is asked for, all but the rollout."""


@pytest.mark.parametrize("asked", OTHERS)
def test_rollouts_that_nobody_asks_for_stay_as_they_are_and_only_their_boxes_go(asked: dict[Identity, str]) -> None:
    for left in [*each(), Left(written="failed", retried=True)]:
        written, content = on_disk(left)
        found = resumption(asked, written, content)
        assert (found.past, len(found.leases), found.superseded) == ({}, 1, {}), left


@pytest.mark.parametrize("left", [Left(written="aborted"), Left(written="completed", drained=True)])
def test_a_trace_of_no_set_of_tasks_stays_whatever_became_of_it(left: Left) -> None:
    written, content = on_disk(left)
    alone = [evolve(trace, identity=None) for trace in written]
    assert resumption(HASHES, alone, content).superseded == {}


def test_a_rollout_that_came_out_of_no_set_of_tasks_is_not_owed_and_its_box_goes() -> None:
    written, content = on_disk(Left(state="scoring", snapshot="scoring"))
    alone = evolve(content, attempts=[evolve(found, identity=None) for found in content.attempts])
    found = resumption(HASHES, written, alone)
    assert (found.past, len(found.leases)) == ({}, 1)


@pytest.mark.parametrize("trace", ["", "no JSON", "[" * 100_000, "7", "[]"])
def test_a_kept_trace_that_cannot_be_read_is_left_to_whoever_reads_it(trace: str) -> None:
    kept = evolve(attempt(1, "t1", Left(state="scoring")), snapshot=Snapshot(state="scoring", trace=trace))
    content = JournalContent(processes=(), attempts=[kept])
    left: Sequence[Past] = list(resumption(HASHES, [], content).past.values())
    assert [past.left and past.left.trace for past in left] == ["t1"]


def test_a_state_that_no_longer_exists_makes_its_rollout_owed_anew() -> None:
    written, content = on_disk(Left())
    unknown = evolve(content, attempts=[evolve(content.attempts[0], state="resting")])
    found = resumption(HASHES, written, unknown)
    assert (ids(found.past[ROLLOUT]), found.past[ROLLOUT].left) == (["t1"], None)
