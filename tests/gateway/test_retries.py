"""Clients that try again, over real connections: which attempt gets which turn."""

import gc
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from attrs import define
from trio.testing import wait_all_tasks_blocked

from rollout_fsm.errors import ProviderError, TurnRefused
from rollout_fsm.gateway import Gateway, Slot, open_gateway
from rollout_fsm.gateway.turns import REMEMBERED
from rollout_fsm.messages import Deliver, Request, Response

from .raw import Answer, Raw, body_of, connected, post
from .sessions import ANSWER, Held, Scripted, Streaming, texts

pytestmark = pytest.mark.real_time

FIRST = "X-Stainless-Retry-Count: 0"
AGAIN = "X-Stainless-Retry-Count: 1"
KEY = "Idempotency-Key: 7"


async def ask(gateway: Gateway, slot: Slot, *headers: str, body: bytes | None = None, path: str = "") -> Answer:
    """One attempt on a connection of its own."""
    async with connected(gateway) as client:
        return await client.ask(post(slot.secret, body, *headers, path=path or "/v1/chat/completions"))


@define(eq=False)
class Attempt:
    """An attempt that is on its way."""

    client: Raw
    answers: list[Answer]

    async def answer(self) -> Answer:
        self.answers.append(await self.client.answer())
        return self.answers[-1]


@asynccontextmanager
async def attempt(gateway: Gateway, slot: Slot, *headers: str, body: bytes | None = None) -> AsyncIterator[Attempt]:
    """An attempt that was sent; its client hangs up when the block is left."""
    async with connected(gateway) as client:
        await client.send(post(slot.secret, body, *headers))
        yield Attempt(client, [])


# Committed turns


async def test_a_long_turn_whose_answer_was_lost_is_given_to_another_attempt_after_very_many_others() -> None:
    session, quick = Held(), "X-None: 1"
    session.answered = True
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        async with attempt(gateway, slot, KEY, body=body_of("long")):
            await session.begun.wait()
            await wait_all_tasks_blocked()
        session.release.set()
        for number in range(REMEMBERED + 2):
            assert (await ask(gateway, slot, quick, body=body_of(str(number)))).status == 200
        again = await ask(gateway, slot, KEY, AGAIN, body=body_of("long"))
    assert again.document["id"] == "r1"
    assert session.calls == REMEMBERED + 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mark", [(FIRST, AGAIN), (KEY, KEY), ("X-None: 1", AGAIN)])
async def test_another_attempt_of_a_committed_turn_gets_the_same_bytes(mark: tuple[str, str], stream: bool) -> None:
    session = Scripted([ANSWER, ProviderError("nobody asks the model twice")])
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        first = await ask(gateway, slot, mark[0], body=body_of(stream=stream))
        again = await ask(gateway, slot, mark[1], body=body_of(stream=stream))
        once_more = await ask(gateway, slot, mark[1], body=body_of(stream=stream))
    assert first.status == 200
    assert first.body == again.body == once_more.body
    assert len(session.requests) == 1


@pytest.mark.parametrize("count", [None, "0", "00", "no number", "-1", "9" * 5000 + "x"])
async def test_the_same_body_without_a_mark_is_a_new_turn(count: str | None) -> None:
    session, headers = Scripted(), () if count is None else (f"X-Stainless-Retry-Count: {count}",)
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        for _ in range(3):
            assert (await ask(gateway, slot, *headers)).status == 200
    assert len(session.requests) == 3


async def test_a_mark_speaks_for_its_body_its_key_and_its_rollout_alone() -> None:
    session, other = Scripted(), Scripted()
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        await ask(gateway, slot, KEY)
        await ask(gateway, slot, KEY, body=body_of("another"))
        await ask(gateway, slot, "Idempotency-Key: 8")
        await ask(gateway, slot, AGAIN)
        await ask(gateway, gateway.open_slot(other), KEY)
    assert texts(session.requests) == ["2 + 2?", "another", "2 + 2?", "2 + 2?"]
    assert len(other.requests) == 1


async def test_a_stream_that_broke_off_on_its_way_is_sent_again_whole() -> None:
    session = Streaming("one ", "two")
    session.go_on(3)
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        body = body_of(stream=True)
        first = await ask(gateway, slot, FIRST, body=body)
        again = await ask(gateway, slot, AGAIN, body=body)
    assert first.body == again.body


# Failed turns


async def test_another_attempt_of_a_failed_turn_runs_again() -> None:
    session = Scripted([ProviderError("slow down", status_code=429), ProviderError("oops", status_code=500), ANSWER])
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        statuses = [
            (await ask(gateway, slot, f"X-Stainless-Retry-Count: {count}", KEY)).status for count in (0, 1, 2, 3)
        ]
    assert statuses == [429, 500, 200, 200]
    assert len(session.requests) == 3


async def test_another_attempt_of_a_refused_turn_is_refused_by_the_session() -> None:
    session = Scripted([TurnRefused("rollout stopped: x", condition="x")])
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        assert [(await ask(gateway, slot, mark)).status for mark in (FIRST, AGAIN)] == [400, 400]
    assert len(session.requests) == 2


async def test_a_stream_that_broke_off_by_itself_runs_again() -> None:
    session = Streaming("one ", end=ProviderError("gone"))
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        session.go_on(2)
        await ask(gateway, slot, FIRST, body=body_of(stream=True))
        session.end = None
        session.go_on(2)
        again = await ask(gateway, slot, AGAIN, body=body_of(stream=True))
    assert b"[DONE]" in again.body
    assert b"gone" not in again.body


