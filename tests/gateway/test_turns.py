"""The book of turns alone: what it remembers, and which turn another attempt is given."""

from contextlib import AbstractContextManager
from typing import Literal

import pytest
import trio
from attrs import define, field, frozen
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from rollout_fsm.gateway.calls import _Asking
from rollout_fsm.gateway.dialects.chat import ChatDialect
from rollout_fsm.gateway.dialects.dialect import Renderer
from rollout_fsm.gateway.reply import Reply
from rollout_fsm.gateway.slots import Slots
from rollout_fsm.gateway.turns import AHEAD, REMEMBERED, REMEMBERED_BYTES, Client, Turn, Turns
from rollout_fsm.messages import Request, UserMessage

from .sessions import Scripted


def over(turns: Turns, identity: bytes, size: int = 1, *, delivered: bool = True) -> Turn:
    """A turn that is committed."""
    turn = turns.new(identity)
    turn.end("committed", Reply(status=200, body=b"x" * size))
    turn.delivered = delivered
    return turn


def failed(turns: Turns, identity: bytes) -> Turn:
    turn = turns.new(identity)
    turn.end("failed", Reply(status=500, body=b"x" * 1000))
    turn.delivered = True
    return turn


def test_so_many_turns_are_remembered_and_no_more() -> None:
    turns = Turns()
    made = [over(turns, b"%d" % number) for number in range(3 * REMEMBERED)]
    running = turns.new(b"running")
    assert [turns.tried_before(turn.identity) for turn in made] == [
        *[None] * (2 * REMEMBERED),
        *made[2 * REMEMBERED :],
    ]
    assert turns.tried_before(b"running") is running


def test_so_many_bytes_are_remembered_and_the_latest_turn_whatever_its_size() -> None:
    turns = Turns()
    first = over(turns, b"1", REMEMBERED_BYTES)
    second = over(turns, b"2", 10 * REMEMBERED_BYTES)
    turns.new(b"3")
    assert turns.tried_before(b"1") is first
    assert turns.tried_before(b"2") is second
    over(turns, b"4")
    turns.new(b"5")
    assert turns.tried_before(b"2") is None
    assert len(turns._turns) <= 4


def test_the_turn_that_ended_last_is_kept_though_it_began_first() -> None:
    turns = Turns()
    long = turns.new(b"long")
    others = [over(turns, b"%d" % number) for number in range(REMEMBERED + 1)]
    long.end("committed", Reply(status=200, body=b"x" * 2 * REMEMBERED_BYTES))
    long.delivered = True
    turns.new(b"next")
    assert turns.tried_before(b"long") is long
    assert [turns.tried_before(turn.identity) for turn in others] == [None, None, *others[2:]]


def test_what_was_delivered_is_forgotten_before_what_was_not() -> None:
    turns = Turns()
    lost = over(turns, b"lost", delivered=False)
    made = [over(turns, b"%d" % number) for number in range(3 * REMEMBERED)]
    turns.new(b"next")
    kept = made[-REMEMBERED + 1 :]
    assert turns.tried_before(b"lost") is lost
    assert [turn for turn in made if turns.tried_before(turn.identity)] == kept
    over(turns, b"large", REMEMBERED_BYTES)
    over(turns, b"larger", 2 * REMEMBERED_BYTES)
    turns.new(b"next")
    assert turns.tried_before(b"lost") is lost
    assert turns.tried_before(b"large") is None  # with what is owed it is too much
    assert [turn for turn in made if turns.tried_before(turn.identity)] == []


def test_of_very_many_that_were_not_delivered_the_oldest_ends_are_forgotten() -> None:
    turns = Turns()
    made = [turns.new(b"%d" % number) for number in range(2 * REMEMBERED)]
    for turn in reversed(made):
        turn.end("committed", Reply(status=200, body=b"x"))
    turns.new(b"next")
    assert [turn for turn in made if turns.tried_before(turn.identity)] == made[:REMEMBERED]


def test_a_failure_is_forgotten_before_an_answer_that_was_not_delivered() -> None:
    turns = Turns()
    lost = over(turns, b"lost", delivered=False)
    for number in range(REMEMBERED):
        turns.new(b"%d" % number).end("failed", Reply(status=500))
    turns.new(b"next")
    assert turns.tried_before(b"lost") is lost
    assert sum(turn.over for turn in turns._turns) == REMEMBERED


def test_running_turns_are_never_forgotten() -> None:
    turns = Turns()
    made = [turns.new(b"%d" % number) for number in range(5 * REMEMBERED)]
    assert [turns.tried_before(turn.identity) for turn in made] == made


def test_no_bytes_of_a_failure_are_kept() -> None:
    turns = Turns()
    failures = [failed(turns, b"f") for _ in range(5)]
    turns.new(b"f")
    assert sum(len(turn.body) for turn in failures) == 0


def test_which_of_several_alike_another_attempt_is_given() -> None:
    """First what its client lost, then what came to nothing, then what runs, then what was sent."""
    turns = Turns()
    sent, failure, lost = over(turns, b"a"), failed(turns, b"a"), over(turns, b"a", delivered=False)
    running = turns.new(b"a")
    with running.joined():
        assert turns.tried_before(b"a") is lost
        lost.delivered = True
        assert turns.tried_before(b"a") is None  # in the place of the failure
        assert failure not in turns._turns
        assert turns.tried_before(b"a") is running
        running.end("committed", Reply(status=200))
        running.delivered = True
        assert turns.tried_before(b"a") is running
    assert sent in turns._turns