class HeldThenScripted(Held):
    """Holds the first call; the others are answered from a script."""

    def __init__(self, answers: Sequence[Response | BaseException]) -> None:
        super().__init__()
        self.scripted = Scripted(answers)

    async def respond(self, request: Request, *, deliver: Deliver | None = None, keep_answer: bool = False) -> Response:
        if not self.calls:
            return await super().respond(request, deliver=deliver, keep_answer=keep_answer)
        self.calls += 1
        return await self.scripted.respond(request, deliver=deliver, keep_answer=keep_answer)


async def test_of_the_same_requests_at_once_only_the_failed_one_runs_again() -> None:
    """Several samples of one prompt: what fails of them is tried again, and takes no other's answer."""
    session = HeldThenScripted([ProviderError("oops", status_code=500), ANSWER])
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        async with attempt(gateway, slot, FIRST) as one:
            await session.begun.wait()
            assert (await ask(gateway, slot, FIRST)).status == 500
            assert (await ask(gateway, slot, AGAIN)).document["id"] == "answer"
            session.release.set()
            assert (await one.answer()).document["id"] == "r1"
    assert session.calls == 3


# Running turns


async def test_another_attempt_joins_a_running_turn_while_its_connection_stands() -> None:
    session = Held()
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        async with attempt(gateway, slot, FIRST) as first, attempt(gateway, slot, AGAIN) as again:
            await session.begun.wait()
            await wait_all_tasks_blocked()
            session.release.set()
            assert (await first.answer()).body == (await again.answer()).body
    assert session.calls == 1


async def test_another_attempt_of_a_running_stream_gets_it_from_the_beginning() -> None:
    session = Streaming("one ", "two")
    async with open_gateway() as gateway:
        slot, body = gateway.open_slot(session), body_of(stream=True)
        async with attempt(gateway, slot, FIRST, body=body) as first:
            session.go_on()
            while b"one " not in first.client.buffer:
                await first.client.more()
            async with attempt(gateway, slot, AGAIN, body=body) as again:
                while b"one " not in again.client.buffer:
                    await again.client.more()
                session.go_on(2)
                assert (await first.answer()).body == (await again.answer()).body


@pytest.mark.parametrize("leaver", ["first", "again"])
async def test_who_leaves_a_turn_that_another_waits_for_does_not_cancel_it(leaver: str) -> None:
    session = Held()
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        leaving, staying = (FIRST, AGAIN) if leaver == "first" else (AGAIN, FIRST)
        async with connected(gateway) as one, connected(gateway) as other:
            for client, mark in sorted(((one, leaving), (other, staying)), key=lambda pair: pair[1] != FIRST):
                await client.send(post(slot.secret, None, mark))
                await session.begun.wait()
                await wait_all_tasks_blocked(0.01)
            await one.stream.aclose()
            await wait_all_tasks_blocked(0.01)
            session.release.set()
            assert (await other.answer()).status == 200
    assert session.calls == 1
    assert not session.cancelled.is_set()


async def test_a_turn_that_everybody_has_left_is_cancelled_and_another_attempt_runs_again() -> None:
    session = Held()
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        async with attempt(gateway, slot, FIRST), attempt(gateway, slot, AGAIN):
            await session.begun.wait()
            await wait_all_tasks_blocked(0.01)
        await session.cancelled.wait()
        session.release.set()
        assert (await ask(gateway, slot, AGAIN)).document["id"] == "r2"
    assert session.calls == 2


async def test_an_attempt_in_the_moment_in_which_the_turn_is_given_up_runs_again() -> None:
    session = Held()
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        async with attempt(gateway, slot, FIRST):
            await session.begun.wait()
        scope = slot.turns._turns[0].scope
        assert scope is not None
        scope.cancel()  # the hang-up was noticed, the session was not told yet
        async with attempt(gateway, slot, AGAIN) as again:
            await session.cancelled.wait()
            session.release.set()
            assert (await again.answer()).document["id"] == "r2"


@pytest.mark.parametrize("when", ["before the commit", "after the commit"])
async def test_an_answer_whose_client_hung_up_after_the_model_had_answered_is_kept_for_another_attempt(
    when: str,
) -> None:
    session = Held()
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        async with attempt(gateway, slot, FIRST):
            await session.begun.wait()
            session.answered = True
        await wait_all_tasks_blocked(0.01)
        if when == "after the commit":
            session.release.set()
            await session.committed.wait()
        async with attempt(gateway, slot, AGAIN) as again:
            session.release.set()
            assert (await again.answer()).document["id"] == "r1"
    assert session.calls == 1


async def test_a_turn_that_fails_after_its_client_hung_up_runs_again() -> None:
    session = Held()
    session.failure = ProviderError("a hook said no")
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        async with attempt(gateway, slot, FIRST):
            await session.begun.wait()
            session.answered = True
        await wait_all_tasks_blocked(0.01)
        session.release.set()
        await wait_all_tasks_blocked(0.01)
        session.failure = None
        assert (await ask(gateway, slot, AGAIN)).document["id"] == "r2"


# Memory


async def test_a_closed_slot_remembers_nothing() -> None:
    async with open_gateway() as gateway:
        slot = gateway.open_slot(Scripted())
        assert (await ask(gateway, slot, KEY)).status == 200
        assert slot.turns._turns
        slot.close()
        assert not slot.turns._turns
        assert (await ask(gateway, slot, KEY)).error["message"] == "rollout concluded"


async def test_a_remembered_turn_keeps_neither_session_nor_request() -> None:
    session = Scripted()
    gone = weakref.ref(session)
    async with open_gateway() as gateway:
        slot = gateway.open_slot(session)
        gc.collect()
        gc.disable()
        try:
            await ask(gateway, slot, KEY)
            await ask(gateway, slot, KEY)
            await wait_all_tasks_blocked()
            slot._session = None
            del session
            assert gone() is None
        finally:
            gc.enable()