async def test_a_turn_ends_for_all_who_wait_for_it() -> None:
    turn = Turn(b"a")
    told: list[tuple[int, bytes]] = []

    async def wait() -> None:
        with turn.joined() as client:
            await client.begun()
            told.append((turn.status, await client.piece()))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        turn.end("committed", Reply(status=201, body=b"whole"))
    assert told == [(201, b"whole")] * 3


@frozen
class Arrives:
    """An attempt, perhaps another one of a turn that was asked before."""

    identity: bytes
    again: bool


@frozen
class Happens:
    """Something happens to one of the turns that run, or one of its clients."""

    what: Literal["answered", "committed", "failed", "left"]
    which: int


IDENTITIES = [b"a", b"b"]
arrivals = st.builds(Arrives, st.sampled_from(IDENTITIES), st.booleans())
happenings = st.builds(Happens, st.sampled_from(["answered", "committed", "failed", "left"]), st.integers(0, 20))


@define(eq=False)
class Played:
    """A book of turns, with the session's part played: who waits, which model has answered."""

    turns: Turns = field(factory=Turns)
    waiting: list[tuple[Turn, AbstractContextManager[Client]]] = field(factory=list)
    answered: set[int] = field(factory=set)
    made: list[Turn] = field(factory=list)

    def arrive(self, identity: bytes, *, again: bool) -> Turn:
        turn = self.turns.tried_before(identity) if again else None
        if turn is None:
            turn = self.turns.new(identity)
            self.made.append(turn)
        joined = turn.joined()
        joined.__enter__()
        if turn.over:
            self._leave(turn, joined, sent=True)
        else:
            self.waiting.append((turn, joined))
        return turn

    def happen(self, what: str, which: int) -> None:
        running = [turn for turn in self.made if not turn.over]
        if what == "left" and self.waiting:
            self._leave(*self.waiting.pop(which % len(self.waiting)), sent=False)
        elif what == "answered" and running:
            self.answered.add(id(running[which % len(running)]))
        elif what in ("committed", "failed") and running:
            turn = running[which % len(running)]
            turn.end("committed" if what == "committed" else "failed", Reply(status=200, body=b"x"))
            for each in [each for each in self.waiting if each[0] is turn]:
                self.waiting.remove(each)
                self._leave(*each, sent=True)

    def _leave(self, turn: Turn, joined: AbstractContextManager[Client], *, sent: bool) -> None:
        turn.delivered = turn.delivered or sent
        joined.__exit__(None, None, None)
        if turn.cancelled and id(turn) not in self.answered:
            turn.end("given up")  # as the session has it, in the next step


steps = st.lists(arrivals | happenings, max_size=REMEMBERED)


@given(steps=steps)
async def test_a_key_has_one_turn_that_comes_to_something_and_all_its_attempts_get_that_one(
    steps: list[Arrives | Happens],
) -> None:
    played = Played()
    for step in steps:
        if isinstance(step, Happens):
            played.happen(step.what, step.which)
            continue
        before = [turn for turn in played.made if turn.identity == step.identity and not turn.fruitless]
        turn = played.arrive(step.identity, again=True)
        assert before in ([], [turn])
    for identity in IDENTITIES:
        assert sum(turn.identity == identity and not turn.fruitless for turn in played.made) <= 1


@given(steps=steps)
async def test_there_are_no_more_turns_than_first_attempts_and_turns_that_came_to_nothing(
    steps: list[Arrives | Happens],
) -> None:
    played = Played()
    firsts = 0
    for step in steps:
        if isinstance(step, Happens):
            played.happen(step.what, step.which)
            continue
        known = any(turn.identity == step.identity for turn in played.made)
        firsts += not (step.again and known)
        played.arrive(step.identity, again=step.again)
        assert len(played.made) <= firsts + sum(turn.fruitless for turn in played.made)


# The side of who makes the answer


async def test_who_makes_an_answer_waits_for_its_fastest_client_alone() -> None:
    turn = Turn(b"a")
    turn.begin(())
    with turn.joined() as slow, turn.joined() as fast:
        turn.add(b"x" * (AHEAD + 1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.room)
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 1
            await fast.piece()
        assert slow.sent == 0
    await turn.room()  # nobody is waited for


@frozen
class Broken(ChatDialect):
    """Has a bug in its streams, and one in its errors."""

    def renderer(self, request: Request, *, model: str, created: int) -> Renderer:  # type: ignore[override]
        raise ZeroDivisionError("a bug")


async def test_a_bug_in_writing_an_answer_is_its_calls_trouble_alone(caplog: pytest.LogCaptureFixture) -> None:
    slot = Slots().open(Scripted(), url="", model_name="m")
    turn = Turn(b"a")
    await _Asking(turn=turn, dialect=Broken(), slot=slot, request=Request(messages=[UserMessage("x")])).run(True)
    assert (turn.outcome, turn.status) == ("failed", 500)
    assert b"the gateway failed" in turn.body
    assert "a bug" in caplog.text
